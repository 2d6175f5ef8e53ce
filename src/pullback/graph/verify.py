"""Graph in, the same graph out if it is sound: every argument is known, every spec is what the op says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError, GraphError, PullbackError
from ..ops.routine import Routine, routines_in
from ..ops.specialise import Equation, Symbol, pointwise_spec
from ..ops.statics import check_statics

if TYPE_CHECKING:
    from .ir import Graph

__all__ = ["verified"]

Program = TypeVar("Program", "Graph", Routine)


def verified(graph: Program, trusted: set[int] | None = None) -> Program:
    """Raise `GraphError` if the graph is not sound. The specs of `trusted` equations (by id) are not asked again: an
    equation never changes, so between passes only the new ones are.
    """
    known: set[int] = set()
    for symbol in graph.inputs:
        _make(known, symbol, "inputs")
    for number, e in enumerate(graph.equations):
        for i, a in enumerate(e.args):
            if isinstance(a, Symbol) and id(a) not in known:
                raise GraphError(f"{_line(number, e)}: argument {i} ({a.spec}) is no input and no earlier result.")
        for symbol in e.results:
            if not isinstance(symbol, Symbol) or id(symbol) in known:
                _make(known, symbol, _line(number, e))
            known.add(id(symbol))
        if trusted is None or id(e) not in trusted:
            _check_routines(number, e)
            _check_specs(number, e)
    for i, o in enumerate(graph.outputs):
        if isinstance(o, Symbol) and id(o) not in known:
            raise GraphError(f"output {i} ({o.spec}) is no input and no result of an equation.")
    return graph


def _check_routines(number: int, e: Equation) -> None:
    """The programs inside are sound by themselves; whether they fit the arguments is the op's to say."""
    for routine in routines_in([e]):
        try:
            verified(routine)
        except GraphError as error:
            raise GraphError(f"{_line(number, e)}, in a routine: {error}") from None


def _line(number: int, e: Equation) -> str:
    return f"equation {number}, {e.op.name}"


def _make(known: set[int], symbol: Any, where: str) -> None:
    if not isinstance(symbol, Symbol):
        raise GraphError(f"{where}: a {type(symbol).__name__} stands where a symbol should be made.")
    if id(symbol) in known:
        raise GraphError(f"{where}: {symbol.spec} is made twice.")
    known.add(id(symbol))


def _check_specs(number: int, e: Equation) -> None:
    names = e.op.args
    few, many = (len(names) - 1, None) if names[-1:] and names[-1].startswith("*") else (len(names), len(names))
    if len(e.args) < few or (many is not None and len(e.args) > many):
        raise GraphError(f"{_line(number, e)}: takes {', '.join(names)}, got {len(e.args)} arguments.")
    try:
        specs = tuple([spec_of(a) for a in e.args])
        check_statics(e.op, specs, e.static)
        made = (
            e.op.spec_of(specs, e.static) if e.op.family != "elementwise" or e.static else pointwise_spec(e.op, specs)
        )
    except PullbackError as error:
        raise GraphError(f"{_line(number, e)}: {error}") from None
    except Exception as error:  # a graph that was read may say anything
        raise ArgumentError(f"{_line(number, e)}: its arguments do not fit: {error}") from None
    said = tuple(s.spec for s in e.results)
    wanted = made if type(made) is tuple else (made,)
    if said != wanted:
        raise GraphError(f"{_line(number, e)}: makes {_shown(wanted)}, the graph says {_shown(said)}.")


def _shown(specs: tuple[Spec, ...]) -> str:
    return ", ".join(map(str, specs)) or "nothing"
