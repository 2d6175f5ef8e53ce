"""Features by pairs: every feature around every other one, against a reference that uses neither (docs/judges.md)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pairs import Cell, Feature, Taker, evaluate, threads_of_one
from pairs_run import FEATURES, cells, is_quick, judged, modes, present, refusals
from pairs_tables import FAULTS, IMPLICIT_OPTIONS, NO_FEATURES, NOT_YET, REASONS

import pullback as pb

#: Namespaces whose names are enumerated like those of the package.
NAMESPACES = ("implicit", "interop", "memory", "tools")


def row(name: str, quick: bool) -> list[str]:
    """What is not as it must be in the row of one feature: quick cells, or those that are left to the sweep."""
    refused = refusals()
    with threads_of_one():
        asked = ((cell, mode) for cell in cells(FEATURES[name]) for mode in modes(cell, quick=False))
        chosen = ((cell, mode) for cell, mode in asked if is_quick(cell, mode) == quick)
        verdicts = (judged(cell, mode, evaluate(cell, mode), refused) for cell, mode in chosen)
        return [verdict for verdict in verdicts if verdict]


@pytest.mark.parametrize("name", [f.name for f in present()])
def test_a_feature_around_every_other_one_computes_what_neither_changes(name):
    wrong = row(name, quick=True)
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [f.name for f in present()])
def test_a_feature_around_every_other_one_in_all_modes(name):
    wrong = row(name, quick=False)
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_pair_is_asked_in_every_run_of_the_tests():
    """In one nesting at least; two variants of other features meet in the sweep alone."""
    pairs = [(a, b) for a in present() for b in present() if not (a.like and b.like)]
    silent = [(a.name, b.name) for a, b in pairs if not is_asked(a, b) and not is_asked(b, a)]
    assert not silent


def is_asked(outer: Feature, inner: Feature) -> bool:
    return bool(modes(Cell(outer, inner), quick=True))


def test_every_pair_of_variants_is_asked_in_the_sweep():
    assert all(Cell(a, b).modes for a in present() for b in present())


def test_every_refusal_has_a_reason_and_every_reason_a_refusal():
    refused, known = refusals(), {r.name for r in REASONS}
    assert set(refused.values()) <= known
    assert known <= set(refused.values()), known - set(refused.values())
    assert all(a in FEATURES and (b in FEATURES or b == "-") for a, b, _ in refused)


def test_every_known_fault_is_of_a_cell_that_exists():
    everything = [(cell.key, mode) for outer in present() for cell in cells(outer) for mode in cell.modes]
    for fault in FAULTS:
        assert any(fault.fits(key, mode) for key, mode in everything), fault


def test_a_wrong_program_is_seen_in_each_mode():
    """The matrix itself is held: a feature that is off by a little in one place is found wherever it stands."""
    planted = Taker("planted", lambda f, world: lambda x: pb.grad(lambda x: pb.sum(f(x)))(x), "reverse")
    for mode in ("value", "grad", "tape", "forward", "second"):
        assert evaluate(Cell(planted, None), mode).wrong
        assert evaluate(Cell(FEATURES["jit"], planted), mode).wrong


def public() -> Iterator[tuple[str, Any]]:
    for name in pb.__all__:
        yield name, getattr(pb, name)
    for space in NAMESPACES:
        module = getattr(pb, space)
        names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        yield from ((f"{space}.{name}", getattr(module, name)) for name in names)


def is_op(thing: Any) -> bool:
    """Ops and what they are made of: entry points, dtypes, constants, namespaces of ops. A mode is none of these."""
    if isinstance(thing, (np.dtype, float, type(None))) or inspect.ismodule(thing):
        return not inspect.ismodule(thing) or thing.__name__.startswith(("pullback.ops", "pullback.arrays.dtypes"))
    return (thing.__module__ == "pullback" or thing.__module__.startswith("pullback.ops")) and not is_mode(thing)


def is_mode(thing: Any) -> bool:
    """Whether it is used with `with`: a class that can be entered, or a generator that was made a context manager."""
    return hasattr(thing, "__enter__") or inspect.isgeneratorfunction(getattr(thing, "__wrapped__", None))


def test_every_public_transform_mode_and_instrument_is_in_the_matrix():
    covered = {name for feature in FEATURES.values() for name in feature.covers}
    known = covered | set(NO_FEATURES) | {f"implicit.{name}" for name in IMPLICIT_OPTIONS}
    missing = [n for n, thing in public() if n not in known and n.split(".")[-1] not in covered and not is_op(thing)]
    assert not missing, f"neither a feature of the matrix (tests/pairs_*.py) nor in NO_FEATURES: {missing}"


def test_every_mode_of_networks_and_optimisers_is_in_the_matrix():
    covered = {name for feature in FEATURES.values() for name in feature.covers}
    for space in (pb.nn, pb.optim, pb.random, pb.linalg):
        modes = [n for n in space.__all__ if is_mode(getattr(space, n)) and n not in covered]
        assert not modes, modes


def test_no_name_is_listed_that_is_gone():
    names = {name for name, _ in public()}
    listed = set(NO_FEATURES) | {f"implicit.{name}" for name in IMPLICIT_OPTIONS}
    covered = {name for feature in FEATURES.values() for name in feature.covers}
    assert listed | covered <= names, (listed | covered) - names


def test_features_to_come_enter_the_matrix_when_they_do():
    covered = {name for feature in FEATURES.values() for name in feature.covers}
    for name in NOT_YET:
        there = any(hasattr(space, name) for space in (pb, pb.nn, pb.tools, pb.memory))
        assert not there or name in covered, f"{name} is there: give it a feature and take it out of NOT_YET"
