"""The two runs of a checkpoint as instruments: what the first records, the second supplies and compares.

The first run records which op saved what, the variables that it rebinds (running statistics), what the engine decided,
and the results that a policy saves or that may not be computed twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...arrays.call_site import format_line
from ...arrays.scope import new_level
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...errors import RecomputeError
from ...instrument import Instrument, OpCall, SavedSlot
from ...ops.forms import Name
from ...ops.op import Op
from ...ops.saved_values import SavedValue
from ...program.ir import Symbol
from ...settings import installed, override_modes
from ...transforms.control.staging import is_staged
from .arguments import add_merge_barrier
from .fingerprint import Fingerprint, fingerprint_value
from .save_policies import SavePolicy

if TYPE_CHECKING:
    from .region import Region

_CAUSES = (
    "  Likely causes: a global or closed-over variable changed in between, a parameter was updated before the backward "
    "pass,\n  an array was written to, random numbers from a generator that is not among the arguments, or an `if` on "
    "any of these.\n  Pass what the function depends on as arguments. If it is meant to differ from run to run, "
    "verify=False compares no values."
)


class Promise(SavedValue):
    """Stands for a value that the region recomputes. It holds the value itself during the first run, for a backward
    pass inside the function, and from a recomputation until a rule asks for it.

    As long as the value is alive elsewhere, nothing need be recomputed: a weak reference finds it. A symbol of a
    traced program is never found in this way: the program computes it again.
    """

    __slots__ = ("__weakref__", "_reference", "_region", "_staged", "held", "spec")
    may_be_overwritten = False

    def __init__(self, region: Region, value: Any, spec: Spec) -> None:
        self._region = region
        self.held = value
        self.spec = spec
        self._staged = is_staged(value)
        self._reference = None if region.verify is True else weak_reference(value)

    def peek(self) -> Any:
        """The value if it can be had without computing, else None."""
        # a traced value must be computed by the program again, or nothing would be saved
        if self.held is not None or self._reference is None or self._staged:
            return self.held
        return self._reference()

    def fulfill(self, value: Any) -> None:
        self.held, self._reference = value, weak_reference(value)

    def adopt(self, value: Any) -> None:
        """The value will die soon: hold it."""
        if self._reference is not None and self._reference() is value:
            self.held = value

    def value(self) -> Any:
        region = self._region
        # another worker may be recomputing for its own promise
        with region.lock:
            found = self.peek()
            if found is None:
                region.recompute()
                found = self.peek()
            # within the first run a second pass may come; later a value is asked for once
            if not region.running:
                self.held = None
                region.hand_over_arguments()
            return found

    def pass_over(self) -> None:
        with self._region.lock:
            if not self._region.running:
                self.held = None


def weak_reference(value: Any) -> Any:
    """A function that returns a value while it lives; None for duals and their like, which have no weak references."""
    if type(value) is Symbol:  # small, and part of a program that lives as long
        return lambda: value
    try:
        return weakref.ref(value)
    except TypeError:
        return None


class SavedEntry(NamedTuple):
    """One value that was saved, where, and how to know it again. `reference` tells whether a leaf was rebound since."""

    slot: SavedSlot
    spec: Spec
    fingerprints: tuple[Fingerprint, ...]
    reference: Any

    def agrees(self, slot: SavedSlot, value: Any) -> bool:
        """Whether a recomputation saves the same here, but for the values themselves."""
        # specs are cached, so that most comparisons are by identity
        spec, then = spec_of(value), self.slot
        return (
            (spec is self.spec or spec == self.spec)
            and slot.name == then.name
            and slot.position == then.position
            and (slot.leaf is None or slot.leaf is not then.leaf or not self.reference or self.reference() is value)
        )

    def has_same_numbers(self, value: Any, exact: bool) -> bool:
        """Whether a recomputed value equals the first one."""
        if not self.fingerprints:
            return True
        return all(a.agrees(b, exact) for a, b in zip(self.fingerprints, fingerprint_value(value), strict=True))

    def __str__(self) -> str:
        code, lasti = self.slot.line
        where = "an unknown line" if code is None else format_line(code, lasti)
        return f"{self.slot}, {self.spec}, at {where}"


class SavedResult(NamedTuple):
    """The saved result of an op: how to load it, the number of the op that follows, and the specs of its arguments."""

    load: Callable[[], Any]
    next_op: int
    op: Op
    input_specs: tuple[Spec, ...]

    def check(self, op: Op, values: Sequence[Any]) -> None:
        """Raise unless the op that asks for it is the one that computed it."""
        # a number alone could hand the result of one op to another
        if op is not self.op or _specs_of(values) != self.input_specs:
            raise RecomputeError(
                "checkpoint: the recomputation differs from the first run.\n"
                f"  first run: saved the result of {_format_call(self.op, self.input_specs)}\n"
                f"  recomputed: {_format_call(op, _specs_of(values))} in its place\n"
                "  Likely causes: an `if` on something that changed in between, such as a global variable or a random "
                "number. Pass what the function depends on as arguments."
            )


def _specs_of(values: Sequence[Any]) -> tuple[Spec, ...]:
    return tuple(map(spec_of, values))


def _format_call(op: Op, given: Sequence[Spec]) -> str:
    return f"{op.name}({', '.join(map(str, given))})"


class FirstRun(Instrument):
    """The first run: nodes save promises, and the region records what a second run will need."""

    __slots__ = ("_count", "_floor", "_last", "_level", "_makers", "_policy", "_region", "chooses_ops", "sees_every_op")

    #: The depth of the deepest node of all first runs so far.
    _deepest = 0

    def __init__(self, region: Region, policy: SavePolicy) -> None:
        self._region, self._policy = region, policy
        self._floor = FirstRun._deepest
        self._count = 0
        self._last: tuple[Any, tuple[Fingerprint, ...]] | None = None
        self._makers: dict[int, tuple[Any, int, int, Op, tuple[Spec, ...]]] = {}
        self._level = new_level()  # transforms that begin in the run have higher ones
        self.sees_every_op = self.chooses_ops = region.counts_every_op = bool(policy.chooses or policy.names)

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        region = self._region
        region.save_arguments()
        if slot.leaf is None or slot.leaf in region.argument_nodes:
            entry = SavedEntry(slot, spec_of(value), self._fingerprints(value), None)
            promise = Promise(region, value, entry.spec)
            region.log.append(entry)
            region.promises.append(weakref.ref(promise))
            return promise
        # a leaf lives on anyway, so the node may hold it; its identity is enough unless every bit counts
        prints = self._fingerprints(value) if region.verify is True else ()
        region.log.append(SavedEntry(slot, spec_of(value), prints, weak_reference(value)))
        region.promises.append(None)
        return value

    def _fingerprints(self, value: Any) -> tuple[Fingerprint, ...]:
        """The fingerprint of a saved value; most are saved twice, by the op that made it and by the next."""
        if self._region.verify is False:
            return ()
        if self._last is None or self._last[0]() is not value:
            reference = weak_reference(value)
            if reference is None:
                return fingerprint_value(value)
            self._last = reference, fingerprint_value(value)
        return self._last[1]

    def node_made(self, node: Any) -> None:
        """Nodes of this run lie deeper than those of earlier ones. A backward pass takes the deepest first, so regions
        side by side (blocks of rows, parts of a batch) are recomputed and freed one after the other.
        """
        node.order = max(node.order, self._floor + 1)
        FirstRun._deepest = max(FirstRun._deepest, node.order)

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        """Compute, and save the result where the policy says so. A result during which values of lower levels were
        saved must be recomputed for their sake, and one of an inner transform is useless when that is over.
        """
        region, policy, op = self._region, self._policy, call.op
        if not region.counts(call):
            return below()
        # ops at all levels count alike in both runs, nested ones after the outer one
        number, before = self._count, len(region.log)
        self._count += 1
        if call.effects.runs_once and call.level <= 1:
            return self._compute_once(call, below, number)
        out = below()
        # supplying it would skip those values, and the numbers of all that follow would be off
        if type(out) is tuple or len(region.log) != before:
            return out
        if isinstance(out, Value) and out.level > self._level:
            return out
        if policy.chooses is not None and policy.chooses(op, spec_of(out).nbytes):
            region.saved[number] = SavedResult(policy.store(out), self._count, op, _specs_of(call.values))
        if policy.names:
            self._save_named(call, out, number)
        return out

    def _compute_once(self, call: OpCall, below: Callable[[], Any], number: int) -> Any:
        """An op that may not run again: what it saves inside itself is no part of this graph."""
        with override_modes(instruments=installed().isolate()):
            out = below()
        self._region.saved[number] = SavedResult(lambda: out, self._count, call.op, _specs_of(call.values))
        return out

    def _save_named(self, call: OpCall, out: Any, number: int) -> None:
        """A name is given after the value was made: save it as the result of the op that made it."""
        # makers are known by identity, as long as their results live
        value = call.values[0]
        if isinstance(call.op.form, Name) and call.static["name"] in self._policy.names:
            found = self._makers.get(id(value))
            if found is not None and found[0]() is value:
                self._region.saved[found[1]] = SavedResult(self._policy.store(value), *found[2:])
        elif (reference := weak_reference(out)) is not None:
            self._makers[id(out)] = reference, number, self._count, call.op, _specs_of(call.values)

    def rebinds(self, tensor: Tensor) -> None:
        self._region.start.note_tensor(tensor)

    def sets_attribute(self, holder: Any, name: str) -> None:
        self._region.start.note_attribute(holder, name)

    def registers_hook(self, handle: Any) -> None:
        """It stays: an extra run inside this one does not remove it."""

    def decide(self, found: bool) -> bool:
        self._region.decisions.append(found)
        return found

    def branch(self, below: Callable[[], bool]) -> bool:
        found = below()
        self._region.branches.append(found)
        return found


class RecomputeFinished(BaseException):
    """All that is needed was computed; not an `Exception`, so that handlers in user code let it pass."""


class SecondRun(Instrument):
    """A recomputation: supplies what the first run saved and decided, compares what it saves, fulfills promises, and
    stops after the last one needed.
    """

    __slots__ = ("_branches", "_count", "_decisions", "_region", "chooses_ops", "last", "number", "sees_every_op")

    def __init__(self, region: Region, last: int) -> None:
        self._region, self.last = region, last
        self._decisions, self._branches = iter(region.decisions), iter(region.branches)
        self._count = self.number = 0
        self.sees_every_op = self.chooses_ops = region.counts_every_op

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        region, number = self._region, self.number
        if number > self.last:  # a user's handler caught the stop and went on
            raise RecomputeFinished
        if number >= len(region.log) or not region.log[number].agrees(slot, value):
            raise self._difference_error(value, slot, other_numbers=False)
        # a promise whose node is gone wants nothing
        reference = region.promises[number]
        promise = None if reference is None else reference()
        # numbers are compared only where they will be used: a fingerprint costs a read of the array
        wanted, exact = promise is not None and promise.peek() is None, region.verify is True
        if (wanted or exact) and not region.log[number].has_same_numbers(value, exact):
            raise self._difference_error(value, slot, other_numbers=True)
        if promise is not None and wanted:
            promise.fulfill(value)
        self.number = number + 1
        if number == self.last:
            raise RecomputeFinished
        return value

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        if not self._region.counts(call):
            return below()
        number = self._count
        self._count += 1
        saved = self._region.saved.get(number)
        if saved is None:
            return below()
        saved.check(call.op, call.values)
        # ops that ran inside of this one in the first run have numbers too: skip them
        self._count = saved.next_op
        return add_merge_barrier(saved.load())

    def decide(self, found: bool) -> bool:
        # calls that ran then are over now, so the engine would decide otherwise
        return next(self._decisions, found)

    def branch(self, below: Callable[[], bool]) -> bool:
        # in a program, a value that is computed again is another value, and its branch another branch
        found = next(self._branches, None)
        return below() if found is None else found

    def check_complete(self) -> None:
        """The run has ended: raise if it saved less than the first."""
        region, count = self._region, self.number
        if count < len(region.log) and (region.verify is True or count <= self.last):
            raise RecomputeError(
                f"checkpoint: the recomputation of {region.name} differs from its first run: it saved {count} values "
                f"of {len(region.log)}.\n  first run: {region.log[count]}\n  recomputed: ended before that\n{_CAUSES}"
            )

    def _difference_error(self, value: Any, slot: SavedSlot, other_numbers: bool) -> RecomputeError:
        """The recomputation saves other values than the first run."""
        region, number = self._region, self.number
        now = str(SavedEntry(slot, spec_of(value), (), None))
        if number >= len(region.log):
            then = f"nothing: it saved {len(region.log)} values"
        elif other_numbers:
            then = f"{region.log[number]}, with other values"
        elif str(region.log[number]) == now:
            then = f"{now}, when the tensor had another value"
        else:
            then = str(region.log[number])
        return RecomputeError(
            f"checkpoint: the recomputation of {region.name} differs from its first run, at saved value {number + 1}.\n"
            f"  first run: {then}\n  recomputed: {now}\n{_CAUSES}"
        )
