"""Outline of a function in, plan out: the mode of a Jacobian, and how many directions at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...arrays.spec import Spec, spec_of
from ...arrays.text import format_bytes, format_seconds, parse_bytes
from ...arrays.trees import flatten
from .cost_model import FunctionOutline, Surroundings, estimate_nanoseconds, sketch_function

#: The modes of `jacobian` and `hessian`, and how the cost model calls them.
JACOBIANS = {"forward": "push", "reverse": "pull"}
HESSIANS = {
    "forward-over-reverse": "fr",
    "forward-over-forward": "ff",
    "reverse-over-reverse": "rr",
    "reverse-over-forward": "rf",
}
_MAX_PLANS = 256
#: What a product must cost of a single mode: estimates are coarse.
_WORTH = 0.7


def parse_memory_budget(budget: Any, what: str) -> int | None:
    """A memory budget as a number of bytes; None is no budget."""
    return None if budget is None else parse_bytes(budget, f"{what}: memory_budget")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to do it: its directions, how many of them run at once, and what that is estimated to cost.

    `inner` is the same count for the derivative inside of a second one, None for all at once. A "product" is cut at
    some values of the program (`products.py`) and made of `parts`, from the inputs to the cut and from there to the
    outputs; `instead` is the best single mode, and `of` what the program was.
    """

    mode: str
    directions: int
    chunk: int
    inner: int | None
    nanoseconds: float
    nbytes: int
    cut: tuple[int, ...] = ()
    parts: tuple[Alternative, ...] = ()
    instead: Alternative | None = None
    of: tuple[Any, ...] = ()

    def is_worth_more_than(self, other: Alternative) -> bool:
        """Whether the estimates are far enough apart for a product to be worth its further steps."""
        return self.nanoseconds < (_WORTH if self.parts else 1.0) * other.nanoseconds

    @property
    def chunks(self) -> int:
        """How many runs there will be."""
        return -(-self.directions // self.chunk)

    def __str__(self) -> str:
        return "\n".join(self.lines(self.mode))

    def lines(self, label: str) -> list[str]:
        """The alternative as a line of a table; those of its parts are indented below it."""
        noun = "in between" if self.parts else "directions"
        runs = f"{_format_count(self.chunks, 'chunk')} of {self.chunk:,}"
        inside = "" if self.inner is None else f", inside {self.inner:,}"
        line = (
            f"{label:20s}  {self.directions:>8,} {noun}  {format_seconds(1e-9 * self.nanoseconds):>9s}  "
            f"{format_bytes(self.nbytes):>9s}  {runs}{inside}"
        )
        if not self.parts:
            return [line]
        indent = " " * (len(label) - len(label.lstrip()) + 2)
        ends = zip(("to it", "from it"), self.parts, strict=True)
        rest = [each for end, part in ends for each in part.lines(f"{indent}{end}: {part.mode}")]
        return [line[: line.rindex("  ")], *rest]


@dataclass(frozen=True, slots=True)
class DerivativePlan:
    """What was decided and from what: the sizes, the alternatives with their estimates, and the choice."""

    what: str
    inputs: int
    outputs: int
    ops: int
    budget: int | None
    asked: bool
    choice: Alternative
    alternatives: tuple[Alternative, ...]

    def __str__(self) -> str:
        budget = "none" if self.budget is None else format_bytes(self.budget)
        sizes = ", ".join(
            _format_count(n, noun) for n, noun in ((self.inputs, "input"), (self.outputs, "output"), (self.ops, "op"))
        )
        head = f"{self.what}: {sizes}, memory budget {budget}"
        lines = [
            f"{'*' if a is self.choice and not i else ' '} {line}"
            for a in self.alternatives
            for i, line in enumerate(a.lines(a.mode))
        ]
        why = "as asked" if self.asked else "the least estimated time"
        return "\n".join([head, *lines, f"chosen: {self.choice.mode} ({why})"])


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


_plans: weakref.WeakKeyDictionary[Callable[..., Any], dict[Any, DerivativePlan]] = weakref.WeakKeyDictionary()


class DerivativePlanner:
    """Plans for one function, remembered by the specs of its arguments for as long as the function lives.

    A plan is advice: if it is remembered although the function now does something else, the result is still right.
    """

    def __init__(self, what: str, f: Callable[..., Any], mode: str, budget: int | None) -> None:
        self.what, self.mode, self.budget = what, mode, budget
        try:
            self._known = _plans.setdefault(f, {})
        except TypeError:  # f cannot be referred to weakly
            self._known = {}

    def is_needed(self, xs: Sequence[Any]) -> bool:
        """Whether there is anything to decide: a budget to keep, or a mode to choose for more than one input."""
        if self.mode == "product":
            return True
        return self.budget is not None or (self.mode == "auto" and sum(spec_of(x).size for x in xs) > 1)

    def plan(
        self,
        flat: Callable[..., tuple[list[Any], Any]],
        xs: Sequence[Any],
        call: Any,
        holders: Sequence[Any] = (),
        find_product: FindProduct = lambda single, budget, around: None,
    ) -> DerivativePlan:
        """The plan for a function of arrays; `call` is a tree of everything it was called with, `holders` what it may
        keep state in. `find_product` looks for a Jacobian as a product, given those in a single mode.
        """
        leaves = flatten(call)[0]
        around = Surroundings.of([*xs, *leaves])
        key = (self.what, self.mode, self.budget, around, *map(_plan_key, xs), None, *map(_plan_key, leaves))
        found = self._known.get(key)
        if found is None:
            # A loop over ever new shapes must not keep a plan for each.
            if len(self._known) >= _MAX_PLANS:
                self._known.clear()
            outline = sketch_function(flat, xs, holders).repeated(around.copies)
            found = self._known[key] = self._make_plan(outline, xs, around, find_product)
        return found

    def _make_plan(
        self, outline: FunctionOutline, xs: Sequence[Any], around: Surroundings, find_product: FindProduct
    ) -> DerivativePlan:
        specs = [spec_of(x) for x in xs]
        inputs, outputs, given = _count_ends(outline, specs, around)
        if self.what == "hessian":
            ways = [_estimate_hessian(m, outline, inputs, outputs, given, self.budget, around) for m in HESSIANS]
        else:
            ways = estimate_jacobians(outline, specs, self.budget, around)
        choice = min(ways, key=lambda way: way.nanoseconds)
        if self.mode in ("auto", "product") and (product := find_product(ways, self.budget, around)) is not None:
            choice = product if product.is_worth_more_than(choice) else choice
            ways = [*ways, product]
        asked = [way for way in ways if way.mode == self.mode]
        choice = asked[0] if asked else choice
        return DerivativePlan(
            self.what, inputs, outputs, len(outline.steps), self.budget, bool(asked), choice, tuple(ways)
        )


#: From the alternatives in a single mode, a budget and the surroundings to a product.
FindProduct: TypeAlias = Callable[[Sequence[Alternative], "int | None", Surroundings], "Alternative | None"]


def _count_ends(outline: FunctionOutline, specs: Sequence[Spec], around: Surroundings) -> tuple[int, int, int]:
    """How many numbers go in and come out, and the bytes of those that go in."""
    outputs = sum(s.size * (2 if s.dtype.kind == "c" else 1) for s in outline.outs)
    return sum(s.size for s in specs), outputs, sum(s.nbytes for s in specs) * around.copies


def estimate_jacobians(
    outline: FunctionOutline, specs: Sequence[Spec], budget: int | None, around: Surroundings
) -> list[Alternative]:
    """A Jacobian by inputs of these specs in each single mode."""
    ends = _count_ends(outline, specs, around)
    return [_estimate_jacobian(mode, outline, *ends, budget, around) for mode in JACOBIANS]


def _plan_key(leaf: Any) -> Any:
    """What of an argument may change a plan: the spec of an array, a count as it is, of anything else its type."""
    if isinstance(leaf, (bool, int, str)):
        return leaf
    try:
        return spec_of(leaf)
    except Exception:
        return type(leaf)


def _chunk_size(budget: int | None, each: int, count: int) -> int:
    """How many of `count` directions, of so many bytes each, run at once: chunks of nearly one size."""
    if budget is None or each * count <= budget:
        return max(count, 1)
    # Rounded up twice: the fewest chunks that fit, then the smallest size that needs no more of them.
    most = max(budget // max(each, 1), 1)
    return -(-count // -(-count // most))


def _estimate_jacobian(
    mode: str, outline: FunctionOutline, inputs: int, outputs: int, given: int, budget: int | None,
    around: Surroundings,
) -> Alternative:  # fmt: skip
    """Forward: a tangent beside each value alive. Reverse: the live cotangents and the rows they become."""
    directions = inputs if mode == "forward" else outputs
    each = outline.peak if mode == "forward" else outline.back + 2 * given
    chunk = _chunk_size(budget, each, directions)
    runs = -(-directions // chunk)
    cost = estimate_nanoseconds(outline.steps, JACOBIANS[mode], directions, runs, around.traced)
    return Alternative(mode, directions, chunk, None, cost, chunk * each)


def _estimate_hessian(
    mode: str, outline: FunctionOutline, inputs: int, outputs: int, given: int, budget: int | None,
    around: Surroundings,
) -> Alternative:  # fmt: skip
    """The outer derivative is of all rows of the inner one, and carries its whole batch in each direction.

    A tape under tangents saves a tangent beside each value it saves; one over them saves the inner batch.
    """
    way = HESSIANS[mode]
    # The first letter is the outer derivative, taken of inputs x outputs numbers.
    directions = inputs if way[0] == "f" else inputs * outputs
    inside = inputs if way[1] == "f" else outputs
    alone = 2 * outline.peak if way == "ff" else outline.back + 2 * given + (outline.kept if way == "rf" else 0)
    shared = 0 if way[1] == "f" else outline.kept
    # The inner batch gets what the tape leaves of the budget, and the outer one is made of whole inner ones.
    inner = _chunk_size(None if budget is None else max(budget - shared, 1), alone, inside)
    chunk = _chunk_size(budget, shared + inner * alone, directions)
    runs = -(-directions // chunk) * -(-max(inside, 1) // inner)
    cost = estimate_nanoseconds(outline.steps, way, directions * inside, runs, around.traced)
    return Alternative(mode, directions, chunk, inner, cost, chunk * (shared + inner * alone))
