"""`report`: what a codec saves and what it costs, for each parameter, on the ranks that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.spec import Spec, spec_of
from ...arrays.text import text_table
from ...arrays.trees import flatten, leaf_paths
from ...ops.collective.collectives import total
from ...ops.collective.world import current_world
from ...ops.dispatch import as_value
from ...optim.leaves import widen
from ...tools.render.tables import rich_table
from .codec import Codec, Coded, check_codec, run_codecs
from .measurement import LATE, Measurement, measure

_HEAD = (
    "parameter", "array", "ratio", "residual", "encode ms", "decode ms", "wire ms", "plain ms", "pays below Gb/s",
    "measured Gb/s", "a step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodecRow:
    """An array: its name and spec; what was measured, None where it is sent plainly; and what was not sent, as a share
    of the norm.
    """

    name: str
    spec: Spec
    measured: Measurement | None
    residual: float

    @property
    def saved(self) -> float:
        """The seconds that the codec saves in a step; negative where it loses."""
        return 0.0 if self.measured is None else self.measured.plain_wire - self.measured.seconds

    def cells(self) -> list[str]:
        """The row of the table."""
        m = self.measured
        if m is None:
            return [self.name, str(self.spec), "1.0", "0.0%", *["-"] * 6, "sent plainly"]
        even = f"{8e-9 * m.break_even:.3g}" if m.wire < m.plain_wire else "never"
        times = [f"{1e3 * t:.3g}" for t in (m.encode, m.decode, m.wire, m.plain_wire)]
        sizes = [f"{m.plain_bytes / m.sent_bytes:.1f}", f"{self.residual:.1%}"]
        return [self.name, str(self.spec), *sizes, *times, even, f"{8e-9 * m.bandwidth:.3g}", _verdict(self.saved)]


@dataclass(frozen=True, slots=True, repr=False)
class CodecReport:
    """What `report` measured: a row for each array. It is true if the codec saves time."""

    codec: str
    ranks: int
    rows: tuple[CodecRow, ...]

    def __bool__(self) -> bool:
        return self.saved > 0.0

    @property
    def saved(self) -> float:
        """The seconds that the codec saves in a step, over all arrays; negative where it loses."""
        return sum(row.saved for row in self.rows)

    def table(self) -> str:
        """Everything as plain text."""
        return "\n".join([self._summary(), text_table([_HEAD, *(row.cells() for row in self.rows)])])

    def _summary(self) -> str:
        """One line; of a codec that would lose it says so."""
        advice = ": sum plainly, or leave the choice to codecs.best" if self.saved < 0.0 else ""
        return f"{self.codec} on {self.ranks} ranks {_verdict(self.saved)} a step{advice}"

    __str__ = __repr__ = table

    def __rich__(self) -> Any:
        return rich_table(self._summary(), _HEAD, [row.cells() for row in self.rows])


def report(codec: Codec, params: Any) -> CodecReport:
    """Measure a codec on a tree of arrays, on the ranks that are there: how many times fewer bytes are sent; the norm
    of what is not sent, as a share of the array's; the time to encode and to decode, compiled, and on the wire, with
    the codec and without; and the bandwidth of sums below which it pays, beside the one measured. All ranks call it.

    Times depend on shapes alone. What is not sent depends on the numbers, so give it gradients to judge a codec by it.
    Each array is measured as if it were sent alone; together they share meetings.

    >>> import numpy as np, pullback as pb
    >>> def measure():
    ...     grads = {"w": np.random.default_rng(0).normal(size=(64, 32)), "b": np.ones(())}
    ...     return pb.distributed.codecs.report(pb.distributed.codecs.int8(), grads)
    >>> found = pb.distributed.run(measure, 2)[0]
    >>> print(found)
    int8(per='tensor') on 2 ranks ... a step...
    parameter  array            ratio  residual  encode ms  decode ms  wire ms  plain ms  pays below Gb/s  measured ...
    >>> [row.cells()[-1] for row in found.rows][:1]
    ['sent plainly']
    """
    check_codec(codec, "report")
    leaves, structure = flatten(params)
    names = [path or "params" for path in leaf_paths(structure)]
    rows = tuple(_make_row(codec, name, as_value(x)) for name, x in zip(names, leaves, strict=True))
    return CodecReport(codec.name, current_world().size, rows)


def _make_row(codec: Codec, name: str, x: Any) -> CodecRow:
    spec = spec_of(x)
    if not codec.applies(spec):
        return CodecRow(name, spec, None, 0.0)
    state = codec.init(x)
    (coded,) = run_codecs([codec], [x], [state], np.array(LATE))
    measured = measure(codec, spec, state)
    is_plain = measured.sent_bytes >= measured.plain_bytes
    return CodecRow(name, spec, None if is_plain else measured, _share_not_sent(x, coded))


def _share_not_sent(x: Any, coded: Coded) -> float:
    """The norm of the residuals of all ranks over that of what they had."""
    given = np.asarray(widen(x), np.float64)
    own = np.array([np.sum((given - np.asarray(coded.sent, np.float64)) ** 2), np.sum(given**2)])
    left, whole = np.asarray(total(own)).tolist()
    return float(np.sqrt(left / whole)) if whole else 0.0


def _verdict(saved: float) -> str:
    if not saved:
        return "changes nothing"
    return f"{'saves' if saved > 0.0 else 'loses'} {1e3 * abs(saved):.3g} ms"
