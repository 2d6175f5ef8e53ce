"""Instruments: what measures ops, saved values and backward passes while they run, or replaces what is saved.

A memory profile, a time profile, a budget, a checkpoint, an anomaly check and saved-value hooks are instruments.
`Modes.instruments` holds the installed ones; with none, eager code pays one identity test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any

# plain classes: named tuples take longer to define than the rest of this module to import


class OpCall:
    """A call that is about to be computed: on bare arrays without a tensor (`level` 0), or on tensors of a level.
    `values` are the arguments one level below, and may be replaced; `tracked`: a node will be made.
    """

    __slots__ = ("args", "level", "op", "static", "tracked", "values")

    def __init__(
        self, op: Any, args: Sequence[Any], values: list[Any], static: dict[str, Any], level: int, tracked: bool
    ) -> None:
        self.op, self.args, self.values, self.static = op, args, values, static
        self.level, self.tracked = level, tracked

    @property
    def effects(self) -> Any:
        """What a second run may do with it."""
        return self.op.effects_of(self.static)


class ProgramCall:
    """A compiled program that is about to run; `workspace()` are the arrays that it has worked in and keeps, `form` is
    what was compiled (`Specialization`). `clocked` may be set to run another build of the same program
    (`pb.profile(steps=True)`).
    """

    __slots__ = ("arrays", "clocked", "form", "name", "workspace")

    def __init__(
        self, name: str, arrays: Sequence[Any], workspace: Callable[[], Sequence[Any]], form: Any = None
    ) -> None:
        self.name, self.arrays, self.workspace, self.form = name, arrays, workspace, form
        self.clocked: Any = None


class Timer:
    """What fast paths report to where all instruments only time: `write` takes one event (`arrays/timing.py`). `plain`,
    `unrecorded` and `inference` are the modes that differ from the common ones of these names by the timer alone; None
    until they are first used. `mark` records an event on the stream of a GPU, where there is one. `user_code` is the
    code of the user's that called last.
    """

    __slots__ = ("inference", "mark", "plain", "unrecorded", "user_code", "write")

    def __init__(self, write: Callable[[tuple[Any, ...]], Any], mark: Callable[[], Any] | None) -> None:
        self.write, self.mark = write, mark
        self.plain = self.unrecorded = self.inference = self.user_code = None


class SavedSlot:
    """Where a value is saved: the name and arguments of the op, the position (an argument's, or `OUT`), the user's
    line, and the node of the leaf whose value it is, if it is one's.
    """

    __slots__ = ("args", "leaf", "line", "name", "position")

    def __init__(
        self, name: str, args: tuple[str, ...], position: int, line: tuple[CodeType | None, int], leaf: Any = None
    ) -> None:
        self.name, self.args, self.position, self.line, self.leaf = name, args, position, line, leaf

    def __str__(self) -> str:
        argument = self.args[min(self.position, len(self.args) - 1)].lstrip("*")
        return f"{self.name} saves {'its result' if self.position < 0 else f'argument {argument}'}"


class Instrument:
    """The methods of an instrument; each does nothing unless it is overridden. All may be called from several threads.

    `measures`: it sees extra runs too, such as the recomputation of a checkpoint. `sees_every_op`: `compute` is called
    for every op, else only for ops that may not be repeated. `holds_last`: `hold` is called after that of all others.
    `chooses_ops`: what it does depends on which op is called, so fused functions run op by op. `only_times`: it looks
    at no values, so ops keep their fast paths, which `write` an event each to it (`arrays/timing.py`).
    """

    __slots__ = ()
    measures = False
    only_times = False
    #: Of one that only times: what records an event on the current stream of a GPU.
    mark: Callable[[], Any] | None = None
    sees_every_op = True
    holds_last = False
    chooses_ops = False
    #: The names of the methods that a class overrides.
    stated: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        names = [name for name in vars(Instrument) if not name.startswith("_") and callable(getattr(cls, name))]
        cls.stated = tuple(name for name in names if getattr(cls, name) is not getattr(Instrument, name))

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        """Around an op: run `below`, which reads `call.values`, and return its result."""
        return below()

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        """Around a compiled program: run `below` and return its results."""
        return below()

    def write(self, event: tuple[Any, ...]) -> None:
        """Something took some time: a stretch of work that is no op, or an op on a fast path."""

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        """What a node holds: the value, or a `SavedValue` that returns it later."""
        return value

    def node_made(self, node: Any) -> None:
        """A node was made; its saved values are set."""

    def backward_begins(self) -> None:
        """A backward pass begins."""

    def backward_ends(self, released: bool) -> None:
        """A backward pass has ended; `released`: its graph was freed."""

    def pull_begins(self, node: Any, bar: Any) -> None:
        """The rule of a node is about to run."""

    def pulled(self, node: Any, shares: tuple[Any, ...]) -> None:
        """The rule of a node returned these shares."""

    def summed(self, total: Any) -> None:
        """Two shares of one cotangent were added to this."""

    def delivered(self, tensors: Sequence[Any]) -> None:
        """A cotangent was accumulated into the `.grad` of these tensors."""

    def batched(self, value: Any) -> None:
        """An op was computed for a batch of elements, with this result (a `Batched`)."""

    def pushed(self, name: str, tangents: Sequence[Any]) -> None:
        """The forward rule of an op of that name returned these tangents, or Taylor coefficients."""

    def rebinds(self, tensor: Any) -> None:
        """A variable is about to be rebound."""

    def sets_attribute(self, holder: Any, name: str) -> None:
        """An attribute of an object is about to be set or deleted."""

    def writes_gradient(self, tensor: Any) -> None:
        """The gradient of a tensor is about to be written."""

    def registers_hook(self, handle: Any) -> None:
        """A hook was registered."""

    def decide(self, found: bool) -> bool:
        """The engine decided whether a result may be differentiated again; returns the decision to use."""
        return found

    def branch(self, below: Callable[[], bool]) -> bool:
        """A Python branch asks for a value that is traced: run `below` and return which way to go."""
        return below()


class Instruments:
    """The installed instruments, the outermost first, as one: for each method, those that override it.

    `savers` are those asked what a node holds; others see a recomputation without deciding what it saves.
    """

    __slots__ = (
        "_branches",
        "_computes",
        "_decides",
        "_holds",
        "_programs",
        "backward_begins",
        "backward_ends",
        "batched",
        "chooses_ops",
        "delivered",
        "node_made",
        "pull_begins",
        "pulled",
        "pushed",
        "rebinds",
        "registers_hook",
        "savers",
        "sees_every_op",
        "sees_pulls",
        "sets_attribute",
        "stack",
        "summed",
        "timer",
        "watches_hooks",
        "write",
        "writes_gradient",
    )  # fmt: skip

    def __init__(
        self, stack: tuple[Instrument, ...], savers: tuple[Instrument, ...], write: Callable[..., None] | None = None
    ) -> None:
        self.stack, self.savers = stack, savers
        methods = _overriding(stack)
        writers = methods.get("write", ())
        #: What stretches of time are reported to, None: to nothing.
        self.write = _notify(writers) if writers else write
        #: Where all instruments only time, what fast paths report to.
        only = bool(writers) and all(i.only_times for i in stack)
        mark = next((i.mark for i in stack if i.mark is not None), None)
        self.timer = Timer(self.write, mark) if only and self.write is not None else None
        self._computes = methods.get("compute", ())
        self._programs = methods.get("run_program", ())
        self._decides = methods.get("decide", ())
        self._branches = methods.get("branch", ())
        holding = [i for i in reversed(savers) if "hold" in i.stated]
        holding.sort(key=lambda i: i.holds_last)
        self._holds = [i.hold for i in holding]
        self.node_made = _notify(methods.get("node_made", ()))
        self.backward_begins = _notify(methods.get("backward_begins", ()))
        self.backward_ends = _notify(methods.get("backward_ends", ()))
        self.pull_begins = _notify(methods.get("pull_begins", ()))
        self.pulled = _notify(methods.get("pulled", ()))
        self.summed = _notify(methods.get("summed", ()))
        self.delivered = _notify(methods.get("delivered", ()))
        self.batched = _notify(methods.get("batched", ()))
        self.pushed = _notify(methods.get("pushed", ()))
        self.rebinds = _notify(methods.get("rebinds", ()))
        self.sets_attribute = _notify(methods.get("sets_attribute", ()))
        self.writes_gradient = _notify(methods.get("writes_gradient", ()))
        self.registers_hook = _notify(methods.get("registers_hook", ()))
        self.watches_hooks = "registers_hook" in methods
        self.sees_every_op = any(method.__self__.sees_every_op for method in self._computes)
        self.chooses_ops = any(i.chooses_ops for i in stack)
        pulls = self.sees_every_op or not _PULL_METHODS.isdisjoint(methods)
        self.sees_pulls = pulls and self.timer is None

    def push(self, *new: Instrument) -> Instruments:
        """With more of them, inside the others."""
        return Instruments((*self.stack, *new), (*self.savers, *new))

    def isolate(self, *new: Instrument, beside: Instruments | None = None) -> Instruments:
        """For an extra run of a function: those that measure (also those of `beside`), and new ones, which alone decide
        what is saved.
        """
        known = dict.fromkeys((*self.stack, *(beside.stack if beside is not None else ())))
        return Instruments((*(i for i in known if i.measures), *new), new)

    def without_saving(self) -> Instruments:
        """With nothing that replaces saved values."""
        return Instruments(self.stack, ())

    def inside_program(self) -> Instruments | None:
        """Those of what a compiled program calls: it is one step, but waiting in it is seen."""
        return None if self.write is None else Instruments((), (), self.write)

    def without(self, *kinds: type[Instrument]) -> Instruments:
        """Without those of some kinds."""
        stack, savers = (tuple(i for i in held if type(i) not in kinds) for held in (self.stack, self.savers))
        return Instruments(stack, savers)

    def innermost(self, kind: type[Instrument]) -> Any:
        """The innermost one of a kind, None if there is none."""
        return next((i for i in reversed(self.stack) if type(i) is kind), None)

    def sees(self, op: Any) -> bool:
        """Whether `compute` must be called for an op."""
        return self.sees_every_op or not op.effects.repeat

    def compute(self, call: OpCall, evaluate: Callable[..., Any]) -> Any:
        """The result of a call. The outermost instrument is nearest to the computation: what an inner one supplies
        without computing (the second run of a checkpoint) it does not see.
        """
        below = partial(evaluate, call.op, call.values, call.static)
        for around in self._computes:
            below = partial(around, call, below)
        return below()

    def run_program(self, call: ProgramCall, run: Callable[[], list[Any]]) -> list[Any]:
        """The results of a compiled program; the outermost instrument is nearest to it."""
        for around in self._programs:
            run = partial(around, call, run)
        return run()

    def hold(self, value: Any, slot: SavedSlot) -> Any:
        """What a node holds for a value: the innermost instrument decides, unless it leaves the value as it is."""
        for hold in self._holds:
            held = hold(value, slot)
            if held is not value:
                return held
        return value

    def decide(self, found: bool) -> bool:
        """The decision to use: an outer run that repeats another one has it from there."""
        for decide in self._decides:
            found = decide(found)
        return found

    def branch(self, decide: Callable[[], bool]) -> bool:
        """Which way a Python branch goes; a run that repeats another one knows it from there, and asks for nothing."""
        for around in self._branches:
            decide = partial(around, decide)
        return decide()


#: What the generated steps of the backward pass would not call.
_PULL_METHODS = frozenset(("pull_begins", "pulled", "summed", "delivered"))


def _overriding(stack: tuple[Instrument, ...]) -> dict[str, tuple[Any, ...]]:
    """By the name of a method, those of the instruments that state it."""
    found: dict[str, tuple[Any, ...]] = {}
    for instrument in stack:
        for name in instrument.stated:
            found[name] = (*found.get(name, ()), getattr(instrument, name))
    return found


def _ignore(*event: Any) -> None:
    """No instrument looks at this event."""


def _notify(methods: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    if len(methods) <= 1:
        return methods[0] if methods else _ignore

    def notify_all(*event: Any) -> None:
        for method in methods:
            method(*event)

    return notify_all


NO_INSTRUMENTS = Instruments((), ())
