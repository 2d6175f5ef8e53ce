"""Half dtypes in compiled code: loads widen to float32, stores round once, casts round there and then."""

import dataclasses

import numpy as np
import pytest
from composed_modes import find_fault
from composed_programs import drawn as drawn_program
from machines import IN_BLOCKS, cpu_with
from random_programs import program
from stub_target import STUB
from test_random_graphs import roles

import pullback as pb
from pullback.compile import targets
from pullback.compile.cpu.runtime import link
from pullback.compile.loop_ir import Host

TARGETS = {"cpu": None, "stub": STUB, "stub with half products": dataclasses.replace(STUB, has_half_products=True)}
HALVES = ("bfloat16", "float16")
#: The unit in the last place of one.
EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


@pytest.fixture(params=TARGETS)
def target(request, monkeypatch):
    found = TARGETS[request.param]
    if found is not None:
        monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: found)
    return request.param


def drawn(dtype, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(getattr(pb, dtype))


def leaves(tree):
    return [np.asarray(x) for x in pb.tree.leaves(tree)]


def hosts(f, *args):
    """The ops that NumPy executes in a compiled function."""
    steps = pb.jit(f).lower(*args).code.compilation.planned.steps
    return [s.name for s in steps if isinstance(s, Host)]


ROWS = np.array([0, 2, 2])
SQUARE = lambda y: pb.sum(y.astype("float32") ** 2)  # noqa: E731

#: Functions of two matrices (4, 6), and how many roundings deep the result of eager ops is.
CASES = {
    "elementwise": (lambda x, y: pb.tanh(x * y + 0.1) * pb.exp(-x), 6),
    "select": (lambda x, y: pb.where(x > 0.1, pb.clip(y, -0.3, 0.4), 0.5), 1),
    "softmax": (lambda x, y: pb.nn.softmax(x * y, axis=-1), 6),
    "layer norm": (lambda x, y: pb.nn.layer_norm(x * y), 8),
    "sum of columns": (lambda x, y: pb.sum(x * y, axis=0), 3),
    "maximum": (lambda x, y: pb.max(x * y, axis=1), 1),
    "cast": (lambda x, y: (x.astype("float32") * y.astype("float64")).astype("bfloat16").astype("float32") * 3, 1),
    "integers": (lambda x, y: (x * 3).astype("int32") + pb.argmax(y, axis=1, keepdims=True).astype("int32"), 0),
    "product": (lambda x, y: pb.nn.relu(x @ y.T) + 1, 4),
    "product of a transpose": (lambda x, y: x.T @ (y * 2), 2),
    "batch of products": (lambda x, y: pb.einsum("ija,jkb->ibk", x.reshape(2, 2, 6), y.reshape(2, 2, 6)), 3),
    "gather": (lambda x, y: x[ROWS] * y[:3], 1),
    "concatenate": (lambda x, y: pb.concatenate([x * 2, y.astype("float32"), x]), 1),
    "scan": (lambda x, y: pb.scan(lambda c, r: (pb.tanh(c * r + 0.1), c), x[0], y), 16),
    "number from an array": (lambda x, y: x[0, 0] * y + pb.sum(x) * 0.3, 8),
    "maximum's gradient": (pb.grad(lambda x, y: SQUARE(pb.max(x * y, axis=1))), 4),
    "product's gradient": (pb.grad(lambda x, y: SQUARE(pb.tanh(x @ y.T)), argnums=(0, 1)), 10),
    "gather's gradient": (pb.grad(lambda x, y: SQUARE(x[ROWS] * y[:3])), 5),
    "pooling's gradient": (pb.grad(lambda x, y: SQUARE(pb.nn.max_pool2d((x * y).reshape(1, 1, 4, 6), 3, stride=1))), 4),
    "convolution's gradients": (
        pb.grad(
            lambda x, y: SQUARE(pb.nn.conv2d(x.reshape(2, 2, 2, 3), y.reshape(3, 2, 2, 2), padding=1)), argnums=(0, 1)
        ),
        6,
    ),
    "second order": (pb.grad(lambda x, y: SQUARE(pb.grad(lambda z: SQUARE(pb.sin(z) * y))(x))), 24),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CASES)
def test_compiled_is_eager_within_its_roundings(target, case, dtype):
    """Each stage of the compiler agrees with NumPy (`check`), and the result with eager ops."""
    f, roundings = CASES[case]
    x, y = drawn(dtype, 4, 6), drawn(dtype, 4, 6, seed=1)
    found, wanted = leaves(pb.jit(f, check=True)(x, y)), leaves(f(pb.tensor(x), pb.tensor(y)))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
        scale = max(1e-9, np.abs(theirs).max(initial=0.0))
        assert np.abs(mine - theirs).max(initial=0.0) <= roundings * EPSILON[dtype] * scale
    assert hosts(f, x, y) == (["argmax"] if case == "integers" else [])


@pytest.mark.parametrize("dtype", HALVES)
def test_only_casts_and_stores_round(target, dtype):
    """One and a tenth of a unit: a sum that stays in a kernel keeps it, a cast does not, nor does a Python number."""
    one, tenth = np.ones(3, getattr(pb, dtype)), np.full(3, EPSILON[dtype] / 8, getattr(pb, dtype))
    assert (pb.jit(lambda x, y: (x + y) - x)(one, tenth) == tenth).all()
    rounded = pb.jit(lambda x, y: (x.astype("float32") + y.astype("float32")).astype(dtype) - x)
    assert (rounded(one, tenth) == 0).all()
    assert (pb.jit(lambda x: x - (1 + EPSILON[dtype] / 8))(one) == 0).all()
    assert pb.jit(lambda x: x == 0.1)(np.full(2, 0.1, getattr(pb, dtype))).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_are_in_float32(target, dtype):
    """Each addend is below half a unit of the sum that it is added to."""
    x = np.full((300, 2), EPSILON[dtype] / 8, getattr(pb, dtype))
    x[0] = 1
    wanted = np.float64(1 + 299 * EPSILON[dtype] / 8).astype(getattr(pb, dtype))
    assert (pb.jit(lambda x: pb.sum(x, axis=0))(x) == wanted).all()
    assert pb.jit(lambda x: pb.sum(x[:, 0]))(x) == wanted
    assert (pb.jit(lambda x: np.ones(300, x.dtype) @ x)(x) == wanted).all()
    table, rows = np.zeros((2, 2), x.dtype), np.zeros(300, int)
    added = pb.jit(lambda t, x: pb.grad(lambda t: pb.sum((t[rows] * x).astype("float32")))(t))(table, x)
    assert (added[0] == wanted).all()
    assert not added[1].any()


def test_every_number_is_rounded_as_by_numpy():
    """All upper halves of a float32 with lower halves around those that tie, and float64 numbers beside the ties."""
    lower = np.array([0, 1, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = ((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] | lower).view(np.float32)
    with np.errstate(all="ignore"):
        doubles = x.astype(np.float64) * (1 + 2.0**-40)
        for dtype in HALVES:
            for given in (x, doubles):
                wanted = given.astype(getattr(pb, dtype))
                found = pb.jit(lambda x, dtype=dtype: x.astype(dtype))(given)
                nan = np.isnan(wanted.astype(np.float32))
                assert ((found.view(np.uint16) == wanted.view(np.uint16)) | nan).all()
                assert np.isnan(found[nan].astype(np.float32)).all()
                fused = pb.jit(lambda x, dtype=dtype: x.astype(dtype).astype("float32") * 2)(given)
                np.testing.assert_array_equal(fused, wanted.astype(np.float32) * 2)
            every = np.arange(1 << 16, dtype=np.uint16).view(getattr(pb, dtype))
            np.testing.assert_array_equal(pb.jit(lambda x: x.astype("float32"))(every), every.astype(np.float32))


def test_values_that_are_compared_are_rounded(target):
    """A maximum that was stored, and so rounded, equals the element that it is, computed again."""
    x, y = drawn("bfloat16", 40, 30), drawn("bfloat16", 40, 30, seed=1)
    slopes = pb.jit(pb.grad(lambda x: pb.sum(pb.max(x * y, axis=1).astype("float32"))))(x)
    assert (np.count_nonzero(np.asarray(slopes), axis=1) >= 1).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_what_steps_sees_rounded_numbers(target, dtype):
    """Just below a whole number, which rounding makes it: truths, whole numbers and steps do not depend on what shares
    a kernel, also where the sum was widened meanwhile.
    """
    x = np.full(3, 3, getattr(pb, dtype))
    y = np.full(3, -EPSILON[dtype] / 8, x.dtype)
    functions = [
        lambda h: h.astype("int32"),
        lambda h: pb.floor(h),
        lambda h: h == 3,
        lambda h: h.astype("float32") < 3,
        lambda h: h.astype("float64").astype("float32") == 3,
        lambda h: h.astype("float32"),
    ]
    found = pb.jit(lambda x, y: [f(x + y) for f in functions])(x, y)
    for mine, f in zip(found, functions, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(f(pb.tensor(x) + y)))


def rows(x):
    """Light kernels over rows of bfloat16: sums, extremes, several passes, and nothing but elements."""
    return pb.sum(x, axis=1), pb.max(x * 2, axis=1), x * 2 + 1, pb.sum(x * x), pb.nn.layer_norm(x)


def check_rows(f, x):
    y = x.astype(np.float64)
    norm = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    found = f(x)
    for mine, wanted in zip(found, (y.sum(1), (y * 2).max(1), y * 2 + 1, (y * y).sum(), norm), strict=True):
        scale = max(1.0, np.abs(wanted).max())
        assert np.abs(np.asarray(mine, np.float64) - wanted).max() <= 2.0**-8 * scale
    return [np.asarray(x) for x in found]


def test_rows_of_every_length_have_the_same_bits_whatever_was_compiled_before():
    """Even and odd places of a row of bfloat16 are separate lanes; the end of a row is masked."""
    varying = pb.jit(rows)
    for n in (40, 1, 2, 3, 7, 15, 16, 17, 33, 1000):
        x = drawn("bfloat16", 3, n)
        found = check_rows(varying, x)
        if n in (3, 17, 1000):
            for mine, alone in zip(found, pb.jit(lambda x: rows(x))(x), strict=True):
                np.testing.assert_array_equal(mine, np.asarray(alone))


@pytest.mark.parametrize("limits", [{"vector_bytes": 16}, {"vector_bytes": 64}, {"vector_bytes": 32, **IN_BLOCKS}])
def test_rows_on_other_machines(monkeypatch, limits):
    cpu_with(monkeypatch, **limits)
    for n in (5, 70):
        check_rows(pb.jit(lambda x: rows(x)), drawn("bfloat16", 9, n))


def test_functions_of_every_bfloat16():
    """Each of the 65,536 numbers, NaNs and subnormal ones among them: rounded from float32, and NaN where that is."""
    every = np.arange(1 << 16, dtype=np.uint16).view(pb.bfloat16)
    functions = [
        pb.exp, pb.log, pb.sin, pb.tanh, pb.sqrt, pb.abs, pb.negative, pb.square, pb.floor, pb.expm1, pb.log1p, pb.sign,
        pb.reciprocal, pb.nn.relu, pb.nn.sigmoid, lambda x: x * 3 + 1, lambda x: pb.maximum(x, 0.1),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        found = pb.jit(lambda x: [f(x) for f in functions])(every)
        wide = pb.jit(lambda x: [f(x) for f in functions])(every.astype(np.float32))
        for mine, exact in zip(found, wide, strict=True):
            wanted = np.asarray(exact).astype(pb.bfloat16).astype(np.float32)
            mine = np.asarray(mine).astype(np.float32)
            np.testing.assert_array_equal(np.isnan(mine), np.isnan(wanted))
            finite = np.isfinite(wanted)
            np.testing.assert_array_equal(mine[~finite], wanted[~finite])
            np.testing.assert_allclose(mine[finite], wanted[finite], rtol=2.0**-7, atol=1e-38)


#: Products by the shapes of their matrices (rows, depth, columns); some machines take pairs of bfloat16 as they are.
PRODUCTS = [(64, 64, 64), (17, 34, 48), (18, 2054, 32), (16, 2, 32), (40, 33, 64), (40, 34, 50), (9, 66, 32)]


@pytest.mark.parametrize(("dtype", "sizes"), [*(("bfloat16", sizes) for sizes in PRODUCTS), ("float16", (17, 34, 48))])
def test_products_of_all_shapes(monkeypatch, dtype, sizes):
    """Matrices as they lie, transposed, at odd places, in a batch, computed before, and with an infinity and a NaN."""
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    rows, depth, columns = sizes
    a, b = drawn(dtype, rows, depth), drawn(dtype, depth, columns, seed=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    odd = np.zeros(a.size + b.size + 2, a.dtype)
    odd[1 : 1 + a.size], odd[1 + a.size : -1] = a.ravel(), b.ravel()

    def split(x):
        return x[1 : 1 + a.size].reshape(rows, depth) @ x[1 + a.size : -1].reshape(depth, columns)

    found = [
        pb.jit(lambda a, b: a @ b, check=True)(a, b),
        pb.jit(lambda a, b: a.T @ b.T, check=True)(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)),
        pb.jit(split, check=True)(odd),
        pb.jit(lambda a, b: (a * 2) @ (b / 2), check=True)(a, b),
        pb.jit(lambda a, b: (b.T @ a.T).T, check=True)(a, b),
        pb.jit(lambda a, b: pb.vmap(lambda a, b: a @ b, (0, None))(pb.stack([a, a, -a]), b)[1])(a, b),
        pb.jit(lambda a, b: pb.scan(lambda c, x: (c, x @ c), b, pb.stack([a, a]))[1][1])(a, b),
    ]
    for mine in found:
        assert mine.dtype == a.dtype
        assert np.abs(np.asarray(mine, np.float64) - exact).max() <= EPSILON[dtype] / 2 * 1.01 * np.abs(exact).max()
    a[0, 0], b[1, 1] = np.inf, np.nan
    special = np.asarray(pb.jit(lambda a, b: a @ b)(a, b), np.float64)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(special), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(special), np.isnan(wanted))


def test_products_update_weights_in_place_and_serve_several_sizes():
    """A float32 weight that products of bfloat16 are added to; one code for rows and depths that vary."""

    def step(w, x, g):
        return w - 0.5 * (x.T @ g).astype("float32")

    fast = pb.jit(step, donate_argnums=0)
    for n in (64, 128, 4098, 64):
        w, x, g = np.ones((32, 48), np.float32), drawn("bfloat16", n, 32), drawn("bfloat16", n, 48, seed=1)
        product = x.astype(np.float64).T @ g.astype(np.float64)
        found = fast(w.copy(), x, g)
        assert np.abs(found - (1 - 0.5 * product)).max() <= 2.0**-8 * np.abs(product).max()


def test_a_long_product_has_the_same_bits_on_any_number_of_threads():
    a, b = drawn("bfloat16", 96, 1024), drawn("bfloat16", 1024, 1024, seed=1)
    before, found = pb.get_num_threads(), []
    try:
        for number in (1, 2):
            pb.set_num_threads(number)
            found.append(np.asarray(pb.jit(lambda a, b: a @ b)(a, b)))
    finally:
        pb.set_num_threads(before)
    np.testing.assert_array_equal(*found)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(found[0].astype(np.float64) - exact).max() <= 2.0**-8 * 1.01 * np.abs(exact).max()


def check_random_program(seed):
    """Value, pull and push of a random program, in both dtypes: all stages of the compiler against NumPy op by op,
    within the noise of the roundings on the way.
    """
    for dtype in HALVES:
        f, args = program(seed)
        args = tuple(a.astype(getattr(pb, dtype)) for a in args)
        dots = tuple(drawn(dtype, *a.shape, seed=i) for i, a in enumerate(args))
        with np.errstate(all="ignore"):
            pb.jit(roles(f), check=True)(args, dots)


def in_float16(source):
    """A program of whole numbers in float16, which has all of them that it meets: compiled and eager bits agree."""
    inputs = [dataclasses.replace(i, dtype="float16") if i.dtype.startswith("float") else i for i in source.inputs]
    return dataclasses.replace(source, inputs=tuple(inputs))


MODES = ("value", "donated", "jit_grad", "scanned")


@pytest.mark.parametrize("seed", range(2, 9))
def test_random_programs(monkeypatch, seed):
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    check_random_program(seed)


@pytest.mark.parametrize("seed", [1, 5, 73, 77])
def test_programs_of_whole_numbers_are_exact(monkeypatch, seed):
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    source = in_float16(drawn_program(seed, 3, 8))
    assert [fault for mode in MODES if (fault := find_fault(source, mode)) is not None] == []


@pytest.mark.sweep
def test_many_random_programs(monkeypatch):
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    for seed in range(300):
        check_random_program(seed)
        if seed % 4 == 1:
            source = in_float16(drawn_program(seed, 3, 8))
            assert [fault for mode in MODES if (fault := find_fault(source, mode)) is not None] == []


def test_a_maximum_equals_its_element_wherever_both_are_widened(target):
    """Comparisons and selections of widened values meet those that were stored, recomputed or moved in between."""
    x = drawn("bfloat16", 6, 8) * 3

    def f(x):
        y = pb.tanh(x * 1.7)
        wide, top = y.astype("float32"), pb.max(y, axis=1)
        clipped = pb.maximum(wide, -2.0)
        return [
            wide == top.astype("float32").reshape(6, 1),
            wide.T.reshape(8, 6) == pb.max(wide, axis=1),
            clipped == pb.max(wide.T, axis=0)[:, None],
            pb.where(wide > 0, wide, -wide) == abs(y).astype("float32"),
            wide,
            y,
        ]

    *equal, wide, y = (np.asarray(a) for a in pb.jit(f)(x))
    top = y.astype("float32").max(axis=1)
    np.testing.assert_array_equal(wide, y.astype("float32"))
    for found, wanted in zip(equal, (wide == top[:, None], top == wide.T, wide == top[:, None]), strict=False):
        np.testing.assert_array_equal(found, wanted)
    assert equal[3].all()


@pytest.mark.parametrize("dtype", HALVES)
def test_the_last_element_of_a_row_is_stored_alone(dtype):
    """One more than a vector has: what lies behind is left as it is."""

    def f(x):
        y = pb.nn.softmax(x, axis=-1)
        return pb.concat([y, pb.cos(y)])

    x = drawn(dtype, 17)
    found, wanted = (np.asarray(a).astype("float32") for a in (pb.jit(f)(x), f(x)))
    np.testing.assert_allclose(found, wanted, atol=2 * EPSILON[dtype])
