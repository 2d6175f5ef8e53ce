"""Staleness: what a compiled function does when something that it reads has changed, row by row, against the function."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import PullbackError

from stale_rows import ROWS, X

pytest.importorskip("llvmlite")


def numbers(out):
    return np.asarray(out.detach().numpy() if hasattr(out, "detach") else out)


def of_promise(promise):
    return [pytest.param(r, id=r.what) for r in ROWS if r.promise == promise]


@pytest.mark.parametrize("row", of_promise("noticed"))
def test_a_change_is_noticed(row):
    f, change, *restore = row.build()
    compiled = pb.jit(f)
    try:
        for _ in range(2):
            np.testing.assert_allclose(numbers(compiled(X)), numbers(f(X)), rtol=1e-12)
        change()
        for _ in range(2):
            np.testing.assert_allclose(numbers(compiled(X)), numbers(f(X)), rtol=1e-12)
    finally:
        for undo in restore:
            undo()


@pytest.mark.parametrize("row", of_promise("refused"))
def test_a_function_that_no_program_can_follow_is_refused(row):
    f, _ = row.build()
    compiled = pb.jit(f)
    with pytest.raises(PullbackError):
        for _ in range(3):
            compiled(X)
