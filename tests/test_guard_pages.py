"""No read and no write outside its buffers: compiled programs run with memory beside forbidden pages.

`PULLBACK_GUARDED=all` runs every sample of every op.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.compile.jit import jit
from pullback.errors import IndexingError

pytest.importorskip("llvmlite")
HERE = Path(__file__).parent
STEP, PROGRAMS = ("1", "60") if os.environ.get("PULLBACK_GUARDED") == "all" else ("9", "10")


ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *map(os.path.abspath, sys.path)])}


def guarded(*arguments):
    script = str(HERE / "guarded.py")
    found = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    last = found.stdout.splitlines()[-1:]
    assert found.returncode == 0, f"{last}: {found.stderr[-2000:]}"
    assert last == ["done"]


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages by Linux's calls")
@pytest.mark.parametrize("machine", ["this", "avx2", "sse"])
@pytest.mark.parametrize("place", ["start", "end"])
def test_nothing_outside_is_touched(place, machine):
    first = ("start", "end").index(place) * 3 + ("this", "avx2", "sse").index(machine)
    guarded(place, machine, str(first if STEP != "1" else 0), STEP, PROGRAMS)


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages by Linux's calls")
@pytest.mark.parametrize("place", ["start", "end"])
def test_nothing_outside_is_touched_where_sizes_vary(place):
    first, step, programs = ("0", "1", PROGRAMS) if STEP == "1" else (str(len(place)), "27", "5")
    guarded(place, "this", first, step, programs, "varying")


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages by Linux's calls")
def test_the_guard_bites():
    """A read beyond the end is fatal, or the test above proves nothing."""
    text = "from guarded import Guarded; import ctypes; ctypes.string_at(Guarded('end').bytes(8), 9)"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, env=ENVIRONMENT, check=False)
    assert found.returncode < 0


@pytest.mark.parametrize("index", [5, -6, 2**40, -(2**62)])
@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_an_index_out_of_range_raises(index, shape):
    x = np.arange(float(np.prod(shape))).reshape(shape)
    at = np.array([0, 1, index])
    with pytest.raises(IndexingError):
        jit(lambda x, i: pb.take(x, i, axis=0) * 2)(x, at)
    with pytest.raises(IndexingError):
        jit(lambda x, i: pb.set_at(x, (i,), 1.0))(x, at)
    good = jit(lambda x, i: pb.take(x, i, axis=0) * 2)(x, np.array([0, -1, 2]))
    np.testing.assert_array_equal(good, x[[0, -1, 2]] * 2)
