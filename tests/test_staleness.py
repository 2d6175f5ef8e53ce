"""Staleness: what a compiled function does when something that it reads has changed, row by row."""

from pathlib import Path

import numpy as np
import pytest
from stale_rows import ROWS, Pair, X, table

import pullback as pb
from pullback.errors import PullbackError

pytest.importorskip("llvmlite")


def numbers(out):
    return np.asarray(out.detach().numpy() if hasattr(out, "detach") else out)


def of_promise(promise):
    return [pytest.param(r, id=r.what) for r in ROWS if r.promise == promise]


@pytest.mark.parametrize("row", of_promise("noticed"))
def test_a_change_is_noticed(row):
    f, change, *restore = row.build()
    compiled = f.compiled if isinstance(f, Pair) else pb.jit(f)
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
        _ = [compiled(X) for _ in range(3)]


@pytest.mark.parametrize("row", of_promise("not seen"))
def test_what_is_not_seen_is_documented_and_not_seen(row):
    assert row.why
    f, change = row.build()
    compiled = pb.jit(f)
    first = numbers(compiled(X))
    change()
    assert not np.array_equal(numbers(compiled(X)), numbers(f(X)))
    assert row.what.startswith("NumPy's") or np.array_equal(numbers(compiled(X)), first)


def test_the_documentation_lists_every_row():
    page = Path(__file__).parent.parent / "docs" / "compile.md"
    assert table() in page.read_text(), "write stale_rows.table() into docs/compile.md"
