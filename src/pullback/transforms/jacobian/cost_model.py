"""The cost model of Jacobians: the steps of a function, and estimated nanoseconds and bytes of each mode.

The model is coarse on purpose: it has to order a handful of alternatives, not to predict times. An op costs its
interpreters a fixed time, by family, and then a time for each element (or each flop) and each direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arrays.node import Node
from ...arrays.scope import Scope, current_scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...ops.op import Op, PartRule
from ...ops.replay.rehearsal import dry_run
from ...settings import modes
from ...tape.sweep import order_deepest_first
from ..reverse import Pullback
from ..sized_values import SizedValue, SizeLedger
from ..vectorize import Batched

# Measured by benchmarks/op_costs.py, which prints these tables; one core of an x86-64 server, Python 3.11, NumPy 2.4,
# float64. Only their ratios matter, and those hold from one machine to the next well enough.

#: Nanoseconds an op costs whatever its size: to push a batch of tangents or a single one, to record it on the tape, to
#: pull a batch of cotangents or a single one; and all together for the four compositions of second order, outer first.
OVERHEAD_NANOSECONDS = {
    "elementwise": {
        "push": 7.5e3, "push one": 4.2e3, "note": 0.9e3, "pull": 8.4e3, "pull one": 0.8e3,
        "ff": 41e3, "fr": 44e3, "rf": 83e3, "rr": 57e3,
    },
    "linear": {
        "push": 19e3, "push one": 15e3, "note": 12e3, "pull": 14e3, "pull one": 10e3,
        "ff": 33e3, "fr": 50e3, "rf": 43e3, "rr": 65e3,
    },
    "contraction": {
        "push": 10e3, "push one": 5.8e3, "note": 7.8e3, "pull": 11e3, "pull one": 7.1e3,
        "ff": 17e3, "fr": 32e3, "rf": 29e3, "rr": 52e3,
    },
    "reduction": {
        "push": 28e3, "push one": 20e3, "note": 8.7e3, "pull": 54e3, "pull one": 45e3,
        "ff": 53e3, "fr": 125e3, "rf": 115e3, "rr": 250e3,
    },
}  # fmt: skip

#: Nanoseconds for one element (a contraction: one flop) in one direction, in forward mode.
#: Families that have no entry count as linear.
RATE_NANOSECONDS = {"elementwise": 1.6, "linear": 2.0, "contraction": 0.018, "reduction": 3.9}

#: The cost of an element and direction of each mode relative to forward mode.
RATE_MULTIPLE = {"push": 1.0, "pull": 1.5, "ff": 3.9, "fr": 5.1, "rf": 4.3, "rr": 5.6}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What runs the function that is planned: transforms that batch it `copies` times, and whether a compiler traces
    it, so that an op costs its elements alone.
    """

    copies: int
    traced: bool

    @staticmethod
    def of(values: Sequence[Any]) -> Surroundings:
        return Surroundings(max(map(_count_copies, values), default=1), modes().tracing is not None)


def _count_copies(x: Any) -> int:
    """How many elements there are for each that a value shows: those of the batches it belongs to."""
    copies = 1
    while isinstance(x, Value):
        if type(x) is Batched and x.axis is not None:
            copies *= x.scope.size
        x = next(iter(x.parts()), None)
    return copies


@dataclass(frozen=True, slots=True)
class CostStep:
    """One op of a function: how large it is, and which values it takes that depend on the inputs."""

    family: str
    elements: int
    nbytes: int
    key: int
    parents: tuple[int, ...]

    def work(self) -> float:
        """Nanoseconds for one direction: once for each argument that moves."""
        return RATE_NANOSECONDS[self.family] * self.elements * max(len(self.parents), 1)


class CostLedger(SizeLedger):
    """The steps of a function, and the most bytes of its values alive at once."""

    def __init__(self) -> None:
        self.steps: list[CostStep] = []
        self.peak = 0
        self._live = 0

    def add(self, nbytes: int) -> None:
        self._live += nbytes
        self.peak = max(self.peak, self._live)

    def shared_memory(self, op: Op, args: Sequence[Any], static: dict[str, Any], out: Spec) -> None:
        """Tangents of a view are counted like others: to find out costs more than it is worth here."""

    def record(self, op: Op, args: Sequence[Any], results: tuple[SizedValue, ...]) -> None:
        if not op.differentiable:
            return
        specs = [spec_of(x) for x in args]
        parents = tuple(x.key for x in args if type(x) is SizedValue and x.spec.inexact)
        for result in results:
            result.key = len(self.steps) + 1
            self.steps.append(_make_step(op, specs, result.spec, result.key, parents))


def _make_step(op: Op, args: Sequence[Spec], out: Spec, key: int, parents: tuple[int, ...]) -> CostStep:
    largest = max([out.size, *(a.size for a in args)])
    if op.family == "contraction":
        # Each index of x y -> out stands in two of the three, so |x| |y| |out| is the square of the index space, in
        # which each point is one multiplication and one addition.
        largest = 2 * math.isqrt(math.prod(a.size for a in args) * out.size)
    elif op.family == "elementwise":
        largest = out.size
    return CostStep(op.family if op.family in RATE_NANOSECONDS else "linear", largest, out.nbytes, key, parents)


@dataclass(frozen=True, slots=True)
class FunctionOutline:
    """The steps of a function, the specs of its results, and bytes alive at once: of all its values (`peak`), of
    what a tape saves (`kept`), of cotangents in the backward pass (`back`).
    """

    steps: tuple[CostStep, ...]
    outs: tuple[Spec, ...]
    peak: int
    kept: int
    back: int

    def repeated(self, copies: int) -> FunctionOutline:
        """The outline of so many copies of the function at once."""
        if copies == 1:
            return self
        steps = tuple(replace(s, elements=s.elements * copies, nbytes=s.nbytes * copies) for s in self.steps)
        return FunctionOutline(steps, self.outs, self.peak * copies, self.kept * copies, self.back * copies)


def sketch_function(
    flat: Callable[..., tuple[list[Any], Any]], xs: Sequence[Any], holders: Sequence[Any] = ()
) -> FunctionOutline:
    """The outline of a function of arrays; `holders` are what it may keep state in. Where it cannot be traced,
    since it branches on values, it is run on the tape and its nodes are counted.
    """
    ledger = CostLedger()
    try:
        scope = Scope("planning", lambda scope, x: SizedValue(spec_of(x), scope, ledger), lambda x: x)
        scope.rebindings = []
        try:
            with dry_run(holders, xs), scope:
                outs, _ = flat(*(scope.lift(scope, x) for x in xs))
        finally:  # restore the tensors that the function updates
            for tensor, value, spec, node, status in reversed(scope.rebindings):
                tensor.value, tensor.spec, tensor.node, tensor._status = value, spec, node, status
    except Exception:  # only an estimate: if the function is wrong, the run on the tape raises
        return _outline_from_tape(flat, xs, holders)
    roots = {x.key for x in outs if type(x) is SizedValue}
    return _make_outline(ledger.steps, tuple(map(spec_of, outs)), roots, ledger.peak)


def _outline_from_tape(
    flat: Callable[..., tuple[list[Any], Any]], xs: Sequence[Any], holders: Sequence[Any]
) -> FunctionOutline:
    """The outline read off the graph; lifetimes cannot be seen there, so every value counts as alive to the end."""
    with dry_run(holders, xs):
        outs = Pullback(lambda *inputs: flat(*inputs)[0], list(xs), current_scope()).outs
    roots = [x.node for x in outs if isinstance(x, Tensor) and x.node is not None]
    nodes = order_deepest_first(roots)[::-1]
    keys = {node: i for i, node in enumerate(nodes)}
    steps = [_step_from_node(node, keys) for node in nodes if node.rule is not None and type(node.rule) is not PartRule]
    every = sum(x.nbytes for x in map(spec_of, xs)) + sum(step.nbytes for step in steps)
    return _make_outline(steps, tuple(map(spec_of, outs)), {keys[root] for root in roots}, every)


def _step_from_node(node: Node, keys: dict[Node, int]) -> CostStep:
    out = node.spec[0] if isinstance(node.spec, tuple) else node.spec
    specs = node.call.specs if node.call is not None and node.call.specs else (out,)
    return _make_step(node.rule.op, specs, out, keys[node], tuple(keys[parent] for parent in node.parents))


def _make_outline(steps: Sequence[CostStep], outs: tuple[Spec, ...], roots: set[int], peak: int) -> FunctionOutline:
    return FunctionOutline(tuple(steps), outs, peak, sum(s.nbytes for s in steps), _peak_cotangent_bytes(steps, roots))


def _peak_cotangent_bytes(steps: Sequence[CostStep], roots: set[int]) -> int:
    """The most bytes of cotangents alive at once: one lives from its first share until its own step is pulled."""
    sizes = {step.key: step.nbytes for step in steps}
    begun = set(roots)
    live = most = sum(sizes.get(key, 0) for key in roots)
    for step in reversed(steps):
        fresh = [key for key in set(step.parents) - begun if key in sizes]
        begun.update(fresh)
        live += sum(sizes[key] for key in fresh)
        most = max(most, live + step.nbytes)  # a rule holds about one more value
        live -= step.nbytes if step.key in begun else 0
    return most


def estimate_nanoseconds(
    steps: Sequence[CostStep], way: str, directions: int, runs: int, traced: bool = False
) -> float:
    """What it costs to take so many directions through the steps, in so many runs; `traced`, interpreters cost nothing.

    >>> step = CostStep("elementwise", 1000, 8000, 1, (0,))
    >>> estimate_nanoseconds([step], "push", 10, 1) > estimate_nanoseconds([step], "push", 1, 1)
    True
    """
    alone = f"{way} one" if runs == directions and way in ("push", "pull") else way
    fixed = 0.0 if traced else sum(OVERHEAD_NANOSECONDS[s.family][alone] for s in steps)
    work = sum(s.work() for s in steps)
    if way == "pull":  # the values are computed once, and recorded
        noted = 0.0 if traced else sum(OVERHEAD_NANOSECONDS[s.family]["note"] for s in steps)
        return noted + work + runs * fixed + directions * RATE_MULTIPLE[way] * work
    return runs * (fixed + work) + directions * RATE_MULTIPLE[way] * work
