"""`pb.amp.report`: what a lower precision changes in a training step, by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions, check_number
from ..arrays.dtypes import as_dtype
from ..arrays.exchange import to_numpy
from ..arrays.html_text import MOST_ROWS, html_block, html_table
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, tensor
from ..arrays.text import text_table
from ..arrays.trees import flatten, map_tree, unflatten
from ..compile.disable import disable_jit
from ..errors import ArgumentError
from ..nn.module import Module
from ..nn.policy import Policy, policy_of
from ..ops import random
from ..ops.autocast import autocast
from ..ops.dispatch import as_value
from ..ops.dtype_info import finfo
from ..optim.transformations.loss_scaling import LARGEST_SCALE, check_scale, divide_scale, multiply_scale
from ..settings import enable_grad, override_modes
from ..tape.backward import gradients as gradients_of
from ..tools.gradients.analyze import leaf_names
from ..tools.render.html_page import Page, write_by_suffix
from ..tools.render.svg_plots import COLORS, Bar, draw_bars
from ..tools.render.tables import rich_table
from .op_recorder import OpRecord, OpRecorder, is_half_array
from .precision_rows import (
    GradientRow,
    LayerRow,
    OpRow,
    PrecisionLimits,
    find_errors,
    gradient_row,
    layer_rows,
    op_rows,
    percent,
    root_mean_square,
)

_LAYERS = ("layer", "activation error", "gradient error", "under / overflow", "in backward", "finding")
_GRADIENTS = ("parameter", "shape", "gradient norm", "error", "became zero", "not finite", "finding")
_OPS = ("op", "dtype", "results", "error", "magnified", "under / overflow", "in backward", "finding", "line")
#: Findings of ops that a higher precision of the op would mend; those of the backward pass want another scale.
_KEEP_HIGH = ("overflow", "underflow", "magnifies errors")


def report(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    dtype: Any = "bfloat16",
    keep: Iterable[Any] = (),
    lower: Iterable[Any] = (),
    policy: Policy | None = None,
    against: Callable[..., Any] | None = None,
    scale: float = 1.0,
    error: float = 0.1,
    lost: float = 0.01,
    magnified: float = 8.0,
) -> PrecisionReport:
    """What a lower precision changes in a training step: `loss(params, *args)` and its gradients are computed in
    float32 and under `pb.autocast(dtype, keep=keep, lower=lower)`, and compared layer by layer. In place of autocast
    it may be the `policy` that a module is given, or those that it has; or another function, `against`, such as one
    with casts of its own. `scale` is the loss scale, a power of two. The limits: see `docs/amp-scaling.md`.

    >>> import numpy as np, pullback as pb
    >>> params = {"first": np.ones((4, 8)), "second": np.full((8, 1), 1e-3)}
    >>> loss = lambda p, x: pb.mean(pb.exp(x @ p["first"]) @ p["second"])
    >>> found = pb.amp.report(loss, params, np.full((16, 4), 4.0), dtype="float16")
    >>> found.keep_high()  # exp(16) is no number of float16
    ['matmul']
    """
    check_functions("report", loss, *([] if against is None else [against]))
    given = {"error": error, "lost": lost, "magnified": magnified}
    limits = PrecisionLimits(*(check_number(f"report: {name}", x, least=0) for name, x in given.items()))
    number = check_scale(scale, "report: scale")
    leaves, structure = flatten(map_tree(_in_float32, params))
    names = leaf_names(params, structure)
    inputs = tuple(map_tree(_in_float32, a) for a in args)
    stream = random.state()
    high = _run(_without_policies(loss), leaves, structure, names, inputs, 1.0)
    _check_is_high(high.recorder.records)
    random.restore(stream)
    if against is None and policy is None and not _has_policy(params):
        lowered, title = autocast(dtype, keep=keep, lower=lower)(loss), as_dtype(dtype).name
    else:
        lowered = against or loss if policy is None else _with_policy(loss, policy)
        title = "lower precision" if policy is None else str(policy.compute)
    low = _run(lowered, leaves, structure, names, inputs, number)
    typical = root_mean_square([g for g in high.gradients if g is not None])
    rows = tuple(
        gradient_row(name, found, wanted, typical, limits)
        for name, found, wanted in zip(names, low.gradients, high.gradients, strict=True)
        if name is not None and found is not None and wanted is not None
    )
    records = low.recorder.records
    errors = find_errors(records, high.recorder.records)
    return PrecisionReport(
        title,
        high.loss, low.loss, number, _suggest_scale(records, high.recorder.records),
        layer_rows(records, errors, rows), rows, op_rows(records, errors, limits),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    loss: float
    gradients: list[Any]
    recorder: OpRecorder


def _in_float32(x: Any) -> Any:
    value = as_value(x)
    while isinstance(value, Tensor):
        value = value.value
    return value.astype(np.float32) if spec_of(value).inexact and spec_of(value).dtype.kind != "c" else value


def _has_policy(params: Any) -> bool:
    return isinstance(params, Module) and any(policy_of(m) is not None for m in params.modules())


def _without_policies(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The loss of a module whose policies are taken off; the module is a copy."""

    def in_float32(params: Any, *args: Any) -> Any:
        for module in params.modules() if isinstance(params, Module) else ():
            if policy_of(module) is not None:
                delattr(module, "policy")
        return loss(params, *args)

    return in_float32


def _with_policy(loss: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    """The loss of a module that is given a policy; the module is a copy."""

    def lowered(params: Any, *args: Any) -> Any:
        if not isinstance(params, Module):
            raise ArgumentError(f"report: a policy is for a module, got {type(params).__name__}.")
        params.policy = policy
        return loss(params, *args)

    return lowered


def _check_is_high(records: Sequence[OpRecord]) -> None:
    lowered = next((r for r in records if is_half_array(r.value)), None)
    if lowered is not None:
        raise ArgumentError(
            f"report: the run in float32 has {lowered.value.dtype.name}, from {lowered.place.name} at "
            f"{lowered.place.line}.\n  Give a loss that lowers nothing itself, and the one that does as against=."
        )


def _run(
    loss: Callable[..., Any],
    leaves: Sequence[Any],
    structure: Any,
    names: Sequence[str | None],
    args: tuple[Any, ...],
    scale: float,
) -> _Run:
    """The loss and its gradients in one precision, op by op, and what the ops returned."""
    tracked = [tensor(x, requires_grad=True) if spec_of(x).inexact else x for x in leaves]
    known = [(t, n) for t, n in zip(tracked, names, strict=True) if isinstance(t, Tensor) and n is not None]
    recorder = OpRecorder({id(t.value): n.rpartition(".")[0] or n for t, n in known})
    with enable_grad(), disable_jit(), np.errstate(all="ignore"):
        with override_modes(recorder):
            value = loss(unflatten(structure, tracked), *args)
        if not isinstance(value, Tensor) or value.node is None:
            raise ArgumentError("report: the loss does not depend on the parameters.")
        wanted = [t for t in tracked if isinstance(t, Tensor)]
        scaled = multiply_scale(value, np.float32(scale))
        with override_modes(recorder):
            found = gradients_of(scaled, wanted, allow_unused=True)
        by_id = {id(t): g for t, g in zip(wanted, found, strict=True) if g is not None}
        unscaled = [divide_scale(by_id[id(t)], np.float32(scale)) if id(t) in by_id else None for t in tracked]
    return _Run(float(to_numpy(value, "amp.report")), unscaled, recorder)


def _suggest_scale(low: Sequence[OpRecord], high: Sequence[OpRecord]) -> float | None:
    """The largest scale for which the cotangents that a half type holds do not overflow, as they are in float32; None
    if there are none.
    """
    largest = {r.place.line: finfo(r.value.dtype).max for r in low if r.is_backward and is_half_array(r.value)}
    room = math.inf
    for record in high:
        if record.is_backward and record.place.line in largest:
            size = float(np.max(np.abs(to_numpy(record.value, "amp.report")), initial=0.0))
            room = min(room, largest[record.place.line] / size) if size else room
    return None if math.isinf(room) else min(2.0 ** math.floor(math.log2(room)), LARGEST_SCALE)


@dataclass(frozen=True, slots=True)
class PrecisionReport:
    """What `pb.amp.report` found: the loss in float32 and in lower precision, the scale and a better one, and a row for
    each layer, each parameter and each op with half types. It is true if there are no findings.
    """

    dtype: str
    loss: float
    lower_loss: float
    scale: float
    suggested_scale: float | None
    layers: tuple[LayerRow, ...]
    gradients: tuple[GradientRow, ...]
    ops: tuple[OpRow, ...]

    def __bool__(self) -> bool:
        return not self.findings()

    def findings(self) -> dict[str, list[str]]:
        """The names of parameters and ops by what is wrong with them."""
        pairs = [(row.state, row.name) for row in self.gradients]
        pairs += [(row.state, f"{row.name} at {row.line}") for row in self.ops]
        found: dict[str, list[str]] = {}
        for state, name in pairs:
            if state:
                found.setdefault(state, []).append(name)
        return found

    def keep_high(self) -> list[str]:
        """The ops and functions that should run in float32: `pb.autocast(dtype, keep=report.keep_high())`. Of what
        magnifies errors in float32 already, these are the ones that it reads.
        """
        found: list[str] = []
        for row in self.ops:
            if row.state in _KEEP_HIGH:
                found += row.reads if row.dtype == "float32" else [row.name]
        return list(dict.fromkeys(found))

    def _summary(self) -> str:
        away = abs(self.lower_loss - self.loss) / abs(self.loss) if self.loss else math.nan
        worst = max((row.error for row in self.gradients), default=0.0)
        parts = [f"{self.dtype}: the loss differs by {percent(away)}, gradients by at most {percent(worst)}"]
        parts += [f"{state}: {', '.join(names)}" for state, names in self.findings().items()]
        if self.suggested_scale is not None and self.dtype == "float16":
            parts.append(f"largest loss scale: {self.suggested_scale:g}")
        return "; ".join(parts)

    def _tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]], tuple[int, ...]]]:
        """Title, head, rows and columns of numbers of each table."""
        return [
            ("layers", _LAYERS, [r.cells() for r in self.layers], (1, 2, 3, 4)),
            ("gradients", _GRADIENTS, [r.cells() for r in self.gradients], (2, 3, 4, 5)),
            ("ops", _OPS, [r.cells() for r in self.ops], (2, 3, 4, 5, 6)),
        ]

    def table(self) -> str:
        """Everything as plain text."""
        return "\n\n".join([self._summary(), *(text_table([head, *rows]) for _, head, rows, _ in self._tables())])

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(self._summary(), *(rich_table(title, head, rows) for title, head, rows, _ in self._tables()))

    def _repr_html_(self) -> str:
        shown = [html_table(head, rows[:MOST_ROWS], numbers=numbers) for _, head, rows, numbers in self._tables()]
        return html_block(self._summary(), self.svg(), *shown)

    def json(self) -> str:
        """Everything as JSON text; numbers that JSON lacks are null (there is none) or "infinite"."""
        return json.dumps(_as_json(asdict(self)), indent=1, allow_nan=False)

    def svg(self) -> str:
        """The errors of the gradients by layer, as bars on a log scale."""
        return _bars(self.layers, [r.gradient for r in self.layers], "Relative error of the gradient (log scale)")

    def activations(self) -> str:
        """The errors of the activations by layer, as bars on a log scale."""
        return _bars(self.layers, [r.activation for r in self.layers], "Relative error of the activation (log scale)")

    def html(self) -> str:
        """One self-contained page with tables and pictures."""
        page = Page("Precision")
        page.text(self._summary())
        page.pictures(self.svg(), self.activations())
        for title, head, rows, numbers in self._tables():
            page.heading(title.capitalize())
            page.table(head, rows, numbers=numbers)
        return page.html()

    def save(self, path: str | Path) -> None:
        """Write to a file, by its suffix: `.html`, `.svg`, `.json` or `.txt`."""
        write_by_suffix(path, {".html": self.html, ".svg": self.svg, ".json": self.json, ".txt": self.table})


def _as_json(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: _as_json(part) for name, part in x.items()}
    if isinstance(x, (tuple, list)):
        return [_as_json(part) for part in x]
    is_number = not isinstance(x, float) or math.isfinite(x)
    return x if is_number else None if math.isnan(x) else "infinite"


def _bars(layers: Sequence[LayerRow], errors: Sequence[float], title: str) -> str:
    rows = [
        Bar(row.name, e, f"{percent(e)} {row.state}".rstrip(), COLORS[3 if row.state else 0])
        for row, e in zip(layers, errors, strict=True)
        if not math.isnan(e)
    ]
    return draw_bars(rows, title=title, log=True)
