"""Graphs from anywhere: whatever their parameters say, an error of ours or a program that stays inside its memory."""

import os
import subprocess
import sys
from pathlib import Path

import hostile
import numpy as np
import pytest

import pullback as pb
from pullback.arrays.spec import make_spec
from pullback.errors import PullbackError
from pullback.ops import load_all_ops
from pullback.transforms.control.flow import FLOW

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *map(os.path.abspath, sys.path)])}

#: What once read or wrote foreign memory, ran for ever, or passed the reader and failed later in NumPy's words.
BROKEN = {
    "windows backward": "graph(x: float64[4])\n  y: float64[1004, 2] = windows(x, axis=0, size=2, step=1, "
    "dilation=-1000)\n  return y",
    "spread by a stride beyond the grid": "graph(x: float64[1, 1, 3])\n  y: float64[1, 1, 6] = window_spread(x, "
    "sizes=(6,), window=(2,), stride=(100000000,), padding=((0, 0),), dilation=(1,))\n  return y",
    "spread into the heap beside": "graph(x: float64[1, 1, 3])\n  y: float64[1, 1, 6] = window_spread(x, "
    "sizes=(6,), window=(2,), stride=(64,), padding=((0, 0),), dilation=(1,))\n  return y",
    "scatter into a larger array than the index is for": "graph(x: float64[4, 2])\n  y: float64[3, 1000, 2] = "
    "scatter(x, index=(1, slice(None, None, None), slice(None, None, None)), wanted=(3, 1000, 2))\n  return y",
    "sinc of an order for ever": "graph(x: float64[2])\n  y: float64[2] = sinc(x, order=1000000000)\n  return y",
    "an axis twice in a permutation": "graph(x: float64[2, 2])\n  y: float64[2, 2] = permute_dims(x, axes=(0, 0))\n"
    "  return y",
    "flip of an axis that is not there": "graph(x: float64[2])\n  y: float64[2] = flip(x, axis=(7,))\n  return y",
    "sum over an axis twice": "graph(x: float64[2, 2])\n  y: float64[2] = sum(x, axis=(1, 1), keepdims=False)\n"
    "  return y",
    "overlap_add of windows that do not fit": "graph(x: float64[9, 2])\n  y: float64[3] = overlap_add(x, axis=0, "
    "length=3, step=1, dilation=1)\n  return y",
    "convolution with negative dilation": "graph(x: float64[1, 1, 5], w: float64[1, 1, 2])\n  y: float64[1, 1, 1005] "
    "= convolution(x, w, stride=(1,), padding=((0, 0),), dilation=(-1000,), groups=1)\n  return y",
    "padding of more memory than the arrays": "graph(x: float64[1, 1, 3])\n  y: float64[1, 1, 3] = window_sum(x, "
    "window=(1,), stride=(1000000000000,), padding=((1000000000000, 1000000000000),), dilation=(1,))\n  return y",
    "an index array over an axis without elements": "graph(x: float64[0, 2], i: int64[3])\n  y: float64[3, 2] = "
    "getitem(x, i, index=(*, slice(None, None, None)))\n  return y",
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_refused_when_read(text):
    with pytest.raises(PullbackError):
        pb.Program.parse(text)


def test_an_index_array_over_an_empty_axis_is_refused_by_compiled_code():
    """It once read what lies before the buffer."""
    with pytest.raises(IndexError):
        pb.jit(lambda x, i: x[i] * 2)(np.zeros((0, 3)), np.array([0]))
    assert pb.jit(lambda x, i: x[i] * 2)(np.zeros((0, 3)), np.zeros(0, int)).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint32", "int64", "bool"])
def test_functions_of_integers_compile_on_machines_of_any_vectors(dtype):
    """Instructions for the widest vectors once stood beside small integers, and LLVM ended the process."""
    x = np.ones(35, dtype)
    for f in (pb.exp, pb.tanh):
        np.testing.assert_allclose(pb.jit(f)(x), f(x), rtol=1e-2)


def test_every_op_says_what_its_static_parameters_may_be():
    rng = np.random.default_rng(0)
    for op in (load_all_ops() | FLOW).values():
        assert op.statics is not None, op.name
        for _, static in op.samples(rng) if op.name not in FLOW else ():
            assert static.keys() == op.statics.keys(), op.name


def test_mutated_graphs_are_refused_or_read():
    """Thousands of them: errors of ours alone, which is all that `read` lets through."""
    accepted = sum(hostile.read(seed) is not None for seed in range(2500))
    assert 600 < accepted < 2000


def campaign(place, first, count):
    command = [sys.executable, str(HERE / "hostile.py"), place, str(first), str(count)]
    found = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    last = found.stdout.splitlines()[-1:]
    assert found.returncode == 0, f"{last}: {found.stderr[-2000:]}"
    assert last == ["done"]


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages by Linux's calls")
@pytest.mark.parametrize("place", ["start", "end"])
def test_mutated_graphs_stay_inside_their_memory(place):
    pytest.importorskip("llvmlite")
    campaign(place, 100_000 if place == "start" else 200_000, 250)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(20))
def test_a_million_mutated_graphs(part):
    """Half of them at each end of their pages."""
    pytest.importorskip("llvmlite")
    campaign("start" if part % 2 else "end", 1_000_000 + 50_000 * part, 50_000)


def test_sizes_that_are_no_integers_leave_nothing_in_the_cache_of_specs():
    assert type(make_spec((1.0, 7919), np.dtype("f8")).shape[0]) is float
    assert type(make_spec((1, 7919), np.dtype("f8")).shape[0]) is int
