"""Seeds in, random functions and arguments out: what compiled code is compared with eager calls on."""

import numpy as np

import pullback as pb

__all__ = ["made_special", "program", "scalar_of", "updated"]

UNARY = [
    pb.sin, pb.tanh, pb.exp, pb.abs, pb.square, pb.sigmoid, pb.relu, pb.negative, pb.expm1, pb.atan, pb.erf, pb.sinh,
    lambda x: pb.sqrt(pb.abs(x) + 0.5), lambda x: x * 0.5, lambda x: 1.0 - x, lambda x: pb.where(x > 0, x, 0.1 * x),
    lambda x: pb.log1p(pb.abs(x)), lambda x: pb.clip(x, -1.0, 2.0), lambda x: x**3 * 0.1,
    lambda x: pb.reciprocal(x * x + 1),
    lambda x: pb.astype(x > 0.3, x.dtype) * x, lambda x: pb.stop_gradient(x) * x,
]  # fmt: skip
BINARY = [
    pb.add, pb.subtract, pb.multiply, pb.maximum, pb.minimum, pb.logaddexp, pb.hypot, pb.atan2,
    lambda x, y: x / (1.5 + pb.abs(y)), lambda x, y: pb.where(y > x, x, y * 0.5),
    lambda x, y: (pb.abs(x) + 0.5) ** pb.tanh(y),
]  # fmt: skip
REDUCE = [pb.sum, pb.mean, pb.max, pb.min, pb.logsumexp, pb.prod, pb.var]
SHAPES = [(), (3,), (5, 3), (3, 5), (1, 3), (2, 5, 3), (17,), (4, 17), (1,), (33,), (2, 1, 3), (1, 1)]
EMPTY = [(0,), (0, 3), (2, 0), (1, 0, 3)]
LARGEST = 4000


def program(seed):
    """A random function of arrays with two results, and its arguments: some are empty or strided, some not finite."""

    def f(*args):
        rng = np.random.default_rng([seed, 1])
        values = list(args)
        for _ in range(int(rng.integers(3, 14))):
            new = _grown(rng, values)
            if pb.spec_of(new).size <= LARGEST:
                values.append(new)
        return values[-1], values[-2] * 1.0

    rng = np.random.default_rng([seed, 0])
    dtype = np.float32 if seed % 3 == 0 else np.float64
    shapes = SHAPES + EMPTY if seed % 7 == 3 else SHAPES
    args = [rng.normal(size=shapes[i]).astype(dtype) for i in rng.choice(len(shapes), size=rng.integers(1, 4))]
    if seed % 6 == 5:
        args = [made_special(rng, a) for a in args]
    return f, [_laid_out(rng, a) for a in args]


def made_special(rng, a):
    """Some elements become NaN, infinite or a zero with a sign."""
    a, flat = a.copy(), a.size
    for number in (np.nan, np.inf, -np.inf, -0.0):
        if flat and rng.random() < 0.5:
            a.reshape(-1)[rng.integers(flat)] = number
    return a


def _laid_out(rng, a):
    """The same numbers in memory of another order: strided, reversed, transposed, repeated, or as they are."""
    kind = rng.integers(7) if a.ndim else 0
    if kind == 1:
        return np.repeat(a, 2, axis=-1)[..., ::2]
    if kind == 2:
        return a[::-1].copy()[::-1]
    if kind == 3:
        return np.asfortranarray(a)
    if kind == 4:
        return np.broadcast_to(a[:1], a.shape)
    if kind == 5:
        a = a.copy()
        a.flags.writeable = False
    return a


def scalar_of(f):
    """One number of both results, to be differentiated."""

    def scalar(*args):
        a, b = f(*args)
        return pb.sum(pb.sin(a)) + pb.sum(pb.cos(b))

    return scalar


def _grown(rng, values):
    """One more value, of those there are."""
    x = values[rng.integers(len(values))]
    kind = rng.integers(15)
    if kind < 3:
        return UNARY[rng.integers(len(UNARY))](x)
    if kind < 6:
        fitting = [y for y in values if _fits(x.shape, y.shape)]
        return BINARY[rng.integers(len(BINARY))](x, fitting[rng.integers(len(fitting))])
    if not x.ndim:
        return pb.cos(x)
    if kind == 6 and pb.spec_of(x).size:
        axes = tuple(int(a) for a in rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)])
        reduce = REDUCE[rng.integers(len(REDUCE))]
        return reduce(x, axis=axes[0] if reduce is pb.prod else axes, keepdims=bool(rng.integers(2)))
    if kind == 7:
        return pb.permute_dims(x, tuple(int(a) for a in rng.permutation(x.ndim)))
    if kind == 8:
        return _changed(rng, x)
    if kind in (9, 10) and x.ndim >= 2:
        return _product(rng, x, values)
    if kind == 11:
        return _looked_up(rng, x)
    if kind == 12:
        return pb.concat([x, pb.cos(x)], axis=int(rng.integers(x.ndim)))
    if kind == 13:
        return _spread(rng, x)
    return pb.softmax(x, axis=-1) if x.shape[-1] else pb.cos(x)


def _fits(a, b):
    return all(n == m or 1 in (n, m) for n, m in zip(a[::-1], b[::-1], strict=False))


def _product(rng, x, values):
    """A matrix product with one of the values, or of x with itself."""
    partners = [y for y in values if y.ndim == 2 and y.shape[0] == x.shape[-1]]
    if partners and rng.integers(2):
        return x @ partners[rng.integers(len(partners))] * 0.3
    if rng.integers(2):
        return pb.einsum("...ij,...kj->...ik", x, x) * 0.2
    return pb.tensordot(x, x, axes=([0], [0])) * 0.2 if x.ndim == 2 else pb.einsum("...ij,...ij->...j", x, pb.sin(x))


def _changed(rng, x):
    """A view, a pad, a flip, a reshape, a triangle, a shift or a write."""
    kind, axis = rng.integers(9), int(rng.integers(x.ndim))
    size = x.shape[axis]
    whole = [slice(None)] * x.ndim
    if kind == 0 and size:
        whole[axis] = slice(int(rng.integers(size)), None, int(rng.integers(1, 3)))
        return x[tuple(whole)]
    if kind == 1:
        return pb.flip(x, axis=axis)
    if kind == 2:
        return pb.reshape(x, (-1,))
    if kind == 3:
        return pb.pad(x, [(int(rng.integers(2)), int(rng.integers(2))) for _ in range(x.ndim)])
    if kind == 4 and x.ndim >= 2:
        return pb.tril(x) if rng.integers(2) else pb.triu(x, k=1)
    if kind == 5:
        return pb.roll(x, int(rng.integers(-3, 4)), axis=axis)
    if kind == 6 and size > 1:
        first, second = pb.split(x, [int(rng.integers(1, size))], axis=axis)
        return pb.concat([second, first], axis=axis)
    if not size:
        return pb.expand_dims(x, axis)
    whole[axis] = int(rng.integers(size)) if kind < 8 else slice(None, None, 2)
    return pb.set_at(x, tuple(whole), 0.25 if rng.integers(2) else pb.sin(x)[tuple(whole)])


def _looked_up(rng, x):
    """Elements at places that an array names, or additions and writes there."""
    axis = int(rng.integers(x.ndim))
    if not x.shape[axis]:
        return x * 2.0
    places = np.asarray(rng.integers(-x.shape[axis], x.shape[axis], size=rng.integers(1, 5)))
    index = (*[slice(None)] * axis, places)
    kind = rng.integers(5)
    if kind == 0:
        return pb.add_at(x, index, 0.5)
    if kind == 1:
        return pb.set_at(x, index, pb.cos(x)[index])
    if kind == 2:
        return pb.take_along_axis(x, pb.argmax(x, axis=axis, keepdims=True), axis=axis)
    if kind == 3:
        return pb.sort(x, axis=axis)
    return pb.take(x, places, axis=axis)


def _spread(rng, x):
    """Repeated, stacked, or with axes of size one put in or taken out."""
    kind = rng.integers(6)
    if kind == 0:
        return pb.broadcast_to(x, (2, *x.shape))
    if kind == 1:
        return pb.stack([x, x * x], axis=int(rng.integers(x.ndim + 1)))
    if kind == 2:
        return pb.squeeze(x) if 1 in x.shape else pb.expand_dims(x, int(rng.integers(x.ndim + 1)))
    if kind == 3:
        return pb.repeat(x, 2, axis=int(rng.integers(x.ndim)))
    if kind == 4:
        return pb.cumulative_sum(x, axis=int(rng.integers(x.ndim)))
    return pb.tile(x, (2,) + (1,) * (x.ndim - 1))


def updated(seed):
    """A random function of four square matrices, of which three are to be overwritten by its results."""

    def f(*args):
        rng = np.random.default_rng(seed)
        values = list(args)
        for _ in range(int(rng.integers(3, 9))):
            x, y = values[rng.integers(len(values))], values[rng.integers(len(values))]
            kind = rng.integers(6)
            if kind < 3:
                values.append((x + y, x * 0.5 - y, x @ y * 0.3)[kind])
            else:
                values.append((pb.tanh(x), x - 0.1 * (y @ x), x.T + pb.sum(y, axis=0))[kind - 3])
        return tuple(values[-3:])

    return f
