"""jit: the same answers as without it, through every transform, and never by stale code."""

import functools
import gc
import pickle
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, IndexingError

pytest.importorskip("llvmlite")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5))


def loss(w, x):
    h = pb.tanh(x @ w["a"] + w["b"])
    return pb.mean(pb.square(h)) + pb.sum(pb.softmax(h, axis=-1) ** 2)


def weights(dtype=np.float64):
    rng = np.random.default_rng(3)
    return {"a": rng.normal(size=(5, 3)).astype(dtype), "b": rng.normal(size=3).astype(dtype)}


def close(a, b, tolerance=1e-11):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def test_values_gradients_and_trees():
    w = weights()
    close(pb.jit(loss)(w, X), loss(w, X))
    value, found = pb.jit(pb.value_and_grad(loss))(w, X)
    wanted = pb.grad(loss)(w, X)
    close(value, loss(w, X))
    assert list(found) == ["a", "b"]
    close(found["a"], wanted["a"])
    close(found["b"], wanted["b"])


@pytest.mark.parametrize(
    "way", ["grad", "hessian", "jvp of grad", "grad of grad", "vmap", "vmap of grad", "jit of jit"]
)
def test_transforms_of_a_compiled_function(way):
    def f(x):
        return pb.sum(pb.sin(x) * pb.exp(0.1 * x)) + pb.prod(x)

    g = pb.jit(f)
    x = X[0]
    made = {
        "grad": lambda h: pb.grad(h)(x),
        "hessian": lambda h: pb.hessian(h)(x),
        "jvp of grad": lambda h: pb.jvp(pb.grad(h), (x,), (np.cos(x),))[1],
        "grad of grad": lambda h: pb.grad(lambda y: pb.sum(pb.grad(h)(y) ** 2))(x),
        "vmap": lambda h: pb.vmap(h)(X),
        "vmap of grad": lambda h: pb.vmap(pb.grad(h))(X),
        "jit of jit": lambda h: pb.jit(lambda y: pb.jit(h)(y) * 2)(x),
    }[way]
    close(made(g), made(f))


def test_tape_hooks_and_double_backward():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) ** 2))
    x = pb.tensor(X, requires_grad=True)
    y = f(x)
    seen = []
    y.register_hook(lambda bar: seen.append(bar.item()))
    (gradient,) = pb.gradients(y, [x], create_graph=True)
    close(gradient.detach().numpy(), np.sin(2 * X))
    (second,) = pb.gradients(pb.sum(gradient), [x])
    close(second.numpy(), 2 * np.cos(2 * X))
    assert seen == [1.0]


def test_compiled_once_for_each_kind_of_arguments():
    runs = []

    def f(x, n):
        runs.append((x.shape, x.dtype.name, n))
        return x * n

    g = pb.jit(f, static_argnums=1)
    for _ in range(3):
        close(g(X, 2), X * 2)
    close(g(X.astype("f"), 2), X.astype("f") * 2)
    close(g(X[0], 2), X[0] * 2)
    close(g(X, 3), X * 3)
    # f changes a list that it names, so a second trace looks whether its program depends on that; it does not.
    assert len(runs) == 4 + 1
    with pytest.raises(ArgumentError, match="hashable"):
        g(X, [1])


def test_strided_and_read_only_arguments():
    f = pb.jit(lambda x: x + pb.sum(x, axis=0))
    for x in (X[:, ::2], X.T, X[::-1], np.broadcast_to(X[0], (3, 5))):
        close(f(x), x + x.sum(axis=0))
    frozen = X.copy()
    frozen.flags.writeable = False
    close(f(frozen), X + X.sum(axis=0))


def test_donated_arguments_are_updated_in_place():
    w = weights(np.float32)
    kept = {k: v.copy() for k, v in w.items()}
    x = X.astype("f")

    def step(w, x):
        g = pb.grad(loss)(w, x)
        return {k: w[k] - 0.1 * g[k] for k in w}

    new = pb.jit(step, donate_argnums=0)(w, x)
    assert new["a"] is w["a"]
    wanted = step(kept, x)
    for k in wanted:
        close(new[k], wanted[k], 1e-5)


@pytest.mark.parametrize("number", [1j, np.array(0.5j), 2.0])
def test_a_complex_multiple_of_a_product_beside_a_donated_argument(number):
    """Its factor was taken for the real number that a product in place is scaled by."""
    z, a, b = X[:, :4] + 1j, X, X.T
    for left in (a, a * 1j):
        close(
            pb.jit(lambda z, a, b: z - number * (a @ b), donate_argnums=0)(z.copy(), left, b), z - number * (left @ b)
        )


def laid_out(x, how):
    """The same matrices row by row, column by column, with gaps between rows, or between columns."""
    if how == "columns":
        return np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    apart = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., : x.shape[-1]], apart[..., ::2] = x, x
    return {"rows": x, "gaps": wide[..., : x.shape[-1]], "apart": apart[..., ::2]}[how]


@pytest.mark.parametrize("how", ["rows", "columns", "gaps", "apart"])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_products_with_vectors(how, dtype):
    """Rows, columns and numbers, of matrices and stacks of them that are too large to be unrolled."""
    rng = np.random.default_rng(0)
    a, x, y = (laid_out(rng.normal(size=s).astype(dtype), how) for s in ((2, 90, 70), (2, 70, 1), (2, 1, 90)))
    tolerance = 1e-11 if dtype == "d" else 1e-3
    for f in (
        lambda a, x, y: (a @ x, y @ a, y @ (a @ x)),
        lambda a, x, y: (a[0] @ x[0], y[1] @ a[0], a[1] @ x[0, :, 0], y[0, 0] @ a[1]),
        lambda a, x, y: (a[0].T @ y[1].T, x[0].T @ a[1].T, a.mT @ y.mT, a @ x[0], y[0] @ a),
        lambda a, x, y: (y[0] - 0.5 * (x[0].T @ a[0].T), x[0] + 2.0 * (a[0].T @ y[0].T)),
        lambda a, x, y: (a[0] @ a[1, 0, :], a[0][:, 3] @ a[1], a[1, 5, :] @ x[0]),
    ):
        for mine, theirs in zip(pb.jit(f)(a, x, y), f(a, x, y), strict=True):
            close(mine, theirs, tolerance)
    update = pb.jit(lambda z, a, y: z - 0.25 * (a[0].T @ y[0].T), donate_argnums=0)
    close(update(x[0].copy(), a, y), x[0] - 0.25 * (a[0].T @ y[0].T), tolerance)


def test_a_donated_argument_given_twice_is_copied():
    f = pb.jit(lambda x, y: (x + y, x * 1.0), donate_argnums=0)
    x = X.copy()
    total, same = f(x, x)
    close(total, 2 * X)
    close(same, X)


def test_results_that_swap_donated_arguments():
    f = pb.jit(lambda x, y: (y, x), donate_argnums=(0, 1))
    a, b = f(X.copy(), 2 * X)
    close(a, 2 * X)
    close(b, X)


SCALE = 2.0


def test_changed_globals_closures_and_captured_arrays_are_seen():
    global SCALE
    f = pb.jit(lambda x: x * SCALE)
    close(f(X), 2 * X)
    SCALE = 3.0
    close(f(X), 3 * X)
    SCALE = 2.0

    factor = 2.0
    g = pb.jit(lambda x: x * factor)
    close(g(X), 2 * X)
    factor = 5.0
    close(g(X), 5 * X)

    array = np.ones(5)
    h = pb.jit(lambda x: x * array)
    close(h(X), X)
    array[:] = 7.0
    close(h(X), 7 * X)


def test_captured_tensors_get_their_gradients():
    w = pb.tensor(np.ones(5), requires_grad=True)
    f = pb.jit(lambda x: pb.sum(x * w))
    f(X).backward()
    close(w.grad.numpy(), X.sum(axis=0))


def test_methods_keywords_and_functions_without_arguments():
    class Model:
        @pb.jit
        def shifted(self, x, *, shift):
            return x + shift

    close(Model.shifted(None, X, shift=X), 2 * X)
    close(pb.jit(lambda x, *, y: x * y)(X, y=X), X * X)
    assert pb.jit(lambda: 3)() == 3


def test_indices_out_of_range_raise():
    f = pb.jit(lambda x, i: x[i])
    close(f(X, np.array([0, -1])), X[[0, -1]])
    with pytest.raises(IndexingError, match="out of range"):
        f(X, np.array([4]))
    close(f(X, np.array([3])), X[[3]])


def test_an_error_while_compiling_leaves_nothing_behind():
    f = pb.jit(lambda x: x @ x)
    with pytest.raises(pb.errors.ShapeError):
        f(X)
    close(f(X[:, :4]), X[:, :4] @ X[:, :4])


def test_ops_of_the_array_library_run_between_native_pieces():
    def f(x):
        return pb.cumulative_sum(pb.sin(x), axis=1) * 2 + pb.argmax(x, axis=1, keepdims=True)

    close(pb.jit(f)(X), f(X))


def test_complex_and_half_precision_run_too():
    z = X + 1j * X[::-1]
    close(pb.jit(lambda z: pb.abs(z) ** 2)(z), np.abs(z) ** 2)
    half = X.astype(np.float16)
    found = pb.jit(lambda x: x * 2)(half)
    assert found.dtype == np.float16


def test_many_threads_share_a_compiled_function():
    f = pb.jit(lambda x: pb.sum(pb.softmax(x, axis=-1) * x, axis=-1))
    wanted = f(X)
    wrong = []

    def work():
        wrong.extend(1 for _ in range(50) if not np.array_equal(f(X), wanted))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_compiled_code_is_freed():
    f = pb.jit(lambda x: x * 2)
    f(X)
    ended = weakref.ref(f.last.code)
    del f
    gc.collect()
    assert ended() is None


def test_empty_and_zero_dimensional_arguments():
    f = pb.jit(lambda x: (pb.sum(x), x * 2, pb.concat([pb.reshape(x, (-1,)), pb.reshape(x, (-1,))])))
    for x in (np.zeros((0, 3)), np.asarray(2.0), np.zeros(0)):
        for a, b in zip(f(x), (x.sum(), x * 2, np.r_[x.ravel(), x.ravel()]), strict=True):
            close(a, b)
            assert np.shape(a) == np.shape(b)


def test_a_result_may_lie_where_a_number_lay_that_another_result_still_needs():
    def total(x):
        return pb.mean(x) + pb.sum(pb.var(x, axis=0)) + pb.logsumexp(x)

    found, wanted = (way(lambda x: (pb.logsumexp(x), pb.grad(total)(x)))(X) for way in (pb.jit, lambda f: f))
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


@pytest.mark.parametrize(
    "update",
    [
        lambda v, w, a: (v - 0.1 * (a @ w), w - 0.1 * (a @ v)),
        lambda v, w, a: (v - 0.1 * (w.T @ a), w + 0.5 * (a @ v.T)),
        lambda v, w, a: (v - 0.1 * pb.einsum("ij,jk->ki", a, a), w - pb.einsum("i,j->ij", a[0], a[1])),
        lambda v, w, a: (v - 0.1 * (a @ a), v * 1.0),
        lambda v, w, a: (v + w, v - 2.0 * (a @ a)),
    ],
)
def test_updates_that_read_what_others_overwrite(update):
    v, w, a = (np.random.default_rng(i).normal(size=(4, 4)) for i in range(3))
    wanted = update(v, w, a)
    found = pb.jit(update, donate_argnums=(0, 1))(v.copy(), w.copy(), a)
    for x, y in zip(found, wanted, strict=True):
        close(x, y)


def test_a_quick_second_call_sees_other_kinds_of_arguments_and_shared_memory():
    f = pb.jit(lambda z: z * 2 + pb.sum(z))  # complex numbers run on the array library
    for z in (X + 1j * X, X[:2] - 1j * X[:2], X[0]):
        close(f(z), z * 2 + z.sum())
    g = pb.jit(lambda x, y: x + y, donate_argnums=0)
    g(X.copy(), X)
    x = X.copy()
    close(g(x, x), 2 * X)
    whole = np.arange(40.0)
    close(g(whole[:20], whole[10:30]), np.arange(20.0) + np.arange(10.0, 30.0))


def test_changed_settings_in_containers_and_objects_are_seen():
    settings = {"scale": 2.0}
    f = pb.jit(lambda x: x * settings["scale"])
    close(f(X), 2 * X)
    settings["scale"] = 3.0
    close(f(X), 3 * X)

    class Model:
        def __init__(self):
            self.scale, self.calls = 2.0, 0

        def inner(self, x):
            return x * self.scale

        def outer(self, x):
            return self.inner(x) + 1

    model = Model()
    g, h = pb.jit(model.outer), pb.jit(functools.partial(lambda m, x: m.outer(x), model))
    for way in (g, h):
        model.scale = 2.0
        close(way(X), 2 * X + 1)
        model.calls += 1
        kept = way.last
        way(X)
        assert way.last is kept
        model.scale = 4.0
        close(way(X), 4 * X + 1)


def test_results_that_are_arguments_or_constants_of_dtypes_without_code():
    z = X[0] + 1j * X[1]
    for x in (z, z.astype(np.complex64), X[0].astype(np.float16), np.asarray(1j), np.zeros((0, 2), complex)):
        for found, wanted in zip(
            pb.jit(lambda x: (x, x * 2, 1j * np.ones(2)))(x), (x, x * 2, 1j * np.ones(2)), strict=True
        ):
            assert np.asarray(found).dtype == wanted.dtype
            close(found, wanted)
    swapped = pb.jit(lambda x, y: (y, x), donate_argnums=(0, 1))(z.copy(), 2 * z)
    close(swapped[0], 2 * z)
    close(swapped[1], z)


def test_memory_is_shared_only_by_elements_of_one_size():
    def f(x):  # 17 indices of 8 bytes lie where 34 numbers of 4 bytes go
        y = x[pb.argmax(x, axis=0), np.arange(17)]
        return pb.cumulative_sum(pb.concat([y, pb.cos(y)], axis=0))

    x = np.random.default_rng(0).normal(size=(4, 17)).astype("f")
    close(pb.jit(f)(x), f(x), 1e-5)


def test_an_op_of_nothing_is_no_view_of_it():
    x = np.zeros((1, 0, 3))
    assert pb.jit(lambda x: pb.argsort(x, axis=0))(x).dtype == np.int64
    assert pb.jit(lambda x: pb.sort(x, axis=0))(x).shape == x.shape


@pytest.mark.parametrize("wrong", [7, -8])
def test_indices_are_checked_before_anything_is_overwritten(wrong):
    def step(w, b, at, n):
        rows = w[at]
        b = b + 1.0
        return pb.add_at(w, at, -0.1 * rows), b, pb.take(b, n[1:], axis=0)

    w, b = RNG.normal(size=(7, 3)), np.zeros(4)
    compiled = pb.jit(step, donate_argnums=(0, 1))
    at, n = np.array([0, 6, 2]), np.array([100, 3], np.int32)  # the first of n is not used
    for x, y in zip(compiled(w.copy(), b.copy(), at, n), step(w, b, at, n), strict=True):
        close(x, y)
    before = w.copy()
    for bad_at, bad_n in ((np.array([0, wrong, 2]), n), (at, np.array([0, wrong], np.int32))):
        with pytest.raises(IndexingError, match="Nothing was written"):
            compiled(w, b, bad_at, bad_n)
        assert np.array_equal(w, before)
        assert not b.any()


def test_indices_are_not_judged_by_the_arrays_of_an_earlier_call():
    """They were compared with the size of the array before, and read where the index array before had been."""
    f = pb.jit(lambda x, i: pb.set_at(x, i[1::2], 0.0), donate_argnums=0)
    close(f(np.ones(4), np.array([9, 3, 9, 0])), [0, 1, 1, 0])
    close(f(np.ones(7), np.array([9, 3, 9, 6])), [1, 1, 1, 0, 1, 1, 0])
    close(f(np.ones(4), np.full(50, 99)[:1]), np.ones(4))
    close(f(np.ones(7), np.array([9, 3, 9, 6])), [1, 1, 1, 0, 1, 1, 0])
    close(f(np.ones(7), np.array([9, 9, 3, 9, 9, 5])[::2]), [1, 1, 1, 0, 1, 1, 1])


def test_a_computed_index_out_of_range_says_what_may_be_lost():
    f = pb.jit(lambda w, at: w + pb.sum(w[at + 1]), donate_argnums=0)
    with pytest.raises(IndexingError, match="may have been overwritten"):
        f(np.ones(3), np.array([2]))


def test_dtypes_that_are_other_objects_of_the_same_dtype():
    """Native code knows a dtype by its address; unpickled arrays have a dtype of their own."""
    f = pb.jit(lambda x: pb.sin(x) * 2)
    expected = f(np.ones(3, np.float32))
    copied = pickle.loads(pickle.dumps(np.ones(3, np.float32)))
    assert copied.dtype is not np.dtype(np.float32)
    assert np.array_equal(f(copied), expected)
    assert np.array_equal(f(np.ones(3, np.float32).view(np.dtype(np.float32).newbyteorder("="))), expected)


def test_nested_arguments_take_the_quick_way_and_others_are_noticed():
    class Pair(NamedTuple):
        a: Any
        b: Any

    def f(tree, x):
        return {"sum": x + tree["p"].a[0] + tree["p"].b["k"], "q": tree["q"], "none": tree["none"]}

    def tree(scale, kind=Pair, extra=()):
        pair = kind([X[0] * scale], {"k": X[1]})
        return {"q": (X[0], *extra), "p": pair, "none": None}

    compiled = pb.jit(f)
    compiled(tree(1.0), X)
    assert compiled.last.has_fast_path
    for given in (tree(2.0), tree(3.0)):
        close(compiled(given, X)["sum"], f(given, X)["sum"])
    first = compiled.last
    assert len(compiled(tree(1.0, extra=(X[1],)), X)["q"]) == 2
    assert compiled.last is not first
    changed = tree(1.0)
    changed["none"] = X[0]
    close(compiled(changed, X)["none"], X[0])
    with pytest.raises(KeyError):
        compiled({"q": (X[0],), "other": 1.0, "none": None}, X)
    close(compiled(tree(4.0), X)["sum"], f(tree(4.0), X)["sum"])


def test_many_arguments_that_overlap_are_noticed():
    """Of more pairs than are compared one by one, too: what is written over lies in nobody else's memory."""
    double = pb.jit(lambda xs: [x * 2.0 for x in xs], donate_argnums=0)
    apart = [np.full(4, float(i)) for i in range(30)]
    found = double(apart)
    assert all(a is b for a, b in zip(found, apart, strict=True))
    shared = np.arange(8.0)
    for first, second in ((0, 29), (29, 0), (13, 14)):
        xs = [np.full(4, float(i)) for i in range(30)]
        xs[first], xs[second] = shared[:4], shared[2:6]
        expected = [2.0 * x for x in xs]
        assert double.last.code.run(xs) is None
        for mine, theirs in zip(double(xs), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
