"""The GPU's text, run here: programs rendered to CUDA C and executed thread by thread equal eager calls."""

import numpy as np
import pytest
from composed_modes import find_fault
from composed_programs import drawn
from cuda_emulator import EMULATED, has_compiler
from random_programs import updated
from test_random_graphs import tried

import pullback as pb
from pullback.compile import targets
from pullback.errors import IndexingError

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the text is compiled by g++")
X = np.random.default_rng(0).normal(size=(4, 3))


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    assert tried(seed) == []


@pytest.mark.parametrize("mode", ["value", "donated", "jit_grad", "scanned", "branched"])
def test_composed_programs(mode):
    assert find_fault(drawn(1, 3, 8), mode) is None


def test_updates_of_donated_arguments():
    f = updated(0)
    args = [np.random.default_rng(i).normal(size=(4, 4)) for i in range(4)]
    for mine, wanted in zip(pb.jit(f, donate_argnums=(0, 1, 2))(*(a.copy() for a in args)), f(*args), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-9)


def test_an_index_out_of_range_is_noted():
    for f in (lambda x, i: x[i], lambda x, i: pb.set_at(x, i, 0.0)):
        with pytest.raises(IndexingError):
            pb.jit(f)(X, np.array([9]))
