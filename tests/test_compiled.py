"""Compiled equals eager: for every sample of every op, its value, its pull and its push."""

import numpy as np
import pytest
from records import cases, name

import pullback as pb
from pullback.compile.jit import jit
from pullback.ops.dispatch import apply

pytest.importorskip("llvmlite")


def same(found, wanted, scale=1e-12):
    found = found if isinstance(found, (tuple, list)) else (found,)
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        f, w = np.asarray(f), np.asarray(w)
        assert (f.shape, f.dtype) == (w.shape, w.dtype)
        size = np.max(np.abs(w), initial=0, where=np.isfinite(w)) if w.dtype.kind in "fc" else 0
        np.testing.assert_allclose(f, w, rtol=scale, atol=scale * max(1.0, size))


def is_stageable(op):
    return op.spec is not None


@pytest.mark.parametrize("case", cases(is_stageable), ids=name)
def test_value(case):
    def f(*args):
        return apply(case.op, *args, **case.static)

    args = [np.asarray(x) for x in case.args]
    same(jit(f)(*args), f(*args))


@pytest.mark.parametrize("case", cases(lambda op: is_stageable(op) and op.differentiable), ids=name)
def test_pull_and_push(case):
    floats = [np.asarray(x) for x in case.floats]
    if not floats:
        pytest.skip("nothing to differentiate")
    f = jit(case.scalar)
    argnums = tuple(range(len(floats)))
    wanted = pb.grad(case.scalar, argnums=argnums)(*floats)
    same(pb.grad(f, argnums=argnums)(*floats), wanted)
    same(jit(pb.grad(case.scalar, argnums=argnums))(*floats), wanted)
    dots = tuple(case.direction(3))
    same(pb.jvp(f, tuple(floats), dots), pb.jvp(case.scalar, tuple(floats), dots))
