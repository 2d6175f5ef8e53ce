"""What is known of numbers that are not finite: the op that made them, or where they were before any op ran."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...arrays.origin import Origin


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Numbers that no op of the run made: `kind` is "argument", "constant" or "unseen"; `name` says which."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Fault:
    """An op that made a NaN of numbers (infinities among them are `causes`), or an infinity of finite numbers."""

    #: The place among all faults of a run, from 0.
    number: int
    #: "nan" or "inf".
    kind: str
    op: str
    #: The user's line, rules of derivatives, rounds of loops and modules; None if no line leads to the op.
    origin: Origin | None
    #: The first element of the result that is affected, how many there are, and the result's spec.
    index: tuple[int, ...]
    count: int
    spec: str
    #: What it was computed of.
    given: str
    #: Where its arguments' own infinities came from.
    causes: tuple[Source | Fault, ...] = ()
    #: The compiled function that computed it; empty: none.
    compiled: str = ""
    #: Under `vmap`, the element of the batch, outermost batch first.
    sample: tuple[int, ...] = ()
    #: What could not be observed of the way to it; empty: all was.
    doubt: str = ""
    _levels: list[int] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The user's line, as `file.py:12: y = x / x`; of a rule, the line whose derivative it computes."""
        return "" if self.origin is None else self.origin.line

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that ran it, such as "the pull of sqrt", innermost first; empty in a forward pass."""
        return () if self.origin is None else self.origin.rules

    @property
    def places(self) -> tuple[str, ...]:
        """The rounds of loops and the module it ran in, outermost first."""
        return () if self.origin is None else self.origin.places

    def note_sample(self, level: int, index: int) -> None:
        """An inner `vmap` has a higher level than those around it."""
        if level not in self._levels:
            self._levels = sorted([*self._levels, level])
            at = self._levels.index(level)
            self.sample = (*self.sample[:at], index, *self.sample[at:])

    def __str__(self) -> str:
        of = f"\n  of {self.given}" if self.given else ""
        where = [*(f"in {rule}" for rule in self.rules), *(f"in {place}" for place in self.places)]
        where += [f"element {', '.join(map(str, self.sample))} of the batch"] if self.sample else []
        where += [f"in compiled code of {self.compiled}"] if self.compiled else []
        more = [f"  at {self.line}"] if self.line else ["  no line of a user leads to it"]
        more += [f"  {', '.join(where)}"] if where else []
        more += [f"  its infinities come from {self._describe_causes()}"] if self.causes else []
        more += [f"  {self.doubt}"] if self.doubt else []
        place = f" at {list(self.index)}" if self.index else ""
        return f"{self.op} made {self.kind}: {self.count} of {self.spec}{place}{of}\n" + "\n".join(more)

    def _describe_causes(self) -> str:
        names = [f"{c.op} at {c.line}" if isinstance(c, Fault) else str(c) for c in self.causes]
        return ", ".join(dict.fromkeys(names))
