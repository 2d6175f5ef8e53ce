"""Programs composed of forms: compiled equals plain NumPy in value and eager calls in every derivative.

Two thousand programs a run: chains of folds and spreads over every axis, chains of two and three forms of every kind,
and random programs. `python tests/composed.py` tries more, `pytest -m sweep tests/test_composed.py` all chains.
"""

import itertools

import composed_modes
import numpy as np
import pytest
from composed import folds, program_of, try_program
from composed_forms import FORMS
from composed_modes import DERIVATIVES, MODES, VALUES, find_fault
from composed_programs import SHAPES, Input, Line, Program, chains, drawn, drawn_chain
from composed_shrinking import reproduction, shrink

from pullback.compile.cpu.runtime import link

pytest.importorskip("llvmlite")
CHUNK = 50
#: Every so many of the chains of folds and spreads are tried in each run.
STEP = 29


@pytest.fixture(autouse=True)
def quick_code(monkeypatch):
    """What LLVM makes of a program takes most of the time and is seldom wrong: one in ten is optimised."""
    monkeypatch.setattr(link, "EFFORT", link.EFFORT)


def check(program, number, extra=True):
    link.EFFORT = (link.PASSES, 3) if number % 10 == 0 else ((), 0)
    faults = try_program(program, number, extra)
    assert not faults, "\n".join(reproduction(shrink(fault)) for fault in faults)


@pytest.mark.parametrize("part", range(10))
def test_folds_and_spreads(part):
    for number, program in enumerate(itertools.islice(folds(), STEP * part, None, 10 * STEP)):
        check(program, 10 * number + part, extra=False)


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_chains_of_forms(first):
    for number in range(first, first + CHUNK):
        check(drawn_chain(number), number)


@pytest.mark.parametrize("first", range(0, 400, CHUNK // 2))
def test_random_programs(first):
    for number in range(first, first + CHUNK // 2):
        check(drawn(number, 5, 25) if number % 20 == 0 else drawn(number, 3, 8), number)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (8, 3), (1, 4), (4, 1), (2, 2, 2), (4, 1, 4)], ids=str)
def test_every_chain_of_folds_and_spreads(shape):
    for number, program in enumerate(folds(3, (shape,))):
        check(program, number, extra=False)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pair_of_forms(shape):
    for number, program in enumerate(chains(shape, 2, True)):
        check(program, number)


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
def test_every_triple_of_forms(form):
    for number, program in enumerate(chains((3, 3), 3, True)):
        if program.lines[0].form == form:
            check(program, number, extra=False)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(10000, 20000, 500))
def test_more_random_programs(first):
    for number in range(first, first + 500):
        check(program_of("mixed", number), number)


def test_every_form_and_every_mode_has_its_turn():
    programs = [drawn(seed) for seed in range(300)]
    assert {line.form for program in programs for line in program.lines} == set(FORMS)
    assert {argument.dtype for program in programs for argument in program.inputs} == {
        "float64",
        "float32",
        "int64",
        "bool",
    }
    assert any(0 in argument.shape for program in programs for argument in program.inputs)
    assert any(argument.same is not None for program in programs for argument in program.inputs)
    assert {*VALUES, *DERIVATIVES} < set(MODES)


def folded_and_spread():
    fold = Line("fold", "pb.sum($0, axis=1, keepdims=True)", "np.sum($0, axis=1, keepdims=True)", (0,))
    spread = Line("spread", "pb.broadcast_to($0, $1.shape)", "np.broadcast_to($0, $1.shape)", (2, 0))
    again = Line("fold", "pb.sum($0, axis=0)", "np.sum($0, axis=0)", (3,))
    tanh = Line("pointwise", "pb.tanh($0)", "np.tanh($0)", (1,))
    return Program((Input((8, 3)), Input((4,), "float32", "f")), (fold, spread, again, tanh), (2, 4, 5), 0)


@pytest.mark.parametrize("mode", [*VALUES, *DERIVATIVES])
def test_fold_spread_fold(mode):
    assert find_fault(folded_and_spread(), mode) is None


def forget_last(f, **_):
    """A compiler that forgets the last element of a result whose neighbours are equal: as a store left out would."""

    def compiled(*args):
        found = [np.array(x) for x in f(*args)]
        for x in found:
            if x.ndim and x.size > 1 and x.reshape(-1)[-1] == x.reshape(-1)[-2]:
                x.reshape(-1)[-1] = np.nan
        return tuple(found)

    return compiled


def test_a_wrong_compiler_is_found_and_the_program_shrunk(monkeypatch):
    monkeypatch.setattr(composed_modes, "jit", forget_last)
    fault = find_fault(folded_and_spread(), "value")
    small = shrink(fault).program
    assert len(small.lines) == 1
    assert (len(small.outputs), max(len(i.shape) for i in small.inputs)) == (1, 2)
    assert all(max(i.shape) <= 2 for i in small.inputs)
    assert small.lines[0].form in ("fold", "spread")
    text = reproduction(shrink(fault))
    assert len(text.splitlines()) < 14
    compile(text, "reproduction", "exec")


def test_memory_of_compiled_code_starts_as_poison():
    before = composed_modes.filled[0]
    find_fault(folded_and_spread(), "value")
    assert composed_modes.filled[0] >= before + 6  # an arena or a result for each of three results, thrice


def test_whole_numbers_have_no_excuse():
    programs = [drawn(seed) for seed in range(1, 200, 4)]
    for program in programs:
        assert program.whole
        for value in program.values():
            assert value.dtype.kind != "f" or np.all(value * 64 == np.round(value * 64))
