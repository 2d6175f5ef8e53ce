"""Masked arrays against NumPy's `np.ma`, their derivatives against complex steps of what is left."""

import operator

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, PullbackError, ShapeError, UnsupportedFunction

RNG = np.random.default_rng(0)
DATA, OTHER = RNG.uniform(0.2, 0.9, size=(2, 4, 5))
MASK, OTHER_MASK = RNG.random((2, 4, 5)) < 0.4
MASK[2] = True
MASK[:, 1] = [False, True, True, True]
GARBAGE = np.where(MASK, np.resize([np.nan, np.inf, 0.0, -1.0], MASK.shape), DATA)
X, Y = pb.masked.array(GARBAGE, MASK), pb.masked.array(OTHER, OTHER_MASK)
NX, NY = np.ma.array(GARBAGE, mask=MASK), np.ma.array(OTHER, mask=OTHER_MASK)


def same(found, wanted, **tolerance):
    """Masks equal, and values where there are any."""
    wanted = np.ma.array(wanted)
    found = found.numpy() if isinstance(found, pb.masked.MaskedArray) else np.ma.array(found)
    assert found.shape == wanted.shape
    assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(wanted))
    return np.allclose(found.filled(0).astype(float), wanted.filled(0).astype(float), rtol=1e-13, **tolerance)


ELEMENTWISE = ["exp", "sqrt", "log", "sin", "tanh", "arccos", "arctanh", "reciprocal", "square", "negative", "isfinite"]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_one_argument(name):
    with np.errstate(all="ignore"):  # NumPy computes what is masked
        wanted = getattr(np.ma, name, getattr(np, name))(NX)
    assert same(getattr(np, name)(X), wanted)


OPERATORS = ["add", "sub", "mul", "truediv", "pow", "mod", "floordiv", "lt", "le", "gt", "ge", "eq", "ne"]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    act = getattr(operator, name)
    with np.errstate(all="ignore"):
        cases = [(X, Y, NX, NY), (X, OTHER, NX, OTHER), (OTHER, X, OTHER, NX), (X, 2, NX, 2), (2, X, 2, NX)]
        wanted = [act(x, y) for _, _, x, y in [*cases, (X[0], Y, NX[0], NY)]]
    assert all(same(act(x, y), z) for (x, y, _, _), z in zip([*cases, (X[0], Y, 0, 0)], wanted, strict=True))
    assert same(act(pb.tensor(OTHER), X), wanted[2])
    assert same(act(X, NY), wanted[0])


def test_logic_and_signs():
    small, large = X > 0.5, Y < 0.5
    for act in (operator.and_, operator.or_, operator.xor):
        assert same(act(small, large), act(NX > 0.5, NY < 0.5))
    assert same(~small, ~(NX > 0.5))
    assert same(abs(-X), abs(-NX))


REDUCTIONS = ["sum", "prod", "mean", "var", "std", "min", "max", "cumsum", "cumprod"]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis):
    assert same(getattr(X, name)(axis=axis), getattr(NX, name)(axis=axis))
    assert same(getattr(np, name)(X, axis=axis), getattr(NX, name)(axis=axis))
    nothing = np.zeros((4, 5), bool)
    assert same(
        getattr(pb.masked.array(OTHER), name)(axis=axis), getattr(np.ma.array(OTHER, mask=nothing), name)(axis=axis)
    )


def test_reductions_over_several_axes_and_of_other_dtypes():
    assert same(X.mean(axis=(0, 1)), NX.mean(axis=(0, 1)))
    assert same(X.sum(axis=1, keepdims=True), NX.sum(axis=1, keepdims=True))
    whole = np.arange(20).reshape(4, 5) - 7
    for name in REDUCTIONS:
        assert same(
            getattr(pb.masked.array(whole, MASK), name)(axis=0), getattr(np.ma.array(whole, mask=MASK), name)(axis=0)
        )
    for name in ("all", "any", "sum"):
        assert same(getattr(X > 0.5, name)(axis=0), getattr(NX > 0.5, name)(axis=0))
    for ddof in (0, 1, 2):
        assert same(X.var(axis=0, ddof=ddof), NX.var(axis=0, ddof=ddof))
        assert same(X.std(axis=0, ddof=ddof), NX.std(axis=0, ddof=ddof))
    turned = GARBAGE + 1j * OTHER
    assert same(abs(pb.masked.array(turned, MASK).var(axis=0)), np.ma.array(turned, mask=MASK).var(axis=0))
    assert np.array_equal(X.count(axis=0), NX.count(axis=0))
    for name in ("argmin", "argmax"):
        assert np.array_equal(getattr(X, name)(axis=0), getattr(NX, name)(axis=0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    numbers = RNG.uniform(90, 110, size=5000).astype(getattr(pb, dtype))
    mask = RNG.random(5000) < 0.3
    x, wanted = pb.masked.array(numbers, mask), np.ma.array(numbers.astype(float), mask=mask)
    for name in ("mean", "var", "std"):
        found = getattr(x, name)().filled(0.0)
        assert found.dtype == numbers.dtype
        assert np.isclose(float(found), getattr(wanted, name)(), rtol=1e-2 if dtype == "bfloat16" else 1e-3), name


def test_nothing_left_and_nothing_there():
    gone = pb.masked.array(np.full(3, np.nan), True)
    for name in REDUCTIONS[:7]:
        out = getattr(gone, name)()
        assert out.numpy().mask.all()
        assert out.filled(7.0) == 7.0
    assert pb.masked.array(np.zeros(0)).sum().numpy() is not None
    assert pb.masked.array(np.zeros(0)).mean().filled(3.0) == 3.0


def test_shapes():
    assert same(X[1:, ::2], NX[1:, ::2])
    assert same(X[0, 3], NX[0, 3])
    assert same(X[np.array([0, 2])], NX[np.array([0, 2])])
    assert same(X[X > 0.5], NX[(NX > 0.5).filled(False)])
    assert same(X.T, NX.T)
    assert same(X.reshape(2, 10), NX.reshape(2, 10))
    assert same(np.ravel(X), NX.ravel())
    assert same(pb.masked.concat([X, Y, OTHER], axis=1), np.ma.concatenate([NX, NY, OTHER], axis=1))
    assert same(pb.masked.stack([X, Y]), np.ma.stack([NX, NY]))
    assert same(pb.masked.where(Y > 0.5, X, 0.0), np.ma.where(NY > 0.5, NX, 0.0))
    assert same(pb.masked.masked_where(OTHER > 0.5, X), np.ma.masked_where(OTHER > 0.5, NX))
    assert same(pb.masked.masked_invalid(GARBAGE), np.ma.masked_invalid(GARBAGE))
    assert same(X.astype(np.float32), NX.astype(np.float32))
    assert [len(X), *map(len, X)] == [4, 5, 5, 5, 5]


def test_products():
    assert same(X @ Y.T, np.ma.dot(NX, NY.T))
    assert same(OTHER.T @ X, np.ma.dot(OTHER.T, NX))
    assert same(X @ OTHER[0], np.ma.dot(NX, OTHER[0]))


def loss(data, other, xp=pb):
    """Through functions that garbage would break, a division by what is masked, and folds that lack entries."""
    x, y = pb.masked.array(data, MASK), pb.masked.array(other, OTHER_MASK)
    z = np.log(x) * y / x + np.sqrt(y) / x[:, :1]
    return (z.std(axis=0) + z.mean(axis=0) * x.max(axis=0) + (x @ y.T).sum(axis=0)[0]).sum().filled(0.0)


def plain(data, other):
    """The same for complex numbers, over what is left."""
    left, both = ~MASK, ~MASK & ~OTHER_MASK & ~MASK[:, :1]
    x = np.where(MASK, 1.0, data)
    z = np.log(x) * other / x + np.sqrt(other) / x[:, :1]
    total = 0
    product = (np.where(MASK, 0, data) @ np.where(OTHER_MASK, 0, other).T)[:, 0].sum()
    for j in range(5):
        column, mine = z[both[:, j], j], x[left[:, j], j]
        if len(column) and len(mine):
            spread = np.sqrt(np.mean((column - column.mean()) ** 2)) if len(column) > 1 else 0
            total += spread + column.mean() * mine[np.argmax(mine.real)] + product
    return total


def slope(f, args, moved, step=1e-30):
    return f(*(a + 1j * step * m for a, m in zip(args, moved, strict=True))).imag / step


MOVED = RNG.normal(size=(2, 4, 5))


def test_derivatives_of_every_kind():
    with np.errstate(all="raise"):
        value, (g, h) = pb.value_and_grad(loss, argnums=(0, 1))(GARBAGE, OTHER)
    assert np.isclose(value, plain(DATA, OTHER))
    assert not g[MASK].any()
    assert np.isfinite(g).all()
    wanted = slope(plain, (DATA, OTHER), MOVED)
    assert np.isclose(np.sum(g * MOVED[0]) + np.sum(h * MOVED[1]), wanted)
    assert np.isclose(pb.jvp(loss, (GARBAGE, OTHER), tuple(MOVED))[1], wanted)
    for one, two in zip(pb.jit(pb.grad(loss, argnums=(0, 1)))(GARBAGE, OTHER), (g, h), strict=True):
        assert np.allclose(one, two, atol=1e-12)
    garbage, other = (pb.tensor(x, requires_grad=True) for x in (GARBAGE, OTHER))
    loss(garbage, other).backward()
    assert np.allclose(garbage.grad, g)
    assert np.allclose(other.grad, h)


@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives(compiled):
    along = lambda x, y: sum(pb.sum(a * b) for a, b in zip(pb.grad(loss, argnums=(0, 1))(x, y), MOVED, strict=True))  # noqa: E731
    take = pb.grad(along, argnums=(0, 1))
    found = (pb.jit(take) if compiled else take)(GARBAGE, OTHER)
    step = 1e-4
    first = [
        slope(plain, (DATA + s * MOVED[0], OTHER + s * MOVED[1]), MOVED) for s in (-step, step, -2 * step, 2 * step)
    ]
    wanted = (8 * (first[1] - first[0]) - (first[3] - first[2])) / (12 * step)
    assert not found[0][MASK].any()
    assert np.isclose(sum(np.sum(a * b) for a, b in zip(found, MOVED, strict=True)), wanted, rtol=1e-7)


def test_they_are_trees():
    f = lambda x: np.log(x).sum(axis=0)  # noqa: E731
    wanted = np.ma.log(NX).sum(axis=0)
    assert same(pb.jit(f)(X), wanted)
    assert same(pb.vmap(lambda x: np.log(x).sum())(X), np.ma.log(NX).sum(axis=1))
    assert same(pb.jit(f)(pb.masked.array(DATA, OTHER_MASK)), np.ma.log(np.ma.array(DATA, mask=OTHER_MASK)).sum(axis=0))
    assert same(pb.checkpoint(f)(X), wanted)
    gradients = pb.vmap(pb.grad(lambda d, m: pb.masked.array(d, m).std().filled(0.0)))(GARBAGE, MASK)
    one = [
        pb.grad(lambda d, m=m: pb.masked.array(d, m).std().filled(0.0))(d) for d, m in zip(GARBAGE, MASK, strict=True)
    ]
    assert np.allclose(gradients, one)


def test_masks_that_are_traced():
    f = lambda d, limit: pb.masked.masked_where(d > limit, d).mean().filled(0.0)  # noqa: E731
    for take in (f, pb.jit(f)):
        assert np.isclose(take(DATA, np.array(0.5)), np.ma.masked_where(DATA > 0.5, DATA).mean())
    few = pb.jit(pb.grad(f))(DATA, np.array(0.5))
    assert np.allclose(few, (DATA <= 0.5) / np.sum(DATA <= 0.5))


def test_what_is_refused():
    with pytest.raises(DtypeError, match=r"Use pb.masked.array\(x\)"):
        pb.sin(NX)
    with pytest.raises(ConversionError, match=r"pb.masked.apply\(f, x\)"):
        pb.sin(X)
    with pytest.raises(ConversionError, match="would lose its mask"):
        np.asarray(X)
    with pytest.raises(ConversionError, match="would lose its mask"):
        NX + X
    with pytest.raises(ConversionError, match="not written to"):
        X[0] = 1.0
    with pytest.raises(ConversionError, match="is no number"):
        float(X.sum())
    with pytest.raises(ConversionError, match="no truth value"):
        bool(X > 1)
    with pytest.raises(UnsupportedFunction, match=r"pb.masked.apply"):
        np.add.reduce(X)
    with pytest.raises(UnsupportedFunction, match=r"np.median has no rule for masked arrays"):
        np.median(X)
    with pytest.raises(ShapeError, match="must work elementwise"):
        pb.masked.apply(pb.sum, X)
    with pytest.raises(ShapeError, match="does not broadcast"):
        pb.masked.array(DATA, np.zeros(3, bool))
    with pytest.raises(DtypeError, match="a mask holds booleans"):
        pb.masked.array(DATA, np.zeros((4, 5)))
    with pytest.raises(DtypeError, match="is no index"):
        X[pb.masked.array(np.array([0, 1]), [True, False])]
    with pytest.raises(ArgumentError, match="without axes"):
        len(X.sum())
    with pytest.raises(PullbackError):
        pb.tensor(1.0, requires_grad=True) + np.ma.masked


def test_the_class_takes_what_the_function_takes():
    x = pb.masked.MaskedArray(np.ones((2, 3)), mask=[True, False, False])
    assert x.mask.shape == (2, 3)
    assert x.mean(axis=0).numpy().tolist() == [None, 1.0, 1.0]
    assert pb.masked.MaskedArray(np.ma.array([1.0, 2.0], mask=[0, 1])).sum().filled(0.0) == 1.0


def test_names_and_orders_of_numpy_and_pytorch_are_explained():
    with pytest.raises(
        AttributeError, match=r"pb.masked.array\(data, ~mask\)"
    ):  # PyTorch's mask is true where it counts
        _ = pb.masked.masked_tensor
    with pytest.raises(AttributeError, match=r"M.data\[~M.mask\]"):
        X.compressed()
    with pytest.raises(ArgumentError, match=r"out.filled\(0.0\)"):
        pb.grad(lambda data: X.with_data(data).sum())(X.data)
    with pytest.raises(DtypeError, match="the condition comes first"):
        pb.masked.masked_where(DATA, DATA > 0)


def test_one_number_that_is_masked_prints_as_such():
    assert repr(pb.masked.array(2.0, True)) == repr(pb.masked.array(np.ones(3), True).sum()) == "masked(--)"
    assert repr(pb.masked.array(2.0, False)) == "masked(2.0)"


def test_spellings_of_numpy():
    assert repr(np.sum(a=X, axis=0)) == repr(+X.sum(axis=0))
