"""Random programs: compiled equals eager, in value, pull and push, whatever is fused with what."""

import os

import numpy as np
import pytest

import pullback as pb
from pullback.compile.jit import jit

pytest.importorskip("llvmlite")
#: How many programs a run tries; a long run sets more.
COUNT = int(os.environ.get("PULLBACK_RANDOM_GRAPHS", "160"))
CHUNK = 20

UNARY = [
    pb.sin,
    pb.tanh,
    pb.exp,
    pb.abs,
    pb.square,
    pb.sigmoid,
    pb.relu,
    pb.negative,
    lambda x: pb.sqrt(pb.abs(x) + 0.5),
]
UNARY += [lambda x: x * 0.5, lambda x: 1.0 - x, lambda x: pb.where(x > 0, x, 0.1 * x), lambda x: pb.log1p(pb.abs(x))]
BINARY = [pb.add, pb.subtract, pb.multiply, pb.maximum, pb.minimum, lambda x, y: x / (1.5 + pb.abs(y))]
REDUCE = [pb.sum, pb.mean, pb.max, pb.min, pb.logsumexp]


def grown(rng, values):
    """One more value, of those there are."""
    x = values[rng.integers(len(values))]
    kind = rng.integers(12)
    if kind < 3:
        return UNARY[rng.integers(len(UNARY))](x)
    if kind < 6:
        fitting = [y for y in values if fits(x.shape, y.shape)]
        return BINARY[rng.integers(len(BINARY))](x, fitting[rng.integers(len(fitting))])
    if kind == 6 and x.ndim:
        axes = tuple(int(a) for a in rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)])
        return REDUCE[rng.integers(len(REDUCE))](x, axis=axes, keepdims=bool(rng.integers(2)))
    if kind == 7 and x.ndim >= 2:
        return pb.permute_dims(x, tuple(int(a) for a in rng.permutation(x.ndim)))
    if kind == 8 and x.ndim:
        return changed(rng, x)
    if kind == 9 and x.ndim >= 2:
        partners = [y for y in values if y.ndim == 2 and y.shape[0] == x.shape[-1]]
        if partners:
            return x @ partners[rng.integers(len(partners))] * 0.3
    if kind == 10 and x.ndim:
        axis = int(rng.integers(x.ndim))
        return pb.take(x, np.asarray(rng.integers(0, x.shape[axis], size=rng.integers(1, 5))), axis=axis)
    if kind == 11 and x.ndim:
        return pb.concat([x, pb.cos(x)], axis=int(rng.integers(x.ndim)))
    return pb.softmax(x, axis=-1) if x.ndim else pb.cos(x)


def fits(a, b):
    return all(n == m or 1 in (n, m) for n, m in zip(a[::-1], b[::-1], strict=False))


def changed(rng, x):
    """A view, a pad, a flip, a reshape or a write."""
    kind, axis = rng.integers(5), int(rng.integers(x.ndim))
    whole = [slice(None)] * x.ndim
    if kind == 0:
        whole[axis] = slice(int(rng.integers(x.shape[axis])), None, int(rng.integers(1, 3)))
        return x[tuple(whole)]
    if kind == 1:
        return pb.flip(x, axis=axis)
    if kind == 2:
        return pb.reshape(x, (-1,))
    if kind == 3:
        return pb.pad(x, [(int(rng.integers(2)), int(rng.integers(2))) for _ in range(x.ndim)])
    whole[axis] = 0
    return pb.set_at(x, tuple(whole), 0.25)


def program(seed):
    """A random function and its arguments."""
    shapes = [(), (3,), (5, 3), (3, 5), (1, 3), (2, 5, 3), (17,), (4, 17), (1,), (33,)]

    def f(*args):
        rng = np.random.default_rng([seed, 1])
        values = list(args)
        for _ in range(int(rng.integers(3, 14))):
            new = grown(rng, values)
            if 0 < pb.spec_of(new).size <= 4000:
                values.append(new)
        return values[-1], values[-2] * 1.0

    rng = np.random.default_rng([seed, 0])
    dtype = np.float32 if seed % 3 == 0 else np.float64
    args = [rng.normal(size=shapes[i]).astype(dtype) for i in rng.choice(len(shapes), size=rng.integers(1, 4))]
    return f, args


def close(found, wanted, dtype, what):
    tolerance = 2e-4 if dtype == np.float32 else 1e-9
    for a, b in zip(found, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        size = float(np.max(np.abs(b), initial=1.0))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size, err_msg=what)


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_random_programs(first):
    for seed in range(first, first + CHUNK):
        f, args = program(seed)
        dtype = args[0].dtype
        close(jit(f)(*args), f(*args), dtype, f"value of program {seed}")

        def scalar(*args, f=f):
            a, b = f(*args)
            return pb.sum(pb.sin(a)) + pb.sum(pb.cos(b))

        every = tuple(range(len(args)))
        wanted = pb.grad(scalar, argnums=every)(*args)
        close(jit(pb.grad(scalar, argnums=every))(*args), wanted, dtype, f"pull of program {seed}")
        if seed % 4 == 0:
            dots = tuple(np.cos(a).astype(dtype) for a in args)
            pushed = jit(lambda a, d, g=scalar: pb.jvp(g, a, d)[1])(tuple(args), dots)
            close([pushed], [pb.jvp(scalar, tuple(args), dots)[1]], dtype, f"push of program {seed}")
            strided = [np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a for a in args]
            close(jit(f)(*strided), f(*args), dtype, f"strided arguments of program {seed}")


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


def test_random_updates_of_arguments_that_were_given_away():
    for seed in range(40):
        f = updated(seed)
        args = [np.random.default_rng([seed, i]).normal(size=(4, 4)) for i in range(4)]
        found = pb.jit(f, donate_argnums=(0, 1, 2))(*(a.copy() for a in args))
        close(found, f(*args), np.dtype(np.float64), f"update {seed}")
