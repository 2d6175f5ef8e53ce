"""A user's function in, its program out, with the state that it keeps outside of itself made inputs and outputs.

What a function sets while it runs (running statistics of a layer, a hidden state in an attribute, a tensor updated in
place) is its *state*. It is found by tracing once and looking which places hold symbols afterwards. The function is
then traced again with symbols standing in those places, so that whatever is computed of the state belongs to the
program; a call reads the state, runs, and puts what came out back. After each trace every place is as it was before.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..arrays.backends import is_array
from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import GraphError, LeakError, PullbackError
from ..ops.specialise import Constants, Equation, Symbol, write_down
from ..settings import PLAIN, switched
from ..transforms.batching import Batched
from ..transforms.forward import Dual
from .closures import Watched
from .places import MISSING, ItemPlace, Place, TensorPlace

__all__ = ["State", "Traced", "refuse_side_effects", "traced"]

#: Rounds in which more state may turn up; one is the rule.
_ROUNDS = 8


@dataclass(slots=True)
class State:
    """A place that the function sets: the structure and the specs of what it reads there, those of what it leaves."""

    place: Place
    given: Any
    specs: list[Spec]
    structure: Any = None
    count: int = 0

    def read(self) -> list[Any] | None:
        """What stands there now, as inputs of the program; None if it is not of the kind that was traced."""
        leaves, structure = _leaves(self.place.get())
        fits = structure == self.given and [spec_of(x) for x in leaves if _is_array(x)] == self.specs
        return leaves if fits and len(leaves) == len(self.specs) else None

    def write(self, leaves: Sequence[Any]) -> None:
        found = [_settled_state(x, self.place) for x in leaves]
        if isinstance(self.place, TensorPlace):
            self.place.put(found[0])
        else:
            self.place.put(unflatten(self.structure, found))


@dataclass(slots=True)
class Traced:
    """Inputs are those of the arguments, then those of the states; outputs likewise."""

    inputs: list[Symbol]
    equations: list[Equation]
    outputs: list[Any]
    states: list[State]
    constants: Constants


def traced(
    function: Callable[..., list[Any]],
    specs: Sequence[Spec],
    seen: Watched,
    name: str,
    lines: dict[int, Any] | None = None,
) -> Traced:
    """A function of symbols as equations, the same ones whatever modes the call is in: instruments see what runs.
    `lines` is filled with the user's line of each equation.
    """
    states: list[State] = []
    for _ in range(_ROUNDS):
        found, more = _round(function, specs, seen, states, name, lines)
        if not more:
            return found
        states += more
        for place, was in list(seen.changes()):  # a trace that does not count leaves nothing behind
            place.put(was)
    raise GraphError(f"jit: {name} sets other attributes or variables each time it runs, so it has no fixed state.")


def refuse_side_effects(seen: Watched, name: str) -> None:
    """Raise if a trace drew from a random stream or an iterator, or wrote to an array of the user's: later calls, which
    run no Python, would not.
    """
    drawn = seen.drawn()
    if drawn is not None:
        raise GraphError(
            f"jit: {name} draws from {drawn}, which a compiled function would do only once.\n"
            "  Pass what is drawn as an argument, or use pb.random with a key that is an argument."
        )
    written = seen.written()
    if written:
        raise GraphError(
            f"jit: {name} writes to an array of shape {written[0].shape} that it captures, which a compiled function "
            "would do only once.\n  Make the array inside of the function, or return the new values."
        )


def _round(
    function: Callable[..., list[Any]],
    specs: Sequence[Spec],
    seen: Watched,
    states: list[State],
    name: str,
    lines: dict[int, Any] | None,
) -> tuple[Traced, list[State]]:
    constants = Constants(seen.live)
    restorers = [_saved(state.place) for state in states]
    given = [spec for state in states for spec in state.specs]
    left: list[list[Any]] = []
    scopes: list[Scope] = []

    def run(*symbols: Symbol) -> list[Any]:
        scope = symbols[0].scope
        scopes.append(scope)
        scope.rebound = []
        at = len(specs)
        for state in states:
            if state.specs:
                _put_symbols(state.place, unflatten(state.given, symbols[at : at + len(state.specs)]))
            at += len(state.specs)
        outs = function(*symbols[: len(specs)])
        for state in states:
            leaves, state.structure = _leaves(_content(state.place))
            state.count = len(leaves)
            left.append([_lowered(x, scope, state.place) for x in leaves])
        return [*outs, *(x for leaves in left for x in leaves)]

    try:
        with switched(**asdict(PLAIN)):
            inputs, equations, outputs = write_down(run, *specs, *given, name="jit", constants=constants, lines=lines)
        found, leaks = _set_meanwhile(seen, scopes[0], states)
    except BaseException:  # also when f fails nothing of the trace is left behind
        for scope in scopes:
            _set_meanwhile(seen, scope, states)
        raise
    finally:
        for restore in restorers:
            restore()
    if leaks:
        raise LeakError(
            f"jit: {name} adds a traced value to a list that outlives the call.\n"
            "  A compiled function runs no Python at later calls: return the value instead."
        )
    return Traced(inputs, equations, list(outputs), states, constants), found


def _content(place: Place) -> Any:
    """What stands at a place; of a tensor, what it points at."""
    return place.tensor.value if isinstance(place, TensorPlace) else place.get()


def _put_symbols(place: Place, value: Any) -> None:
    """For the time of a trace; a tensor is no leaf meanwhile, since its symbol is none."""
    if isinstance(place, TensorPlace):
        place.tensor.value, place.tensor.spec, place.tensor.node = value, value.spec, None
    else:
        place.put(value)


def _saved(place: Place) -> Callable[[], None]:
    """A function that makes a place what it is now."""
    if not isinstance(place, TensorPlace):
        return functools.partial(place.put, place.get())
    tensor = place.tensor
    value, spec, node, status = tensor.value, tensor.spec, tensor.node, tensor.status

    def restore() -> None:
        tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status

    return restore


def _set_meanwhile(seen: Watched, scope: Scope, states: Sequence[State]) -> tuple[list[State], bool]:
    """The places that hold values of the trace and are no state yet, put back to what they held before; and whether
    some were added to a list, which cannot be done again at each call.
    """
    known = {state.place.key for state in states}
    found: list[State] = []
    added = False
    for place, was in list(seen.changes()):
        if place.key not in known and _holds_any(place.get(), scope):
            place.put(was)
            if isinstance(place, ItemPlace) and isinstance(place.holder, list) and was is MISSING:
                added = True
            else:
                found.append(_state(place, was))
    return found + _rebound(scope, known), added


def _rebound(scope: Scope, known: set[Any]) -> list[State]:
    """The tensors from outside that were pointed at values of the trace, pointed back."""
    references = _pointed_back(scope, known)
    places = [TensorPlace(tensor) for reference in references if (tensor := reference()) is not None]
    return [_state(place, place.tensor.value) for place in places]


def _pointed_back(scope: Scope, known: set[Any]) -> list[weakref.ref[Tensor]]:
    """Weak references, so that tensors that were made inside of the trace are gone when this returns."""
    first: dict[int, tuple[Any, ...]] = {}
    for note in scope.rebound or []:
        first.setdefault(id(note[0]), note)
    scope.rebound = None
    changed = []
    for tensor, value, spec, node, status in first.values():
        if TensorPlace(tensor).key not in known:
            changed += [weakref.ref(tensor)] if tensor.value is not value else []
            tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status
    return changed


def _state(place: Place, was: Any) -> State:
    leaves, structure = _leaves(was)
    arrays = all(map(_is_array, leaves))  # numbers are no inputs: with them the function is traced anew
    return State(place, structure, [spec_of(x) for x in leaves] if arrays else [])


def _leaves(tree: Any) -> tuple[list[Any], Any]:
    if tree is MISSING:
        return [], MISSING
    try:
        return flatten(tree)
    except (PullbackError, ValueError, TypeError):
        return [tree], None


def _is_array(x: Any) -> bool:
    return isinstance(x, Value) or is_array(x)


def _holds_any(tree: Any, scope: Scope) -> bool:
    return any(isinstance(x, Value) and x.level >= scope.level for x in _leaves(tree)[0])


def _settled_state(x: Any, place: Place) -> Any:
    """What is put into a place after a call: a value of the tape as it is, of another transform none."""
    if not isinstance(x, Value):
        return x
    if type(x) is Tensor:
        below = _settled_state(x.value, place)
        if x.node is None or below is x.value:
            return below if x.node is None else x
    elif type(x) is Dual and x.along is None:
        return _settled_state(x.primal, place)
    elif type(x) is Batched and x.axis is None:
        return _settled_state(x.value, place)
    raise _transformed(place)


def _lowered(x: Any, scope: Scope, place: Place) -> Any:
    """A value left in a place, at the level of the trace: state is not differentiated through inside of a call."""
    while type(x) is Tensor and x.level > scope.level:
        x = x.value
    if isinstance(x, Value) and x.level > scope.level:
        raise _transformed(place)
    return x


def _transformed(place: Place) -> LeakError:
    return LeakError(
        f"jit: {place} is set to a value that differs by element of a vmap, or belongs to another transform.\n"
        "  Pass the module or the state as an argument, and return the new one."
    )
