"""Routine in, the routines of its derivatives and batches out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...arrays.spec import Spec, make_spec
from ...arrays.tensor import Tensor
from ...errors import ArgumentError, ShapeError
from ...ops.batching import lead
from ...ops.routine import Routine, pruned, routine
from ...ops.specialise import Equation, Symbol, replay
from ...ops.statics import Static
from ..batching import Batched, batch_scope, unbatched
from ..forward import jvp
from ..reverse import vjp

__all__ = ["Back", "batched", "floating", "pulled", "pushed"]

T = TypeVar("T")

#: What programs inside of equations are, as static parameters.
ROUTINE = Static("a routine", lambda v, specs, static: isinstance(v, Routine))
ROUTINES = Static(
    "routines, one at least",
    lambda v, specs, static: type(v) is tuple and bool(v) and all(isinstance(r, Routine) for r in v),
)


def floating(specs: Sequence[Spec]) -> tuple[int, ...]:
    """The places of what can have a derivative."""
    return tuple(i for i, spec in enumerate(specs) if spec.inexact)


def remembered(owner: Routine, key: Any, make: Callable[[], T]) -> T:
    """What is made of a routine is made once."""
    if key not in owner.derived:
        owner.derived[key] = make()
    found: T = owner.derived[key]
    return found


def with_moved(values: Sequence[Any], places: Sequence[int], moved: Sequence[Any]) -> list[Any]:
    found = list(values)
    for i, x in zip(places, moved, strict=True):
        found[i] = x
    return found


def pushed(body: Routine, moving: tuple[int, ...]) -> Routine:
    """(inputs, tangents of those that move) -> (outputs, tangents of the floating ones)."""
    count, floats = len(body.inputs), floating(body.results)

    def both(*values: Any) -> list[Any]:
        xs, dots = values[:count], values[count:]

        def outs_of(*moved: Any) -> Any:
            outs = body.run(*with_moved(xs, moving, moved))
            return [outs[i] for i in floats], outs

        _, tangents, outs = jvp(outs_of, [xs[i] for i in moving], dots, has_aux=True)
        return [*outs, *tangents]

    specs = (*body.specs, *(body.specs[i] for i in moving))
    return remembered(body, ("push", moving), lambda: routine(both, *specs, hoisted=False)[0])


@dataclass(frozen=True, slots=True)
class Back:
    """The way back through a routine: (inputs, its own outputs, cotangents of the `barred` ones) -> cotangents of the
    `wanted` inputs. Where an output stands for something that the way back reads, it is read from there.

    `crossing` are the inputs and values of the routine that the way back reads, outputs or not; `zero` says which
    cotangents are zero whatever comes.
    """

    code: Routine
    crossing: tuple[Symbol, ...]
    zero: tuple[bool, ...]

    def reads(self) -> list[bool]:
        """Which inputs of the code are used."""
        used = {id(a) for e in self.code.equations for a in e.args} | {id(o) for o in self.code.outputs}
        return [id(s) in used for s in self.code.inputs]


def pulled(body: Routine, wanted: tuple[int, ...], barred: tuple[int, ...]) -> Back:
    """The way back from some outputs to some inputs."""
    return remembered(body, ("pull", wanted, barred), lambda: _pulled(body, wanted, barred))


def _pulled(body: Routine, wanted: tuple[int, ...], barred: tuple[int, ...]) -> Back:
    count, results = len(body.inputs), body.results
    made = [s for e in body.equations for s in e.results]
    reached: list[Any] = []

    def shares(*values: Any) -> list[Any]:
        xs, bars = values[:count], values[count + len(results) :]
        if not wanted or not barred:
            return [0.0] * len(wanted)

        def outs_of(*moved: Any) -> Any:
            given = with_moved(xs, wanted, moved)
            found = replay(body.inputs, body.equations, (*body.outputs, *made), given)
            return [found[i] for i in barred], found[len(results) :]

        _, pull, found = vjp(outs_of, *(xs[i] for i in wanted), has_aux=True)
        reached.extend(map(_below, found))
        return list(pull(list(bars)))

    specs = (*body.specs, *results, *(results[i] for i in barred))
    code, _ = routine(shares, *specs, hoisted=False)
    origin = {id(new): old for new, old in zip((*code.inputs[:count], *reached), (*body.inputs, *made), strict=False)}
    crossing = _crossing(code, origin)
    outs = {id(o): new for o, new in zip(body.outputs, code.inputs[count:], strict=False) if isinstance(o, Symbol)}
    place = {new: outs[id(old)] for new, old in origin.items() if id(old) in outs}
    lines = [Equation(e.results, e.op, tuple(place.get(id(a), a) for a in e.args), e.static) for e in code.equations]
    answers = tuple(place.get(id(o), o) for o in code.outputs)
    zero = tuple(not isinstance(o, Symbol) for o in answers)
    return Back(pruned(Routine(code.inputs, tuple(lines), answers)), crossing, zero)


def _below(x: Any) -> Any:
    """What lies below the tape of the way back."""
    return x.value if type(x) is Tensor else x


def _crossing(code: Routine, origin: dict[int, Symbol]) -> tuple[Symbol, ...]:
    """The values of the way there that the rest of the code uses. A mere view of a value is made again, so that the
    value itself crosses.
    """
    maker = {id(s): e for e in code.equations for s in e.results}
    found: dict[int, Symbol] = {}

    def cross(x: Any) -> None:
        while id(x) in maker and maker[id(x)].op.motion == "rearrange":
            moved = [a for a in maker[id(x)].args if isinstance(a, Symbol)]
            if len(moved) != 1 or moved[0].spec.size > x.spec.size:
                break
            x = moved[0]
        if id(x) in origin:
            found.setdefault(id(origin[id(x)]), origin[id(x)])

    for e in code.equations:
        if not all(id(s) in origin for s in e.results):
            for a in e.args:
                cross(a)
    for o in code.outputs:
        cross(o)
    return tuple(found.values())


def batched(body: Routine, axes: tuple[bool, ...], size: int) -> tuple[Routine, tuple[bool, ...]]:
    """The routine over a batch: inputs that have one have it first, and so do the outputs that answer True."""
    flags: list[bool] = []

    def whole(*values: Any) -> list[Any]:
        with batch_scope(size) as scope:
            given = [Batched(x, 0, scope) if has else x for x, has in zip(values, axes, strict=True)]
            outs = [scope_value(x, scope) for x in body.run(*given)]
            flags.extend(has for _, has in outs)
            return [x for x, _ in outs]

    def scope_value(x: Any, scope: Any) -> tuple[Any, bool]:
        if type(x) is not Batched or x.scope is not scope:
            return x, False
        return (x.value, False) if x.axis is None else (unbatched(x, scope, 0), True)

    def make() -> tuple[Routine, tuple[bool, ...]]:
        specs = [
            make_spec((size, *s.shape), s.dtype, s.device) if has else s
            for s, has in zip(body.specs, axes, strict=True)
        ]
        made = routine(whole, *specs, hoisted=False)[0]
        return made, tuple(flags)

    return remembered(body, ("batch", axes, size), make)


def fits(what: str, code: Any, given: Sequence[Spec], carries: int = 0) -> Routine:
    """The routine, if it takes arguments of these specs and hands on what it carries as it was."""
    if not isinstance(code, Routine):
        raise ArgumentError(f"{what}: wants a routine, got a {type(code).__name__}.")
    wanted = [(s.shape, s.dtype) for s in code.specs]
    if wanted != [(s.shape, s.dtype) for s in given]:
        raise ShapeError(f"{what}: takes {', '.join(map(str, code.specs))}, got {', '.join(map(str, given))}.")
    if carries and [(s.shape, s.dtype) for s in code.results[:carries]] != wanted[:carries]:
        raise ShapeError(f"{what}: what it carries has another shape or dtype after a step.")
    return code


def led(x: Any, has: bool, wanted: bool, size: int) -> Any:
    """A value with a batch axis in front if one is wanted."""
    return lead(x, 0 if has else None, size) if wanted else x


def stacked_spec(spec: Spec, length: int) -> Spec:
    return make_spec((length, *spec.shape), spec.dtype, spec.device)
