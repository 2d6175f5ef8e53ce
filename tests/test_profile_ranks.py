"""A profile of several processes (`ranks/profile_check.py`): one trace, by one clock."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.distributed.launch import find_launcher
from pullback.errors import WorldError

pytest.importorskip("mpi4py")
try:
    find_launcher()
except WorldError as error:
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_one_trace_of_two_processes(tmp_path):
    path, script = tmp_path / "trace.json", str(ROOT / "tests" / "ranks" / "profile_check.py")
    command = [sys.executable, "-m", "pullback.cli", "run", "-n", "2", script, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    job = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    text = (job.stdout + job.stderr).decode(errors="replace")
    assert job.returncode == 0, text
    assert "rank 0: ok" in text
    assert "rank 1: ok" in text
    spans = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == {0, 1}
    meetings = [[e for e in spans if e["pid"] == r and e["name"].startswith("gradients")] for r in (0, 1)]
    assert len(meetings[0]) == len(meetings[1]) >= 3
    assert "params['weight']" in meetings[0][0]["name"]
    # ranks leave a meeting after both have come, also by the aligned clocks
    uncertainty = max(c["uncertainty_ns"] for c in json.loads(path.read_text())["otherData"]["clocks"]) / 1e3 + 1
    for one, two in zip(*meetings, strict=True):
        assert one["ts"] + one["dur"] + uncertainty >= two["ts"]
        assert two["ts"] + two["dur"] + uncertainty >= one["ts"]
    assert any(e["name"].startswith("total") and e["pid"] == 1 for e in spans), "also inside a compiled program"
