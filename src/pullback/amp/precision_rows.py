"""Two runs of a step in, rows out: what a lower precision changed, by op, by parameter and by layer."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.exchange import to_numpy
from ..ops.dtype_info import finfo
from .op_recorder import OpRecord, RangeLoss, is_half_array

#: An element of a gradient that is a smaller part of the root mean square does not count; nor does a whole gradient
#: that is a smaller part of the others: it is zero but for rounding in float32.
_NEGLIGIBLE, _ROUNDING = 1e-3, 1e-5


@dataclass(frozen=True, slots=True)
class PrecisionLimits:
    """`error`: relative error of a gradient that is too much. `lost`: share of elements that may underflow.
    `magnified`: how many times an op may magnify the error of what it reads.
    """

    error: float = 0.1
    lost: float = 0.01
    magnified: float = 8.0


@dataclass(frozen=True, slots=True)
class OpRow:
    """The results of one op, or of a function that autocast decides as a whole, by one line: their number and dtype,
    their largest relative error, by how much it is larger than those of the arguments, which ops made arguments of a
    half type, what rounding lost forward and in the backward pass, and the verdict: "", "overflow", "underflow",
    "magnifies errors", "backward overflow", "backward underflow".
    """

    name: str
    line: str
    layer: str
    dtype: str
    results: int
    error: float
    magnified: float
    reads: tuple[str, ...]
    forward: RangeLoss
    backward: RangeLoss
    state: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        lost = _count_pair(self.forward), _count_pair(self.backward)
        magnified = f"{self.magnified:.1f}x" if self.magnified else ""
        return self.name, self.dtype, str(self.results), percent(self.error), magnified, *lost, self.state, self.line


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient of one parameter: its norm in float32, the relative error in lower precision, how many elements that
    count are zero there alone, how many are not finite there alone, and the verdict: "", "not finite", "underflow",
    "inaccurate".
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    error: float
    flushed: int
    not_finite: int
    state: str = ""

    @property
    def layer(self) -> str:
        """The name without its last part: what the parameter belongs to."""
        return self.name.rpartition(".")[0] or self.name

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shape = "x".join(map(str, self.shape)) or "one"
        counts = str(self.flushed), str(self.not_finite)
        return self.name, shape, f"{self.norm:.2e}", percent(self.error), *counts, self.state


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer: the relative error of its last array of activations and of its gradients, what rounding lost forward
    and in the backward pass, and what is wrong in it.
    """

    name: str
    activation: float
    gradient: float
    forward: RangeLoss
    backward: RangeLoss
    state: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        lost = _count_pair(self.forward), _count_pair(self.backward)
        return self.name, percent(self.activation), percent(self.gradient), *lost, self.state


def percent(x: float) -> str:
    """A share as text; empty if there is none."""
    return "" if math.isnan(x) else f"{x:.2%}" if math.isfinite(x) else "infinite"


def _count_pair(loss: RangeLoss) -> str:
    """Underflows and overflows, with the number of elements."""
    return f"{loss.underflow} / {loss.overflow} of {loss.size}" if loss.size else ""


def _in_float64(x: Any) -> Any:
    array = to_numpy(x, "amp.report")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def relative_error(found: Any, wanted: Any, typical: float = 0.0) -> float:
    """The size of the difference as a part of the size of what is wanted; infinite where one is not finite alone.
    `typical` is the root mean square of things alike: what is nothing beside them is compared with that.
    """
    found, wanted = map(_in_float64, (found, wanted))
    known = np.isfinite(wanted)
    if np.any(known & ~np.isfinite(found)):
        return math.inf
    size, away = float(np.linalg.norm(wanted[known])), float(np.linalg.norm(found[known] - wanted[known]))
    expected = typical * math.sqrt(wanted.size)
    size = size if size > _ROUNDING * expected else expected
    return away / size if size else math.inf if away else 0.0


def root_mean_square(arrays: Sequence[Any]) -> float:
    """Over all elements that are finite."""
    rows = [np.abs(_in_float64(x)).ravel() for x in arrays]
    known = [x[np.isfinite(x)] for x in rows]
    count = sum(x.size for x in known)
    return math.sqrt(sum(float(x @ x) for x in known) / count) if count else 0.0


def gradient_row(name: str, found: Any, wanted: Any, typical: float, limits: PrecisionLimits) -> GradientRow:
    """What became of the gradient of a parameter, where gradients have a typical root mean square."""
    error = relative_error(found, wanted, typical)
    found, wanted = to_numpy(found, "amp.report"), to_numpy(wanted, "amp.report")
    least = max(_NEGLIGIBLE * root_mean_square([wanted]), _ROUNDING * typical)
    flushed = int(np.sum((found == 0) & (np.abs(wanted) > least)))
    bad = int(np.sum(~np.isfinite(found) & np.isfinite(wanted)))
    state = "not finite" if bad else "underflow" if flushed > limits.lost * wanted.size else ""
    state = state or ("inaccurate" if error > limits.error else "")
    norm = float(np.linalg.norm(_in_float64(wanted)))
    return GradientRow(name, tuple(wanted.shape), norm, error, flushed, bad, state)


def op_rows(low: Sequence[OpRecord], errors: dict[int, float], limits: PrecisionLimits) -> tuple[OpRow, ...]:
    """A row for each op and line, in the order of the calls in lower precision, without those that lost nothing."""
    rows: dict[Any, OpRow] = {}
    for number, record in enumerate(low):
        place, none = record.place, RangeLoss()
        known = rows.get(place[:2])
        if known is None:
            known = OpRow(*place, record.value.dtype.name, 0, math.nan, 0.0, (), none, none)
        if record.is_backward:
            rows[place[:2]] = _with(known, backward=known.backward + record.loss)
            continue
        error = errors.get(number, math.nan)
        rows[place[:2]] = _with(
            known,
            dtype=record.value.dtype.name,
            results=known.results + 1,
            error=error if math.isnan(known.error) else max(known.error, error),
            magnified=max(known.magnified, _magnification(record, error, low, errors)),
            reads=tuple(dict.fromkeys([*known.reads, *_half_makers(record, low)])),
            forward=known.forward + record.loss,
        )
    judged = [_with(row, state=_judge_op(row, limits)) for row in rows.values()]
    return tuple(row for row in judged if row.forward.size or row.backward.size or row.state)


def _with(row: OpRow, **changes: Any) -> OpRow:
    known = {name: getattr(row, name) for name in OpRow.__slots__}
    return OpRow(**{**known, **changes})


def _half_makers(record: OpRecord, records: Sequence[OpRecord]) -> list[str]:
    """The ops that made arguments of a half type, others than the op itself."""
    made = [records[i] for i in record.parents]
    return [r.place.name for r in made if is_half_array(r.value) and r.place[:2] != record.place[:2]]


def _magnification(record: OpRecord, error: float, records: Sequence[OpRecord], errors: dict[int, float]) -> float:
    """How many times larger the error of a result is than those of its arguments and of one rounding to the half type
    that it has or reads; 0 where there is no half type, or nothing to compare.
    """
    values = [record.value, *(records[i].value for i in record.parents)]
    rounding = max((finfo(x.dtype).eps / 2 for x in values if is_half_array(x)), default=0.0)
    before = max((errors.get(i, 0.0) for i in record.parents), default=0.0)
    return error / max(before, rounding) if rounding and math.isfinite(error) and math.isfinite(before) else 0.0


def find_errors(low: Sequence[OpRecord], high: Sequence[OpRecord]) -> dict[int, float]:
    """The relative error of each forward result of which the other run has the counterpart, by number."""
    mine, theirs = ([(i, r) for i, r in enumerate(run) if not r.is_backward] for run in (low, high))
    blocks = difflib.SequenceMatcher(
        None, [r.key for _, r in mine], [r.key for _, r in theirs], autojunk=False
    ).get_matching_blocks()  # fmt: skip
    pairs = [(mine[b.a + k], theirs[b.b + k]) for b in blocks for k in range(b.size)]
    return {i: relative_error(record.value, other.value) for (i, record), (_, other) in pairs}


def _judge_op(row: OpRow, limits: PrecisionLimits) -> str:
    if row.forward.overflow:
        return "overflow"
    if row.forward.underflow > limits.lost * row.forward.size:
        return "underflow"
    if row.magnified > limits.magnified:
        return "magnifies errors"
    if row.backward.overflow:
        return "backward overflow"
    return "backward underflow" if row.backward.underflow > limits.lost * row.backward.size else ""


def layer_rows(
    low: Sequence[OpRecord], errors: dict[int, float], gradients: Sequence[GradientRow]
) -> tuple[LayerRow, ...]:  # fmt: skip
    """A row for each layer, in the order of use."""
    names = dict.fromkeys([*(r.place.layer for r in low), *(g.layer for g in gradients)])
    rows = []
    for name in names:
        mine = [(i, r) for i, r in enumerate(low) if r.place.layer == name]
        known = [(r.value.size > 1, errors[i]) for i, r in mine if i in errors and not r.is_backward]
        # a loss after the last layer is no activation of it
        activations = [e for is_array, e in known if is_array] or [e for _, e in known]
        forward, backward = (
            sum((r.loss for _, r in mine if r.is_backward is back), RangeLoss()) for back in (False, True)
        )
        own = [g for g in gradients if g.layer == name]
        state = "overflow" if forward.overflow else next((g.state for g in own if g.state), "")
        worst = max((g.error for g in own), default=math.nan)
        if known or own:
            rows.append(LayerRow(name, activations[-1] if known else math.nan, worst, forward, backward, state))
    return tuple(rows)
