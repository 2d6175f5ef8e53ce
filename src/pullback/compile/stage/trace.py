"""Traces a user's function; state that it keeps outside of itself becomes inputs and outputs of the program.

What a function sets while it runs (running statistics of a layer, a hidden state in an attribute, a tensor updated in
place) is its *state*. It is found by tracing once and looking which places hold symbols afterwards. The function is
then traced again with symbols standing in those places, so that whatever is computed of the state belongs to the
program; a call reads the state, runs, and stores the new state. After each trace every place is restored.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arrays.backends import is_array
from ...arrays.closures import MISSING
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import GraphError, LeakError, PullbackError
from ...program.constants import Constants
from ...program.decisions import Decisions
from ...program.ir import Program, Symbol
from ...program.stage import stage
from ...settings import PLAIN, modes, override_modes
from ...transforms.control.paths import paths_disagree_error, stage_paths
from ...transforms.forward import Dual
from ...transforms.vectorize import Batched
from .closure import ClosureSnapshot
from .locations import ItemLocation, Location, TensorLocation

#: The most rounds in which more state may turn up; usually one does.
_ROUNDS = 8


@dataclass(slots=True)
class TracedState:
    """A place that the function sets: the structure and the specs of what it reads there, and of what it leaves."""

    place: Location
    given: Any
    specs: list[Spec]
    structure: Any = None
    count: int = 0

    def read(self) -> list[Any] | None:
        """The current value, as inputs of the program; None if it is not of the kind that was traced."""
        leaves, structure = _flatten_or_wrap(self.place.get())
        fits = structure == self.given and [spec_of(x) for x in leaves if _is_array(x)] == self.specs
        return leaves if fits and len(leaves) == len(self.specs) else None

    def write(self, leaves: Sequence[Any]) -> None:
        found = [_unwrap_new_state(x, self.place) for x in leaves]
        if isinstance(self.place, TensorLocation):
            self.place.put(found[0])
        else:
            self.place.put(unflatten(self.structure, found))


@dataclass(slots=True)
class TracedProgram:
    """Inputs of the program are those of the arguments, then those of the states; outputs likewise."""

    program: Program
    states: list[TracedState]
    constants: Constants


def trace_function(
    function: Callable[..., list[Any]],
    specs: Sequence[Spec],
    seen: ClosureSnapshot,
    name: str,
    lines: dict[int, Any] | None = None,
) -> TracedProgram:
    """A function of symbols as equations, the same ones whatever modes the call is in: instruments see what runs.
    `lines` is filled with the user's line of each equation.
    """
    states: list[TracedState] = []
    for _ in range(_ROUNDS):
        found, more = _trace_once(function, specs, seen, states, name, lines)
        if not more:
            return found
        states += more
        for place, was in list(seen.changes()):  # a trace that does not count leaves nothing behind
            place.put(was)
    raise GraphError(f"jit: {name} sets other attributes or variables each time it runs, so it has no fixed state.")


class SideEffectError(GraphError):
    """A function did while it was traced what a compiled one would do only once."""


def refuse_side_effects(seen: ClosureSnapshot, name: str) -> None:
    """Raise if a trace drew from a random stream or an iterator, or wrote to an array of the user's: later calls, which
    run no Python, would not.
    """
    drawn = seen.drawn_source()
    if drawn is not None:
        raise SideEffectError(
            f"jit: {name} draws from {drawn}, which a compiled function would do only once.\n"
            "  Pass what is drawn as an argument, or use pb.random with a key that is an argument."
        )
    written = seen.overwritten_arrays()
    if written:
        raise SideEffectError(
            f"jit: {name} writes to an array of shape {written[0].shape} that it captures, which a compiled function "
            "would do only once.\n  Make the array inside of the function, or return the new values."
        )


def _trace_once(
    function: Callable[..., list[Any]],
    specs: Sequence[Spec],
    seen: ClosureSnapshot,
    states: list[TracedState],
    name: str,
    lines: dict[int, Any] | None,
) -> tuple[TracedProgram, list[TracedState]]:
    # arrays that the snapshot watches are reread at each call, so they are not copied
    constants = Constants(seen.live)
    given = [spec for state in states for spec in state.specs]
    paths: list[_Path] = []

    def trace_path(decisions: Decisions) -> Program:
        paths.append(path := _Path())
        run = functools.partial(_run_path, function, len(specs), states, path)
        restorers = [_make_restorer(state.place) for state in states]
        try:
            here = modes()
            plain = PLAIN._replace(autocast=here.autocast, rank=here.rank, locates=here.locates)
            with override_modes(**plain._asdict()):
                program = stage(run, *specs, *given, name="jit", constants=constants, lines=lines, decisions=decisions)
            path.found, path.leaks = _collect_new_states(seen, path.scopes[0], states)
        except BaseException:  # also when f raises, nothing of the trace is left behind
            for scope in path.scopes:
                _collect_new_states(seen, scope, states)
            raise
        finally:
            for restore in restorers:
                restore()
        pairs = zip(states, path.structures, paths[0].structures, strict=True)
        if differing := [state.place for state, now, first in pairs if now != first]:
            raise paths_disagree_error(f"jit: {name}", differing)
        return program

    program = stage_paths(trace_path, f"jit: {name}", seen)
    if any(path.leaks for path in paths):
        raise LeakError(
            f"jit: {name} adds a traced value to a list that outlives the call.\n"
            "  A compiled function runs no Python at later calls: return the value instead."
        )
    more = {state.place.key: state for path in paths for state in path.found}
    return TracedProgram(program, states, constants), list(more.values())


@dataclass(slots=True)
class _Path:
    """What one trace of a function left behind; there are several where Python branches on traced values."""

    scopes: list[Scope] = field(default_factory=list)
    found: list[TracedState] = field(default_factory=list)
    #: What each state was set to: its structure.
    structures: list[Any] = field(default_factory=list)
    leaks: bool = False


def _run_path(
    function: Callable[..., list[Any]], count: int, states: Sequence[TracedState], path: _Path, *symbols: Symbol
) -> list[Any]:
    """The function on symbols, with symbols in the places of its state; the results, and what is in these places."""
    scope = modes().staging.scope
    path.scopes.append(scope)
    scope.rebindings = []
    at = count
    # state that a former round found: symbols stand in its places
    for state in states:
        if state.specs:
            _put_symbols(state.place, unflatten(state.given, symbols[at : at + len(state.specs)]))
        at += len(state.specs)
    outs = list(function(*symbols[:count]))
    for state in states:  # read now: the restorers put the old values back after the trace
        leaves, state.structure = _flatten_or_wrap(_read_content(state.place))
        state.count = len(leaves)
        path.structures.append(state.structure)
        outs += [_unwrap_to_scope(x, scope, state.place) for x in leaves]
    return outs


def _read_content(place: Location) -> Any:
    """The value at a place; of a tensor, the value it is bound to."""
    return place.tensor.value if isinstance(place, TensorLocation) else place.get()


def _put_symbols(place: Location, value: Any) -> None:
    """Put symbols in a place for a trace; a tensor is no leaf meanwhile, since its symbol is none."""
    if isinstance(place, TensorLocation):
        place.tensor.value, place.tensor.spec, place.tensor.node = value, value.spec, None
    else:
        place.put(value)


def _make_restorer(place: Location) -> Callable[[], None]:
    """A function that restores a place to its current value."""
    if not isinstance(place, TensorLocation):
        return functools.partial(place.put, place.get())
    tensor = place.tensor
    value, spec, node, status = tensor.value, tensor.spec, tensor.node, tensor.status

    def restore() -> None:
        tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status

    return restore


def _collect_new_states(
    seen: ClosureSnapshot, scope: Scope, states: Sequence[TracedState]
) -> tuple[list[TracedState], bool]:
    """The places that hold values of the trace and are no state yet, restored; and whether some were appended to a
    list, which cannot be repeated at each call.
    """
    known = {state.place.key for state in states}
    # places that a former round knows were given symbols on purpose
    found: list[TracedState] = []
    added = False
    for place, was in list(seen.changes()):
        if place.key not in known and _holds_traced_value(place.get(), scope):
            place.put(was)
            if isinstance(place, ItemLocation) and isinstance(place.holder, list) and was is MISSING:
                added = True
            else:
                found.append(_make_state(place, was))
    return found + _collect_rebound_tensors(scope, known), added


def _collect_rebound_tensors(scope: Scope, known: set[Any]) -> list[TracedState]:
    """The outer tensors that were rebound to values of the trace, restored."""
    references = _restore_rebound_tensors(scope, known)
    places = [TensorLocation(tensor) for reference in references if (tensor := reference()) is not None]
    return [_make_state(place, place.tensor.value) for place in places]


def _restore_rebound_tensors(scope: Scope, known: set[Any]) -> list[weakref.ref[Tensor]]:
    """Rebind tensors to their old values; weak references, so that tensors made inside of the trace are freed."""
    first: dict[int, tuple[Any, ...]] = {}
    for note in scope.rebindings or []:
        first.setdefault(id(note[0]), note)
    scope.rebindings = None
    changed = []
    for tensor, value, spec, node, status in first.values():
        if TensorLocation(tensor).key not in known and not scope.has_made(tensor, value):
            changed += [weakref.ref(tensor)] if tensor.value is not value else []
            tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status
    return changed


def _make_state(place: Location, was: Any) -> TracedState:
    leaves, structure = _flatten_or_wrap(was)
    arrays = all(map(_is_array, leaves))  # numbers are no inputs: the function is retraced when they change
    return TracedState(place, structure, [spec_of(x) for x in leaves] if arrays else [])


def _flatten_or_wrap(tree: Any) -> tuple[list[Any], Any]:
    if tree is MISSING:
        return [], MISSING
    try:
        return flatten(tree)
    except (PullbackError, ValueError, TypeError):
        return [tree], None


def _is_array(x: Any) -> bool:
    return isinstance(x, Value) or is_array(x)


def _holds_traced_value(tree: Any, scope: Scope) -> bool:
    return any(isinstance(x, Value) and x.level >= scope.level for x in _flatten_or_wrap(tree)[0])


def _unwrap_new_state(x: Any, place: Location) -> Any:
    """The value to store in a place after a call: tensors as they are; values of another transform are an error."""
    if not isinstance(x, Value):
        return x
    if type(x) is Tensor:
        below = _unwrap_new_state(x.value, place)
        if x.node is None or below is x.value:
            return below if x.node is None else x
    elif type(x) is Dual and x.along is None:
        return _unwrap_new_state(x.primal, place)
    elif type(x) is Batched and x.axis is None:
        return _unwrap_new_state(x.value, place)
    raise _transform_leak_error(place)


def _unwrap_to_scope(x: Any, scope: Scope, place: Location) -> Any:
    """A value left in a place, at the level of the trace: inside a call, state is not differentiated."""
    while type(x) is Tensor and x.level > scope.level:
        x = x.value
    if isinstance(x, Value) and x.level > scope.level:
        raise _transform_leak_error(place)
    return x


def _transform_leak_error(place: Location) -> LeakError:
    return LeakError(
        f"jit: {place} is set to a value that differs by element of a vmap, or belongs to another transform.\n"
        "  Pass the module or the state as an argument, and return the new one."
    )
