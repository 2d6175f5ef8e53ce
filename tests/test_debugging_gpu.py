"""`find_nan`, `compare` and `advise` on a GPU's arrays, or on the stand-in's."""

from __future__ import annotations

import numpy as np
from gpu import cupy, installed_cupy  # noqa: F401

import pullback as pb


def f(x):
    y = pb.log(x)
    return pb.sum(y * 2.0)


def test_a_nan_on_a_device():
    x = cupy.asarray(np.array([1.0, -1.0, 2.0]))
    for g in (f, pb.jit(f)):
        first = pb.tools.find_nan(g, x).first
        assert (first.op, first.index) == ("log", (1,))
        assert "y = pb.log(x)" in first.line
        assert pb.tools.find_nan(g, abs(x))


def test_a_host_and_a_device_are_compared():
    x = np.array([1.0, 0.5, 2.0])
    found = pb.tools.compare(f, f, x, others=(cupy.asarray(x),))
    assert found
    assert found.compared == 3
    found = pb.tools.compare(f, f, x, others=(cupy.asarray(x * 1.01),))
    assert found.first.name == "log"
    assert pb.tools.compare(f, pb.jit(f), cupy.asarray(x))


def test_advice_on_a_device():
    report = pb.tools.advise(f, cupy.asarray(np.ones(8)), seconds=0.002)
    assert report.seconds > 0
    assert {item.topic for item in (*report, *report.tried)} >= {"compile"}
