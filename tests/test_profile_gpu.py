"""`pb.profile` on a GPU, or on its stand-in: work is timed by events on streams, which nothing waits for."""

import numpy as np
import pytest
from gpu import REAL, cupy, installed_cupy  # noqa: F401

import pullback as pb
from pullback.errors import DeviceError
from pullback.settings import PLAIN, modes

X = np.linspace(0.1, 0.9, 64).reshape(8, 8)


def step(x):
    pb.sum(pb.sin(x) * x).backward()


def test_work_is_timed_by_events():
    x = pb.tensor(cupy.asarray(X), requires_grad=True)
    for _ in range(4):  # the general path, plans, generated steps
        step(x)
    with pb.profile() as seen:
        if not REAL:
            cupy.cuda.Stream.log.clear()
        step(x)
        waits = [] if REAL else [what for what in cupy.cuda.Stream.log if what == "synchronize"]
    assert waits == [], "nothing waits while it is profiled"
    on_stream = [e for e in seen.events if e.kind == "gpu"]
    assert {"sin", "multiply", "pull of sin", "pull of multiply"} <= {e.name for e in on_stream}
    assert all(e.track < -1 and e.end >= e.start for e in on_stream)
    assert "GPU stream 0" in seen.trace()
    assert {e.kind for e in seen.events} >= {"op", "pull", "backward"}, "the host's part is there too"


def test_compiled_programs_are_timed_by_events():
    f = pb.jit(lambda x: pb.sum(pb.sin(x) * x))
    x = cupy.asarray(X)
    wanted = f(x)
    with pb.profile() as seen:
        found = f(x)
    assert float(wanted) == float(found)
    assert any(e.name == "jit <lambda>" for e in seen.events)


def test_work_on_the_host_has_no_events_on_streams():
    with pb.profile() as seen:
        step(pb.tensor(X, requires_grad=True))
    assert not any(e.kind == "gpu" for e in seen.events)


def test_ranges(monkeypatch):
    if REAL:
        with pb.profile(nvtx=True):
            step(pb.tensor(cupy.asarray(X), requires_grad=True))
        return
    with pytest.raises(DeviceError, match="NVTX"), pb.profile(nvtx=True):
        pass
    assert modes() is PLAIN
    told = []
    nvtx = type("nvtx", (), {"RangePush": told.append, "RangePop": lambda: told.append("end")})
    monkeypatch.setattr(cupy.cuda, "nvtx", nvtx, raising=False)
    with pb.profile(nvtx=True):
        step(pb.tensor(X, requires_grad=True))
    assert told[:2] == ["sin", "end"]
    assert "pull of sin" in told
    assert told.count("end") * 2 == len(told)
