"""`pb.amp.explain`: the dtype that each op of a function ran in under `pb.autocast`, and why."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.call_site import format_line, user_line
from ..arrays.html_text import html_block, html_table
from ..arrays.spec import spec_of
from ..arrays.text import text_table
from ..arrays.trees import flatten
from ..arrays.value import Value
from ..compile.jit import Jitted
from ..ops.casting import HIGH, LOW, PARAMETERS, Casting, Decision
from ..settings import modes, override_modes
from ..tools.render.tables import rich_table

_HEAD = ("calls", "op", "arguments", "ran in", "result", "why", "line")
_MOST_DTYPES = 4


@dataclass(frozen=True, slots=True)
class CastCall:
    """A call, and how often it was made alike: the dtypes of its floating-point arguments as they were given and as it
    ran, those of its results, and why. `shared` counts casts that another call had made already.
    """

    name: str
    given: tuple[str, ...]
    ran: tuple[str, ...]
    results: tuple[str, ...]
    kind: str
    why: str
    shared: int
    line: str
    calls: int = 1

    def reason(self) -> str:
        cast = sum(a != b for a, b in zip(self.given, self.ran, strict=True))
        wanted = {LOW: "low: ", HIGH: "float32: ", PARAMETERS: "parameters: "}.get(self.kind, "")
        parts = [f"{wanted}{self.why}"]
        if cast:
            parts.append(f"{cast} cast" + (f" ({self.shared} shared)" if self.shared else ""))
        return ", ".join(parts)

    def cells(self) -> tuple[str, ...]:
        return (
            str(self.calls), self.name, _list_dtypes(self.given), _list_dtypes(self.ran), _list_dtypes(self.results),
            self.reason(), self.line,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AutocastReport:
    """The calls of a function in the order in which they were first made. Derivatives are not listed: a rule computes
    in the dtypes of the call that it belongs to.
    """

    calls: tuple[CastCall, ...]
    staged: bool

    def by_dtype(self) -> dict[str, int]:
        """How many calls ran in each dtype."""
        found: Counter[str] = Counter()
        for call in self.calls:
            found[_list_dtypes(call.ran) or "no floats"] += call.calls
        return dict(found.most_common())

    def table(self) -> str:
        """The calls as plain text."""
        rows = [call.cells() for call in self.calls]
        return self._summary() + ("\n" + text_table([_HEAD, *rows], right=(0,)) if rows else "")

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _summary(self) -> str:
        count = sum(call.calls for call in self.calls)
        ran = ", ".join(f"{n} in {dtype}" for dtype, n in self.by_dtype().items())
        return f"{count} calls{' of the traced program' if self.staged else ''}" + (f": {ran}" if ran else "")

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_block(self._summary(), html_table(_HEAD, [call.cells() for call in self.calls], numbers=(0,)))

    def __rich__(self) -> Any:
        return rich_table(self._summary(), _HEAD, [call.cells() for call in self.calls])


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AutocastReport:
    """Call a function and list each op with the dtype it ran in and why: the rule of its family, a name in `keep` or
    `lower`, the policy of a module, or promotion; with the line that called it. Autocast is what the function turns on
    itself, or what is on around this call. A function of `pb.jit` is traced, not run; functions that autocast decides
    as a whole are one line.

    >>> import numpy as np, pullback as pb
    >>> w = np.ones((3, 2), "float32")
    >>> with pb.autocast("float16"):
    ...     report = pb.amp.explain(lambda x: pb.sum(pb.matmul(x, w)), np.ones((4, 3), "float32"))
    >>> [(call.name, call.ran, call.reason()) for call in report.calls]  # doctest: +NORMALIZE_WHITESPACE
    [('matmul', ('float16', 'float16'), 'low: a contraction, 2 cast'),
     ('sum', ('float32',), 'float32: a fold, 1 cast')]
    """
    check_functions("explain", function)
    log = _Log()
    around: Casting = modes().autocast or Casting(None)
    with override_modes(autocast=around.noted_by(log)):
        if isinstance(function, Jitted):
            function.lower(*args, **kwargs)
        else:
            function(*args, **kwargs)
    return log.report(isinstance(function, Jitted))


class _Log:
    """The calls noted so far, equal ones counted."""

    def __init__(self) -> None:
        self._calls: Counter[CastCall] = Counter()
        self._trace: Any = None
        #: Values that a trace cast already, by id and dtype: its program merges equal casts.
        self._merged: dict[tuple[int, Any], Any] = {}

    def note(
        self, name: str, decision: Decision, given: Sequence[Any], cast: Sequence[Any], shared: int, out: Any
    ) -> None:
        trace = getattr(modes().tracing, "scope", None)
        if trace is not None and trace is not self._trace:  # traced again, with what the first trace found
            self._trace = trace
            self._calls.clear()
            self._merged.clear()
        before, after = _floats_in(given), _floats_in(cast)
        shared = shared if trace is None else self._count_merged(before, after)
        given_in, ran_in, made_in = (_dtypes_of(values) for values in (before, after, _floats_in((out,))))
        line = format_line(*user_line(sys._getframe(1)))
        self._calls[CastCall(name, given_in, ran_in, made_in, decision.kind, decision.why, shared, line)] += 1

    def _count_merged(self, before: Sequence[Any], after: Sequence[Any]) -> int:
        pairs = [((id(x), spec_of(y).dtype), x) for x, y in zip(before, after, strict=True) if x is not y]
        count = sum(key in self._merged for key, _ in pairs)
        self._merged.update(pairs)
        return count

    def report(self, staged: bool) -> AutocastReport:
        return AutocastReport(tuple(replace(call, calls=n) for call, n in self._calls.items()), staged)


def _dtypes_of(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(spec_of(x).dtype.name) for x in values)


def _floats_in(trees: Sequence[Any]) -> list[Any]:
    """The floating-point arrays among arguments or results."""
    leaves = [leaf for tree in trees for leaf in flatten(tree)[0]]
    arrays = [x for x in leaves if isinstance(x, Value) or (hasattr(x, "dtype") and hasattr(x, "shape"))]
    return [x for x in arrays if spec_of(x).inexact and spec_of(x).weak is None]


def _list_dtypes(names: Sequence[str]) -> str:
    """Dtypes, one for all if they are the same."""
    different = dict.fromkeys(names)
    shown = list(different) if len(different) == 1 or len(names) > _MOST_DTYPES else names
    return ", ".join(shown)
