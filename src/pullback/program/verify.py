"""Program in, the same one out if it is sound: every spec is what the op infers, in nested programs too."""

from __future__ import annotations

from collections.abc import Set

from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError, GraphError, PullbackError
from ..ops.statics import check_statics
from .ir import Equation, Program, describe_equation, nested_programs, pointwise_spec


def verify_program(program: Program, trusted: Set[int] = frozenset()) -> Program:
    """Raise `GraphError` if a spec is wrong; that symbols are defined was checked when the program was made. The specs
    of `trusted` equations (by id) are not checked again: an equation never changes, so after a pass only the new ones
    are.
    """
    for number, e in enumerate(program.equations):
        if id(e) not in trusted:
            _verify_nested(number, e)
            _check_specs(number, e)
    return program


def _verify_nested(number: int, e: Equation) -> None:
    """Verify nested programs by themselves; whether they fit the arguments is checked by the op's spec rule."""
    for program in nested_programs([e]):
        try:
            verify_program(program)
        except GraphError as error:
            raise GraphError(f"{describe_equation(number, e)}, in a routine: {error}") from None


def _check_specs(number: int, e: Equation) -> None:
    names = e.op.args
    few, many = (len(names) - 1, None) if names[-1:] and names[-1].startswith("*") else (len(names), len(names))
    if len(e.args) < few or (many is not None and len(e.args) > many):
        raise GraphError(f"{describe_equation(number, e)}: takes {', '.join(names)}, got {len(e.args)} arguments.")
    try:
        specs = tuple([spec_of(a) for a in e.args])
        check_statics(e.op, specs, e.static)
        made = (
            e.op.spec_of(specs, e.static) if e.op.family != "elementwise" or e.static else pointwise_spec(e.op, specs)
        )
    except PullbackError as error:
        raise GraphError(f"{describe_equation(number, e)}: {error}") from None
    except Exception as error:  # a graph that was read may contain anything
        raise ArgumentError(f"{describe_equation(number, e)}: its arguments do not fit: {error}") from None
    recorded = tuple(s.spec for s in e.results)
    wanted = made if type(made) is tuple else (made,)
    if recorded != wanted:
        raise GraphError(
            f"{describe_equation(number, e)}: makes {_format_specs(wanted)}, the graph has {_format_specs(recorded)}."
        )


def _format_specs(specs: tuple[Spec, ...]) -> str:
    return ", ".join(map(str, specs)) or "nothing"
