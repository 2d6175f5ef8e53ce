"""Graph in, the same graph out if it is sound: every argument is defined, every spec is what the op infers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError, GraphError, PullbackError
from ..ops.routine import Routine, routines_in
from ..ops.specialize import Equation, Symbol, pointwise_spec
from ..ops.statics import check_statics

if TYPE_CHECKING:
    from .ir import Graph

ProgramT = TypeVar("ProgramT", "Graph", Routine)


def verify_graph(graph: ProgramT, trusted: set[int] | None = None) -> ProgramT:
    """Raise `GraphError` if the graph is not sound. The specs of `trusted` equations (by id) are not checked
    again: an equation never changes, so after a pass only the new ones are.
    """
    known: set[int] = set()
    for symbol in graph.inputs:
        _define_symbol(known, symbol, "inputs")
    for number, e in enumerate(graph.equations):
        for i, a in enumerate(e.args):
            if isinstance(a, Symbol) and id(a) not in known:
                raise GraphError(
                    f"{_describe_equation(number, e)}: argument {i} ({a.spec}) is no input and no earlier result."
                )
        for symbol in e.results:
            if not isinstance(symbol, Symbol) or id(symbol) in known:
                _define_symbol(known, symbol, _describe_equation(number, e))
            known.add(id(symbol))
        if trusted is None or id(e) not in trusted:
            _check_routines(number, e)
            _check_specs(number, e)
    for i, o in enumerate(graph.outputs):
        if isinstance(o, Symbol) and id(o) not in known:
            raise GraphError(f"output {i} ({o.spec}) is no input and no result of an equation.")
    return graph


def _check_routines(number: int, e: Equation) -> None:
    """Verify nested programs by themselves; whether they fit the arguments is checked by the op's spec rule."""
    for routine in routines_in([e]):
        try:
            verify_graph(routine)
        except GraphError as error:
            raise GraphError(f"{_describe_equation(number, e)}, in a routine: {error}") from None


def _describe_equation(number: int, e: Equation) -> str:
    return f"equation {number}, {e.op.name}"


def _define_symbol(known: set[int], symbol: Any, where: str) -> None:
    if not isinstance(symbol, Symbol):
        raise GraphError(f"{where}: a {type(symbol).__name__} stands where a symbol should be made.")
    if id(symbol) in known:
        raise GraphError(f"{where}: {symbol.spec} is made twice.")
    known.add(id(symbol))


def _check_specs(number: int, e: Equation) -> None:
    names = e.op.args
    few, many = (len(names) - 1, None) if names[-1:] and names[-1].startswith("*") else (len(names), len(names))
    if len(e.args) < few or (many is not None and len(e.args) > many):
        raise GraphError(f"{_describe_equation(number, e)}: takes {', '.join(names)}, got {len(e.args)} arguments.")
    try:
        specs = tuple([spec_of(a) for a in e.args])
        check_statics(e.op, specs, e.static)
        made = (
            e.op.spec_of(specs, e.static) if e.op.family != "elementwise" or e.static else pointwise_spec(e.op, specs)
        )
    except PullbackError as error:
        raise GraphError(f"{_describe_equation(number, e)}: {error}") from None
    except Exception as error:  # a graph that was read may contain anything
        raise ArgumentError(f"{_describe_equation(number, e)}: its arguments do not fit: {error}") from None
    recorded = tuple(s.spec for s in e.results)
    wanted = made if type(made) is tuple else (made,)
    if recorded != wanted:
        raise GraphError(
            f"{_describe_equation(number, e)}: makes {_format_specs(wanted)}, the graph has {_format_specs(recorded)}."
        )


def _format_specs(specs: tuple[Spec, ...]) -> str:
    return ", ".join(map(str, specs)) or "nothing"
