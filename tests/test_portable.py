"""What other systems run: programs without threads of the system, memory without /proc, classes of Python 3.14."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.arrays import process_memory
from pullback.compile.cpu.runtime import pool
from pullback.nn import module

ROOT = Path(__file__).parent.parent

PROGRAM = """
import numpy as np, pullback as pb
assert pb.get_num_threads() == 1
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 300))
a, b = rng.normal(size=(6, 40, 50)), rng.normal(size=(6, 50, 60))
image, kernel = rng.normal(size=(8, 3, 20, 20)), rng.normal(size=(4, 3, 3, 3))
w = pb.tensor(x, requires_grad=True)
pb.sum(pb.nn.softmax(w) ** 2).backward()
network = pb.nn.Linear(300, 20)
optimizer = pb.optim.Adam(network.parameters(), lr=0.01)
pb.sum(network(x.astype("float32")) ** 2).backward()
optimizer.step()
found = [
    pb.jit(lambda x: pb.tanh(x) * pb.exp(x) + pb.sum(x, axis=0))(x),
    pb.jit(pb.grad(lambda x: pb.sum(pb.nn.softmax(x) ** 2)))(x),
    pb.jit(lambda a, b: pb.matmul(a, b))(a, b),
    pb.jit(pb.grad(lambda k: pb.sum(pb.nn.conv2d(image, k) ** 2)))(kernel),
    w.grad.numpy(), network.weight.detach().numpy()[:0],
]
print(pb.memory.release(), 0 <= pb.memory.resident() <= pb.memory.peak_resident())
np.savez(OUT, *found)
"""


def run_program(tmp_path, name, **variables):
    out = tmp_path / f"{name}.npz"
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / name), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("OUT", repr(str(out)))], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as found:
        return done.stdout.split(), [found[name] for name in found.files]


def test_without_threads_of_the_system_results_are_the_same(tmp_path):
    pytest.importorskip("llvmlite")
    said, found = run_program(tmp_path, "portable", PULLBACK_PORTABLE="1")
    _, expected = run_program(tmp_path, "native", PULLBACK_NUM_THREADS="1")
    assert said == ["False", "True"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_more_threads_than_a_system_has_are_refused(monkeypatch):
    monkeypatch.setenv("PULLBACK_PORTABLE", "1")
    assert pool.default_thread_count() == 1
    with pytest.raises(pb.errors.ArgumentError, match="one thread on this system"):
        pool.check_thread_count(2, "set_num_threads")


def test_cores_are_counted_where_a_process_cannot_be_bound_to_some(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("PULLBACK_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert pool.default_thread_count() == 1


def test_the_peak_of_memory_is_known_without_proc(monkeypatch):
    monkeypatch.setenv("PULLBACK_PORTABLE", "1")
    if process_memory.resource is not None:
        assert process_memory.peak_resident() > 1 << 20
        # a system that tells the peak alone
        assert 1 << 20 < process_memory.resident() <= process_memory.peak_resident()
    monkeypatch.setattr(process_memory, "resource", None)
    assert process_memory.peak_resident() == process_memory.resident() == 0


def test_fields_are_found_where_annotations_are_computed_late(monkeypatch):
    class Line(pb.nn.Module):
        slope: pb.Tensor

        def forward(self, x):
            return self.slope * x

    class Plain(pb.nn.Module):
        def __init__(self):
            self.size = 3

    assert Line(pb.tensor(2.0))(3.0).item() == 6.0
    assert Plain().size == 3
    assert module._has_annotations(Line)
    assert not module._has_annotations(Plain)

    def undefined(cls):  # as Python 3.14 does for a name that is not defined yet
        raise NameError("name 'Later' is not defined")

    monkeypatch.setattr(module.inspect, "get_annotations", undefined)
    assert module._has_annotations(Line)


def test_extras_bring_what_is_imported():
    """Each package that an extra installs, but for tools of developers, is imported somewhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    modules = {"cupy-cuda12x": "cupy", "cupy-cuda13x": "cupy", "cuda-pathfinder": "cuda.pathfinder"}
    users = [
        *project["dependencies"],
        *(line for name in extras if name not in ("all", "dev") for line in extras[name]),
    ]
    for line in users:
        package = line.partition(">")[0].partition("[")[0].strip()
        module = modules.get(package, package)
        assert any(word in source for word in (f"import {module}", f"from {module}", f'"{module}')), line
