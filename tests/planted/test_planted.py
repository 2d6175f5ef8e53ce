"""The tests are tested: wrong rules are planted one by one, and certification must catch each."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from mutations import OWN, SWAPS, every_mutation, planted
from plant import caught, sweep
from slight import every_slight, slight, unseen

import pullback as pb
from pullback.ops import load_all_ops
from pullback.tools.certify import certify_ops

ALL = every_mutation()
#: Those of one op, and every twelfth of the rest.
SOME = [*ALL[: len(OWN) + len(SWAPS)], *ALL[len(OWN) + len(SWAPS) :: 12]]


def test_enough_is_planted():
    assert len(ALL) > 2000
    assert len(SOME) >= 200
    assert len({m.op for m in SOME}) >= 100


@pytest.mark.parametrize("part", range(8))
def test_wrong_rules_are_caught(part):
    assert sweep(SOME[part::8]) == []


@pytest.mark.slow
@pytest.mark.sweep
def test_every_wrong_rule_is_caught():
    assert sweep(ALL) == []


@functools.cache
def every_slight_mistake():
    return every_slight()


@pytest.mark.parametrize("part", range(4))
def test_rules_off_by_one_part_in_a_million_are_seen(part):
    some = every_slight_mistake()[3::37]
    assert len({m.op for m in some}) >= 50
    assert unseen(some[part::4]) == []


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("size", [1e-4, 1e-6])
def test_every_rule_off_by_a_little_is_seen(size):
    mistakes = every_slight(size)
    assert len(mistakes) > 2500
    assert unseen(mistakes) == []


@pytest.mark.parametrize("name", ["sin", "matmul", "solve", "logm", "gammainc", "fft", "max", "convolution"])
def test_all_modes_off_alike_are_seen_by_differences(name):
    """Both modes agree with each other to the last digit, so that nothing but differences can tell."""
    (mutation,) = (m for m in slight(load_all_ops()[name]) if m.kind == "both")
    with planted(mutation):
        row = certify_ops([name], ["float64"]).rows[name]
    assert row["differences"].failures > 0
    assert row["transpose"].failures == 0


@pytest.mark.parametrize(
    ("name", "kind", "role"),
    [
        ("sin", "pull of x, sign", "transpose"),
        ("exp", "push, cut off", "second"),
        ("matmul", "batch out of order", "batch"),
        ("sum", "spec of another shape", "spec"),
        ("multiply", "pull of x, conjugate", "transpose"),
    ],
)
def test_the_role_that_should_catch_it_does(name, kind, role):
    (mutation,) = [m for m in ALL if (m.op, m.kind) == (name, kind)]
    assert role in failing(mutation)


def failing(mutation):
    with planted(mutation):
        row = certify_ops([mutation.op], mutation.dtypes).rows[mutation.op]
    return {role for role, tally in row.items() if tally.failures}


def test_a_formula_that_is_wrong_in_all_modes_alike_is_caught_by_differences():
    """Both rules cut off together: the four second orders agree with each other, and are wrong."""
    pull, push = (
        [m for m in ALL if (m.op, m.kind) == ("sin", kind)] for kind in ("pull of x, cut off", "push, cut off")
    )
    with planted(pull[0]), planted(push[0]):
        row = certify_ops(["sin"], ["float64"]).rows["sin"]
    assert row["differences"].failures > 0
    assert (row["transpose"].failures, row["second"].failures) == (0, 0)


def test_what_was_planted_is_gone():
    x = np.array([0.3, 0.7])
    before = pb.grad(lambda t: pb.sum(pb.sin(t) * t))(x)
    for mutation in [m for m in ALL if m.op in ("sin", "multiply")]:
        assert caught(mutation) is not None
    assert np.array_equal(pb.grad(lambda t: pb.sum(pb.sin(t) * t))(x), before)
    assert certify_ops(["sin", "multiply"])
