"""Patterns of named axes: rearranging, reducing and repeating, against plain NumPy."""

import gc
import importlib
import sys
import types

import numpy as np
import pytest

import pullback as pb
from pullback.ops.shape.einops import rearrange, reduce, repeat

X = np.random.default_rng(0).normal(size=(2, 6, 3))

REARRANGED = {
    "a b c -> c a b": (X.transpose(2, 0, 1), {}),
    "a b c -> (a b) c": (X.reshape(12, 3), {}),
    "a (b d) c -> a d b c": (X.reshape(2, 3, 2, 3).transpose(0, 2, 1, 3), {"d": 2}),
    "a b c -> a 1 b c": (X[:, None], {}),
    "... c -> c ...": (X.transpose(2, 0, 1), {}),
    "a ... -> (...) a": (X.reshape(2, 18).T, {}),
    "a b c -> (c b a)": (X.transpose(2, 1, 0).reshape(-1), {}),
    "a (b 1) c -> a b c": (X, {}),
    "...->...": (X, {}),
}


@pytest.mark.parametrize("pattern", REARRANGED)
def test_rearrange(pattern):
    expected, sizes = REARRANGED[pattern]
    np.testing.assert_array_equal(rearrange(X, pattern, **sizes), expected)
    assert bool(pb.gradcheck(lambda x: rearrange(x, pattern, **sizes) ** 2, X))


@pytest.mark.parametrize("fold", ["sum", "mean", "max", "min", "prod", "logsumexp"])
def test_reduce(fold):
    name = {"logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis))}.get(fold) or getattr(np, fold)
    np.testing.assert_allclose(reduce(X, "a (b two) c -> c b", fold, two=2), name(X.reshape(2, 3, 2, 3), axis=(0, 2)).T)
    assert bool(pb.gradgradcheck(lambda x: reduce(x, "a (b two) c -> c b", fold, two=2), X))


def test_reduce_with_nothing_to_fold_and_with_a_function():
    np.testing.assert_array_equal(reduce(X, "a b c -> b a c", "sum"), X.transpose(1, 0, 2))
    np.testing.assert_allclose(reduce(X, "a b c -> a 1 c", pb.std), X.std(axis=1, keepdims=True))


def test_repeat():
    np.testing.assert_array_equal(repeat(X, "a b c -> a (b twice) c", twice=2), np.repeat(X, 2, axis=1))
    np.testing.assert_array_equal(repeat(X, "a b c -> a (2 b) c"), np.tile(X, (1, 2, 1)))
    np.testing.assert_array_equal(repeat(X[0, 0], "c -> new c", new=4), np.tile(X[0, 0], (4, 1)))
    assert pb.grad(lambda x: pb.sum(repeat(x, "a -> a 3")))(np.ones(2)).tolist() == [3.0, 3.0]


def test_a_list_of_arrays_is_stacked_and_batches_work():
    np.testing.assert_array_equal(rearrange([X, X], "n a b c -> a n b c").shape, (2, 2, 6, 3))
    np.testing.assert_array_equal(pb.vmap(lambda x: rearrange(x, "a b -> b a"))(X), X.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rearrange(X, "a b c"), "one '->'"),
        (lambda: rearrange(X, "a b -> b a"), "does not fit"),
        (lambda: rearrange(X, "a b c -> a b"), "one side alone"),
        (lambda: rearrange(X, "a (b d) c -> a b d c"), "cannot all be inferred"),
        (lambda: rearrange(X, "a (b d) c -> a b d c", d=4), "does not fit"),
        (lambda: rearrange(X, "a a c -> a c"), "twice"),
        (lambda: rearrange(X, "a (b c -> a b c"), "not closed"),
        (lambda: rearrange(X, "a b c -> a ! c"), "where an axis"),
        (lambda: rearrange(X, "a b c -> a b c", q=1), "not named"),
        (lambda: rearrange(X, "a b c -> a b ..."), "right side alone"),
        (lambda: reduce(X, "a b c -> a d", "sum"), "right side alone"),
        (lambda: reduce(X, "a b c -> a", "middle"), "reduction must be"),
        (lambda: repeat(X, "a b c -> a b c d"), "needs the size of d"),
        (lambda: repeat(X, "a b c -> a b"), "drops c"),
    ],
)
def test_refusals_say_what_is_wrong(call, words):
    with pytest.raises(pb.errors.PullbackError, match=words):
        call()


class StubBackend:
    """What einops asks every backend for, as its base class has it."""

    def shape(self, x):
        return x.shape

    def reshape(self, x, shape):
        return x.reshape(shape)

    def reduce(self, x, operation, axes):
        return getattr(x, operation)(axis=axes)


@pytest.fixture
def backend(monkeypatch):
    """Our backend for einops, over its base class or a stub of it, found as einops finds it."""
    try:
        base = importlib.import_module("einops._backends").AbstractBackend
    except ModuleNotFoundError:
        base = StubBackend
        monkeypatch.setitem(sys.modules, "einops._backends", types.SimpleNamespace(AbstractBackend=base))
        monkeypatch.setitem(sys.modules, "einops", types.SimpleNamespace())
        pb.interop.einops._make_backend.cache_clear()
    pb.interop.einops.register()
    pb.interop.einops.register()
    gc.collect()
    (found,) = [c for c in base.__subclasses__() if c.framework_name == "pullback"]
    yield found()
    if base is StubBackend:
        pb.interop.einops._make_backend.cache_clear()


def test_the_backend_for_einops_computes_and_differentiates(backend):
    x = pb.tensor(X, requires_grad=True)
    assert backend.is_appropriate_type(x)
    assert not backend.is_appropriate_type(X)
    assert backend.is_float_type(x)
    assert not backend.is_float_type(pb.arange(3))
    np.testing.assert_array_equal(backend.to_numpy(backend.from_numpy(X)), X)
    np.testing.assert_array_equal(backend.arange(2, 5), np.arange(2, 5))
    np.testing.assert_array_equal(backend.stack_on_zeroth_dimension([x, x]).detach(), np.stack([X, X]))
    np.testing.assert_array_equal(backend.add_axis(x, 1).detach(), X[:, None])
    np.testing.assert_array_equal(backend.tile(x, (1, 2, 1)).detach(), np.tile(X, (1, 2, 1)))
    np.testing.assert_allclose(backend.einsum("abc,abc->a", x, x).detach(), np.einsum("abc,abc->a", X, X))

    def f(x):  # as einops rearranges and reduces: "a (b two) c -> c b"
        return backend.reduce(backend.transpose(backend.reshape(x, (2, 3, 2, 3)), (3, 1, 0, 2)), "mean", (2, 3)) ** 2

    expected = X.reshape(2, 3, 2, 3).mean(axis=(0, 2)).T ** 2
    np.testing.assert_allclose(f(x).detach(), expected)
    np.testing.assert_allclose(pb.jit(f)(X), expected)
    assert bool(pb.gradcheck(f, X))


def test_the_real_einops_takes_tensors_after_registration():
    einops = pytest.importorskip("einops")
    pb.interop.einops.register()
    x = pb.tensor(X, requires_grad=True)
    for f, expected in [
        (lambda x: einops.rearrange(x, "a (b d) c -> a d b c", d=2), X.reshape(2, 3, 2, 3).transpose(0, 2, 1, 3)),
        (lambda x: einops.reduce(x, "a b c -> c", "mean"), X.mean(axis=(0, 1))),
        (lambda x: einops.repeat(x, "a b c -> a b c k", k=2), np.repeat(X[..., None], 2, -1)),
        (lambda x: einops.einsum(x, x, "a b c, a b c -> a"), np.einsum("abc,abc->a", X, X)),
    ]:
        np.testing.assert_allclose(f(x).detach(), expected)
        np.testing.assert_allclose(pb.jit(f)(x.detach()).numpy(), expected)
        assert bool(pb.gradcheck(lambda x, f=f: f(x) ** 2, X))


def test_registration_without_einops_says_what_to_install(monkeypatch):
    pb.interop.einops._make_backend.cache_clear()
    monkeypatch.setitem(sys.modules, "einops._backends", None)
    monkeypatch.setitem(sys.modules, "einops", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install einops.*pb\.einops"):
        pb.interop.einops.register()
