"""Functions across the border to PyTorch and JAX: each library's checks in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pullback as pb

FOLDER = Path(__file__).resolve().parent / "bridges"
#: Whether a missing library is an error, as in CI, instead of a skip.
REQUIRED = os.environ.get("PULLBACK_TEST_PEERS") == "required"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_bridge(library):
    if importlib.util.find_spec(library) is None:
        assert not REQUIRED, f"{library} is missing: pip install -e '.[bridges]'"
        pytest.skip(f"{library} is not installed")
    checks = FOLDER / f"{library}_bridge.py"
    own = ["-Wignore::DeprecationWarning", "-Wignore::FutureWarning"]  # of their own lines, whatever their version
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *own, str(checks)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_missing_library_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    bridge = getattr(pb.interop, library)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        bridge.as_op(lambda x: x)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        bridge.wrap(lambda x: x)(1.0)
