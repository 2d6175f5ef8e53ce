"""Call plans against the general path: the same bits, gradients of every order, lines, hooks, modes and errors.

Saved-value hooks force the general path; a plan exists from the third call on.
"""

from __future__ import annotations

import numpy as np
import pytest
from records import Case, cases, drop_free_phases, name

import pullback as pb
from pullback.arrays.node import PlannedCall
from pullback.ops.dispatch import apply
from pullback.ops.op import PURE
from pullback.tape import sweep

SMOOTH = [case for case in cases(lambda op: op.differentiable) if case.moving]


@pytest.fixture(autouse=True)
def steps_at_once(monkeypatch):
    monkeypatch.setattr(sweep, "_VISITS_BEFORE_STEP", 0)


def general_path():
    return pb.saved_tensors_hooks(lambda t: t, lambda t: t)


def is_planned(x):
    return type(x.node.call) is PlannedCall


def outs_of(result):
    return result if isinstance(result, tuple) else (result,)


def run_case(case: Case, tracked: list[int], second: bool = False):
    """All results, the gradients of each in the tracked arguments, and with `second` those of their squares' sum."""
    args = [pb.tensor(a, requires_grad=i in tracked) if i in case.moving else a for i, a in enumerate(case.args)]
    outs = outs_of(drop_free_phases(case.op, apply(case.op, *args, **case.static)))
    xs = [args[i] for i in tracked]
    found = [out.detach() for out in outs]
    for out in outs:
        bar = np.random.default_rng(3).normal(size=out.shape).astype(out.dtype)
        first = pb.gradients(out, xs, bar, retain_graph=True, allow_unused=True, create_graph=second)
        found += first
        live = [g for g in first if g is not None and g.requires_grad]
        if second and live:
            found += pb.gradients(sum(pb.sum(g * g) for g in live), xs, allow_unused=True)
    return outs, [None if g is None else g.detach().numpy() for g in found]


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", SMOOTH, ids=name)
def test_planned_call_is_the_general_one(case: Case, dtype: str):
    case = case.cast(dtype)
    for tracked in {tuple(case.moving), tuple(case.moving[:1]), tuple(case.moving[-1:])}:
        with general_path():
            _, wanted = run_case(case, list(tracked))
        for _ in range(2):
            run_case(case, list(tracked))
        outs, found = run_case(case, list(tracked))
        assert_same(found, wanted)
        if len(outs) == 1 and case.op.effects is PURE and outs[0].spec.number:
            assert is_planned(outs[0])
