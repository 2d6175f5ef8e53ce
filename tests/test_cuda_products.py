"""Matrix products of the GPU's target: tiles on the emulator, and how the library is asked, against NumPy."""

import copy
import ctypes
import itertools
import math

import cuda_emulator
import ml_dtypes
import numpy as np
import pytest
from cuda_emulator import EMULATED, has_compiler, load_module, run_actions

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile import targets
from pullback.compile.cpu.target import find_cpu_target
from pullback.compile.cuda.launch_plan import Choice, Launch
from pullback.compile.cuda.preamble import PREAMBLE
from pullback.compile.cuda.products import choose, composed, library
from pullback.compile.cuda.products.choose import choose_shape, middle_shape, offered_shapes
from pullback.compile.cuda.products.instructions import tiles_text
from pullback.compile.cuda.products.library import LibraryPlan, can_take
from pullback.compile.cuda.products.order import conflict
from pullback.compile.cuda.products.tile import (
    GroupShape,
    PanelShape,
    PlainShape,
    TensorShape,
    render_tile,
    store_product,
)
from pullback.compile.loop_ir import Blocks, Buffer, Kernel, KernelLine, Layout, Product, Store

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
SHAPES = [
    TensorShape(1, 1, (1, 1, 1)), TensorShape(1, 1, (1, 1, 4)), TensorShape(2, 4, (1, 1, 2)),
    TensorShape(2, 4, (2, 2, 1)), TensorShape(1, 2, (2, 1, 2)), TensorShape(1, 1, (1, 2, 1)),
    PanelShape(2, 4, (2, 2)), PanelShape(4, 4, (2, 1)), PanelShape(2, 4, (1, 2)),
    GroupShape(64, 2), GroupShape(32, 1), GroupShape(32, 2),
    PlainShape(1, 1), PlainShape(2, 4),
]  # fmt: skip


def strided(layout, flat):
    """The elements of a layout, as a view of its memory."""
    strides = [s * flat.itemsize for s in layout.strides]
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.shape, strides)


def matrices(rng, batch, rows, columns, order, dtype, gaps):
    """A matrix for each element of a batch with values: in some order, with gaps, from an offset, perhaps repeated."""
    gap, offset = (int(rng.integers(0, 3)), int(rng.integers(0, 5))) if gaps else (0, 0)
    strides = {
        "rows": (rows * (columns + gap), columns + gap, 1),
        "columns": (columns * (rows + gap), 1, rows + gap),
        "repeated": (0, columns + gap, 1),
        "neither": (2 * rows * columns, 2 * columns, 2),
    }[order]
    size = offset + 1 + sum(s * max(n - 1, 0) for s, n in zip(strides, (batch, rows, columns), strict=True))
    buffer = Buffer("input", size, np.dtype(dtype))
    return Layout(buffer, (batch, rows, columns), strides, offset), rng.standard_normal(size).astype(dtype)


class Case:
    """A product, its memory, and what it should be."""

    def __init__(self, rng, sizes, orders, dtype="float32", alpha=1.0, beta=0.0, gaps=True):
        batch, m, k, n = sizes
        out, left, right = orders
        found = [
            matrices(rng, batch, m, n, out, dtype, gaps),
            matrices(rng, batch, m, k, left, dtype, gaps),
            matrices(rng, batch, k, n, right, dtype, gaps),
        ]
        (self.out, _), (left, _), (right, _) = found
        self.product = Product(self.out, left, right, alpha, beta)
        self.memory = {layout.buffer: flat for layout, flat in found}
        a, b, c = (strided(x, self.memory[x.buffer]).astype(np.float64) for x in (left, right, self.out))
        self.want = alpha * (a @ b) + beta * c
        self.scale = np.abs(alpha) * (np.abs(a) @ np.abs(b)) + np.abs(beta * c)

    def error(self):
        got = strided(self.out, self.memory[self.out.buffer])
        return float(np.max(np.abs(got - self.want) / np.maximum(self.scale, 1e-30))) if got.size else 0.0


def run_tiles(cases):
    """Run (case, shape, digits) on the emulator, all in one module."""
    functions = [render_tile(c.product, store_product(c.product), shape, digits) for c, shape, digits in cases]
    text = PREAMBLE + tiles_text()
    text += "".join(f.text.replace("NAME", f"tile{i}") for i, f in enumerate(functions))
    load_module(text)
    for i, ((case, *_), f) in enumerate(zip(cases, functions, strict=True)):
        launch = Launch(f"tile{i}", f.buffers, (0,) * len(f.buffers), f.grid, f.block)
        run_actions(text, [launch], case.memory)


def random_cases(rng, count, orders, dtypes=("float32",)):
    for _ in range(count):
        sizes = (int(rng.choice([1, 1, 3])), *(int(x) for x in rng.choice([1, 2, 7, 8, 9, 16, 17, 33, 40], 3)))
        picked = [str(rng.choice(o)) for o in orders]
        alpha, beta = [(1.0, 0.0), (-0.5, 1.0), (2.0, 0.25)][int(rng.integers(3))]
        yield Case(rng, sizes, picked, str(rng.choice(dtypes)), alpha, beta)


@needs_compiler
def test_tiles_of_every_shape_multiply_matrices_of_any_strides():
    rng = np.random.default_rng(0)
    args = ["rows", "columns", "repeated", "neither"]
    cases = [
        (c, s, 3) for c, s in zip(random_cases(rng, 2 * len(SHAPES), (args[:2], args, args)), 2 * SHAPES, strict=True)
    ]
    cases += [(Case(rng, (2, 5, 0, 9), ("rows",) * 3, beta=beta), s, 3) for s in SHAPES[1::3] for beta in (0.0, 0.5)]
    run_tiles(cases)
    for case, shape, _ in cases:
        assert case.error() < 5e-7, (case.product, shape)


@needs_compiler
def test_tiles_of_half_types_round_once():
    rng = np.random.default_rng(9)
    args = ["rows", "columns", "repeated", "neither"]
    shapes = [TensorShape(1, 1, (1, 1, 1)), TensorShape(1, 2, (2, 1, 4)), TensorShape(2, 4, (1, 1, 2))]
    dtypes = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
    cases = []
    for number, (dtype, shape) in enumerate(itertools.product(dtypes, shapes)):
        sizes = (1 + number % 3, *(int(x) for x in rng.choice([1, 2, 7, 16, 17, 33, 40], 3)))
        cases.append((Case(rng, sizes, [str(rng.choice(o)) for o in (args[:2], args, args)], dtype), shape, 3))
    # neighbours in memory are loaded four at a time
    for dtype, *orders in itertools.product(dtypes, args[:2], args[:2]):
        cases.append((Case(rng, (2, 64, 48, 32), ("rows", *orders), dtype, gaps=False), shapes[-1], 1))
    run_tiles(cases)
    for case, shape, _ in cases:
        unit = 2.0**-8 if case.out.buffer.dtype == dtypes[0] else 2.0**-11
        # one rounding of a sum whose own error is that of float32
        assert case.error() < unit * 1.001, (case.product, shape)


@needs_compiler
def test_shapes_by_rule_and_other_dtypes():
    rng = np.random.default_rng(1)
    cases = [(c, choose_shape(c.product), 3) for c in random_cases(rng, 8, (["rows"],) * 3, ("float32", "float64"))]
    run_tiles(cases)
    for case, shape, _ in cases:
        assert case.error() < (5e-7 if case.out.buffer.dtype.itemsize == 4 else 1e-15), (case.product, shape)
        assert offered_shapes(case.product) == [shape]


def test_warps_share_k_and_large_products_are_left_to_the_library():
    def square(m, k, n):
        return Case(np.random.default_rng(0), (1, m, k, n), ("rows",) * 3).product

    assert [middle_shape(square(64, k, 64)).warps[2] for k in (8, 128, 1024)] == [1, 4, 8]
    assert len(offered_shapes(square(512, 256, 512))) == 1
    assert offered_shapes(square(1024, 512, 1024), digits=1) == []
    assert [offered_shapes(square(m, 512, 1024)) for m in (1024, 4096)] == [[GroupShape(64, 1)], [GroupShape(64, 3)]]


@needs_compiler
def test_vectors_are_loaded_where_memory_has_them():
    rng, orders = np.random.default_rng(14), list(itertools.product(("rows", "columns"), repeat=2))
    cases = []
    for (left, right), (m, k, n) in itertools.product(orders, ((40, 36, 44), (64, 128, 32), (4, 20, 8))):
        case = Case(rng, (2, m, k, n), ("rows", left, right), gaps=False)
        cases.append((case, TensorShape(2, 4, (1, 1, 1 + k // 32)), 3))
    texts = [render_tile(c.product, store_product(c.product), shape, 3).text for c, shape, _ in cases]
    assert all("load_left" in text for text in texts)
    panels = itertools.cycle((PanelShape(2, 4, (2, 2)), GroupShape(64, 2), GroupShape(32, 1)))
    cases += [
        (Case(rng, (2, 72, 36, 104), ("rows", *order), gaps=False), shape, 3)
        for order, shape in zip(2 * orders, panels, strict=False)
    ]
    for low, order in ((PanelShape(1, 4, (4, 2)), "rows"), (PanelShape(1, 4, (2, 1)), "columns")):
        cases.append((Case(rng, (2, 72, 36, 104), ("rows", "rows", order), gaps=False), low, 3))
    run_tiles(cases)
    for case, shape, _ in cases:
        assert case.error() < 5e-7, (case.product, shape)
    product = cases[0][0].product
    text = render_tile(product, store_product(product), cases[0][1], 3, {product.left.buffer: 4}).text
    assert "load_left" not in text


@needs_compiler
def test_one_digit_is_tf32():
    rng = np.random.default_rng(2)
    cases = [(Case(rng, (1, 30, 40, 20), ("rows", "rows", "columns")), s, 1) for s in (*SHAPES[:4], GroupShape(32, 2))]
    run_tiles(cases)
    for case, *_ in cases:
        assert 1e-5 < case.error() < 1e-3


@needs_compiler
def test_infinities_and_numbers_that_overflow_tf32_are_as_in_float32():
    rng = np.random.default_rng(3)
    cases = [(Case(rng, (1, 20, 24, 20), ("rows",) * 3), s, 3) for s in (*SHAPES[:2], SHAPES[3], GroupShape(32, 1))]
    for case, *_ in cases:
        left, right = (strided(x, case.memory[x.buffer])[0] for x in (case.product.left, case.product.right))
        left[2, 3], left[4, 5], left[6, 7], right[8, 9] = np.inf, np.nan, 3.4028e38, -np.inf
        with np.errstate(all="ignore"):
            case.want = left.astype(np.float64) @ right.astype(np.float64)
            case.want = case.want.astype(np.float32)
    run_tiles(cases)
    for case, *_ in cases:
        got = strided(case.out, case.memory[case.out.buffer])[0]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(case.want))
        np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(case.want) * np.sign(case.want))


class FakeLibrary:
    """cuBLASLt as its documentation has it, on NumPy memory: matrices by columns, transposed where asked."""

    def __init__(self):
        self.things, self.number, self.runs = {}, itertools.count(1), []

    def _make(self, reference, thing):
        reference._obj.value = next(self.number)
        self.things[reference._obj.value] = thing
        return 0

    def cublasLtMatmulDescCreate(self, reference, compute, scale):
        return self._make(reference, {"compute": compute, "scale": scale})

    def cublasLtMatrixLayoutCreate(self, reference, dtype, rows, columns, leading):
        assert leading.value >= rows.value
        return self._make(reference, {"size": (rows.value, columns.value, leading.value), 5: 1, 6: 0, "dtype": dtype})

    def cublasLtMatmulPreferenceCreate(self, reference):
        return self._make(reference, {})

    def set(self, thing, attribute, value, size):
        self.things[thing.value][attribute] = value._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatrixLayoutSetAttribute = cublasLtMatmulPreferenceSetAttribute = set  # noqa: N815

    def cublasLtMatmulAlgoGetHeuristic(self, handle, desc, a, b, c, d, preference, wanted, found, count):
        assert self.things[preference.value][3] == 2  # no sums in an order that differs from run to run
        for i in range(3):
            found._obj[i].algorithm[0] = i + 1
        count._obj.value = 3
        return 0

    def cublasLtMatmulPreferenceDestroy(self, thing):
        return 0

    cublasLtMatrixLayoutDestroy = cublasLtMatmulDescDestroy = cublasLtMatmulPreferenceDestroy  # noqa: N815

    def cublasLtGetVersion(self):
        return 1

    def matrix(self, layout, address):
        thing = self.things[layout.value]
        (rows, columns, leading), batch, step = thing["size"], thing[5], thing[6]
        scalar = {0: ctypes.c_float, 1: ctypes.c_double}[thing["dtype"]]
        count = step * (batch - 1) + leading * (columns - 1) + rows
        flat = np.ctypeslib.as_array((scalar * count).from_address(address.value))
        n = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), (step * n, n, leading * n))

    def cublasLtMatmul(self, handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, size, stream):
        self.runs.append(algorithm._obj.raw[0])
        x, y, out = self.matrix(la, a), self.matrix(lb, b), self.matrix(ld, d)
        x = x.swapaxes(1, 2) if self.things[desc.value].get(3) else x
        y = y.swapaxes(1, 2) if self.things[desc.value].get(4) else y
        found = alpha._obj.value * (x.astype(np.float64) @ y)
        out[...] = found + beta._obj.value * out if beta._obj.value else found
        return 0


@pytest.fixture
def fake(monkeypatch):
    found = FakeLibrary()
    monkeypatch.setattr(library, "_library", lambda: (found, ctypes.c_void_p(1)))
    return found


def launch(plan, case):
    matrices = (case.product.out, case.product.left, case.product.right)
    places = [case.memory[m.buffer].ctypes.data + m.offset * m.buffer.dtype.itemsize for m in matrices]
    plan.launch(*places, 0, 0)


def test_the_library_is_asked_for_matrices_as_they_lie(fake):
    rng = np.random.default_rng(4)
    out, args = ["rows", "columns"], ["rows", "columns", "repeated"]
    for case in random_cases(rng, 200, (out, args, args), ("float32", "float64")):
        if can_take(case.product):  # a gap in a matrix of one row or column may be too small
            launch(LibraryPlan(case.product), case)
            assert case.error() < 1e-6, case.product


def test_what_the_library_cannot_take():
    rng = np.random.default_rng(5)
    usual = ("rows",) * 3
    assert can_take(Case(rng, (2, 4, 5, 6), usual).product)
    for place in range(3):
        orders = ["rows"] * 3
        orders[place] = "neither"
        assert not can_take(Case(rng, (2, 4, 5, 6), orders).product)
    assert not can_take(Case(rng, (2, 4, 5, 6), ("repeated", "rows", "rows")).product)
    assert not can_take(Case(rng, (2, 4, 0, 6), usual).product)
    assert can_take(Case(rng, (1, 1, 5, 1), ("neither", "rows", "rows")).product)


def test_an_algorithm_is_one_of_the_librarys_proposals(fake):
    case = Case(np.random.default_rng(6), (1, 4, 5, 6), ("rows",) * 3)
    for number in (0, 1, 2, 7):
        launch(LibraryPlan(case.product, algorithm=number), case)
    assert fake.runs == [1, 2, 3, 3]


def test_precisions_are_two_words():
    assert pb.get_matmul_precision() == "float32"
    with pytest.raises(pb.errors.ArgumentError, match="tf32"):
        pb.set_matmul_precision("half")
    assert pb.get_matmul_precision() == "float32"


def gelu_step(params, x, y):
    """A step of a small perceptron, its parameters donated."""

    def loss(params):
        h = x
        for w, b in params[:-1]:
            h = pb.nn.gelu(h @ w + b)
        w, b = params[-1]
        return pb.mean((h @ w + b - y) ** 2)

    value, gradient = pb.value_and_grad(loss)(params)
    return value, [(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(params, gradient, strict=True)]


def make_step(rng, sizes, batch):
    params = [
        (rng.standard_normal((a, b)).astype("f4") / 4, rng.standard_normal(b).astype("f4"))
        for a, b in itertools.pairwise(sizes)
    ]
    return (
        params,
        rng.standard_normal((batch, sizes[0])).astype("f4"),
        rng.standard_normal((batch, sizes[-1])).astype("f4"),
    )


def launches(jitted, *args):
    return jitted.lower(*args).code.compilation.code.plan.actions


def compare_with_cpu(monkeypatch, f, args, donate=(), tolerance=2e-5):
    """A function compiled for the GPU and run by the emulator against the CPU's code; its launches."""
    monkeypatch.setitem(targets.TARGETS, "cpu", find_cpu_target)
    want = flatten(pb.jit(f)(*args))[0]
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    compiled = pb.jit(f, donate_argnums=donate)
    found = launches(compiled, *args)
    got = flatten(compiled(*copy.deepcopy(args)))[0]
    for mine, wanted in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=tolerance, atol=tolerance)
    return found


@needs_compiler
def test_a_long_sum_is_cut_into_parts(monkeypatch):
    rng = np.random.default_rng(8)
    x, y, w = (rng.standard_normal(s).astype("f4") for s in ((7, 1152), (1152, 9), (7, 9)))
    step = lambda w, x, y: (w - 0.1 * (x @ y), pb.tanh(x @ y + w[0]))  # noqa: E731
    found = compare_with_cpu(monkeypatch, step, (w, x, y), (0,), 1e-4)
    assert max(math.prod(launch.grid) for launch in found) > 2  # blocks of threads side by side along K
    compare_with_cpu(monkeypatch, lambda x, y: x @ y, (x[:, :1031], y[:1031]), tolerance=1e-4)


@needs_compiler
def test_heads_of_attention_are_read_and_written_in_place(monkeypatch):
    rng = np.random.default_rng(9)
    qkv, w = rng.standard_normal((2, 6, 24)).astype("f4"), rng.standard_normal((8, 8)).astype("f4")

    def loss(qkv, w):
        return pb.sum(pb.nn.multi_head_attention(*pb.split(qkv, 3, axis=-1), 2, is_causal=True) @ w)

    found = compare_with_cpu(monkeypatch, pb.value_and_grad(loss, argnums=(0, 1)), (qkv, w))
    assert len(found) <= 10


@needs_compiler
@pytest.mark.parametrize(("rows", "columns", "depth"), [(16, 64, 9), (48, 128, 40), (32, 32, 70), (17, 64, 9)])
def test_what_goes_through_the_rows_of_a_product_goes_on_with_them(monkeypatch, rows, columns, depth):
    rng = np.random.default_rng(12)
    x, w, b = (rng.standard_normal(s).astype("f4") for s in ((2, rows, depth), (depth, columns), (columns,)))

    def f(x, w, b):
        z = x @ w
        return pb.nn.softmax(z + b, axis=-1), z[:, 0]

    compare_with_cpu(monkeypatch, f, (x, w, b))
    found = compare_with_cpu(monkeypatch, lambda x, w, b: pb.nn.layer_norm(x @ w, b, b) * 2, (x, w, b))
    assert len(found) == (1 if rows % 16 == 0 else 2)


@needs_compiler
def test_a_product_that_is_used_again_is_stored_beside_its_tail(monkeypatch):
    rng = np.random.default_rng(10)
    x, w = rng.standard_normal((5, 7)).astype("f4"), rng.standard_normal((7, 6)).astype("f4")

    def f(x, w):
        z = x @ w
        h = pb.tanh(z)
        return h, z @ h.T, pb.sum(h * z, axis=0), (x @ w[:, :5]).T + 1

    compare_with_cpu(monkeypatch, f, (x, w))


@needs_compiler
def test_products_of_tf32_where_it_is_chosen(monkeypatch):
    rng = np.random.default_rng(11)
    x, w = rng.standard_normal((20, 30)).astype("f4"), rng.standard_normal((30, 10)).astype("f4")
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    errors = []
    try:
        for precision in ("float32", "tf32"):
            pb.set_matmul_precision(precision)
            errors.append(np.abs(pb.jit(lambda x, w: x @ w)(x, w) - x.astype("f8") @ w).max())
    finally:
        pb.set_matmul_precision("float32")
    assert errors[0] < 1e-5
    assert 1e-4 < errors[1] < 1e-1


def test_steps_that_write_parts_of_a_buffer_may_run_side_by_side():
    def part(buffer, offset, columns, rows=4):
        line = KernelLine("number", np.dtype("f4"), frozenset(), number=1.0)
        return Kernel((rows, columns), 0, [line], [Store(line, buffer, (12, 1), offset)])

    buffer = Buffer("arena", 48, np.dtype("f4"))
    assert not conflict((part(buffer, 0, 6),), (part(buffer, 6, 6),))
    assert conflict((part(buffer, 0, 7),), (part(buffer, 6, 6),))
    assert conflict((part(buffer, 0, 6),), (part(buffer, 12, 6, 3),))
    assert conflict((part(buffer, 6, 7),), (part(buffer, 0, 1),))


@needs_compiler
def test_a_training_step_is_a_few_launches(monkeypatch):
    args = make_step(np.random.default_rng(7), (20, 17, 9, 5), 19)
    assert len(compare_with_cpu(monkeypatch, gelu_step, args, (0,))) <= 7


@needs_compiler
def test_factors_and_copies_of_a_products_arguments_are_its_own(monkeypatch):
    rng = np.random.default_rng(13)
    x, y = rng.standard_normal((3, 8, 2, 16)).astype("f4"), rng.standard_normal((3, 8, 2, 16)).astype("f4")

    def scores(x, y):
        q, k = pb.transpose(x, (0, 2, 1, 3)) * 0.25, pb.transpose(y, (0, 2, 3, 1))
        return q @ k, pb.sum(q @ k * k[..., :8, :])

    found = compare_with_cpu(monkeypatch, lambda x, y: scores(x, y)[0], (x, y))
    assert len(found) == 1
    compare_with_cpu(monkeypatch, pb.grad(lambda x, y: scores(x, y)[1], argnums=(0, 1)), (x, y))


@needs_compiler
@pytest.mark.parametrize("way", [0, 1, -1])
def test_every_way_of_a_choice_computes_the_same(monkeypatch, way):
    monkeypatch.setattr(choose, "SMALL_PRODUCT", 0)  # so that the library is tried for all
    monkeypatch.setattr(cuda_emulator, "WAY", way)
    args = make_step(np.random.default_rng(15), (20, 16, 12, 8), 24)
    found = compare_with_cpu(monkeypatch, gelu_step, args, (0,))
    assert any(isinstance(a, Choice) for a in found)


CONVOLUTIONS = {
    "padded": ((2, 32, 9, 7), (20, 32, 3, 3), {"padding": 1}),
    "square": ((3, 16, 6, 6), (16, 16, 3, 3), {}),
    "strided": ((2, 4, 8, 8), (36, 4, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": ((2, 16, 9, 9), (8, 16, 3, 2), {"padding": 1, "dilation": 2}),
    "few channels": ((2, 3, 7, 7), (5, 3, 3, 3), {"padding": 2}),
    "one place": ((2, 20, 5, 5), (32, 20, 1, 1), {}),
    "one axis": ((4, 16, 7), (16, 16, 3), {"padding": 1}),
    "in parts": ((16, 16, 9, 9), (16, 16, 3, 3), {"padding": 1}),
}


@needs_compiler
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_products_read_patches_where_they_are(monkeypatch, name):
    """Forward and both gradients; no launch lays patches out, and a program needs no memory for them."""
    x_shape, w_shape, how = CONVOLUTIONS[name]
    rng = np.random.default_rng(17)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in (x_shape, w_shape))
    convolve = pb.nn.conv1d if len(x_shape) == 3 else pb.nn.conv2d

    def loss(x, w):
        y = convolve(x, w, **how)
        return pb.sum(pb.sin(y) * pb.relu(y))

    f = pb.value_and_grad(loss, argnums=(0, 1))
    for module in (choose, composed):
        monkeypatch.setattr(module, "SMALL_PRODUCT", 0)
    wanted = flatten(f(x.astype(np.float64), w.astype(np.float64)))[0]
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    jitted = pb.jit(f)
    for a, b in zip(flatten(jitted(x, w))[0], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())
    steps = jitted.lower(x, w).code.compilation.planned.steps
    products = [p for s in steps for p in (s.steps if isinstance(s, Blocks) else [s]) if isinstance(p, Product)]
    assert sum(p.axes is not None for p in products) == (2 if name in ("strided", "few channels") else 3)


def test_axes_of_a_copy_are_those_of_its_source():
    """Composed axes against NumPy, for copies of random permutations."""
    rng = np.random.default_rng(18)
    for _ in range(40):
        sizes = [int(n) for n in rng.choice([1, 2, 3, 4], 4)]
        order = [int(i) for i in rng.permutation(4)]
        source = rng.permutation(math.prod(sizes)).reshape(sizes)
        copy_strides = [0] * 4
        step = 1
        for i in reversed(order):
            copy_strides[i], step = step, step * sizes[i]
        there = [s // source.itemsize for s in source.strides]
        way = list(zip(sizes, copy_strides, there, strict=True))
        laid = source.transpose(order).reshape(-1)
        cut = math.prod(sizes[i] for i in order[2:])
        for n, stride, start in ((source.size // cut, cut, 0), (cut, 1, 0)):
            axes = composed._split_axis(n, stride, way)
            found = np.zeros(1, int)
            for size, by in composed._merge(axes):
                found = (found[:, None] + by * np.arange(size)).reshape(-1)
            assert (source.reshape(-1)[found] == laid[start::stride][:n]).all()
