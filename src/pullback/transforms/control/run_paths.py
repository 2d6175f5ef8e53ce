"""A compiled function that is called as part of something else, where a Python branch asks for what is not known or
differs by element of a batch: traced along all its paths, and run as the program that comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.backends import is_array
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...ops.replay.rehearsal import watched_dry_run
from ...program.constants import Constants
from ...program.decisions import Decisions
from ...program.ir import Program
from ...program.run import run
from ...program.stage import stage
from ..boundary import as_array_leaf, unwrap_to_level
from .branch_results import check_one_structure
from .flow.derive import as_body
from .paths import stage_paths
from .staging import as_called


def run_as_program(
    what: str, function: Callable[[Sequence[Any]], Any], leaves: Sequence[Any], holder: Any
) -> list[Any] | None:
    """What a function of leaves returns, in a list; None for one that does more than compute, which each of its paths
    would do. `holder` is what it may keep state in.
    """
    places = [i for i, x in enumerate(leaves) if isinstance(x, Value) or is_array(x)]
    structures: list[Any] = []
    constants = Constants()  # of all paths
    called = as_called(function)

    def flat(*symbols: Any) -> list[Any]:
        given = list(leaves)
        for i, symbol in zip(places, symbols, strict=True):
            given[i] = symbol
        outs, structure = flatten(called(given))
        structures.append(structure)
        check_one_structure(what, structures)
        return [unwrap_to_level(as_array_leaf(x, what), symbols[0].scope) for x in outs]

    def trace(decisions: Decisions) -> Program:
        return stage(flat, *[spec_of(leaves[i]) for i in places], constants=constants, decisions=decisions)

    with watched_dry_run((holder,), leaves) as effects:
        program = stage_paths(trace, what)
    if effects.seen:
        return None
    body, captured = as_body(program, constants)
    return [unflatten(structures[0], run(body, [*(leaves[i] for i in places), *captured]))]
