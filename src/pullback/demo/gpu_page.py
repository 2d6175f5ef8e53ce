"""The demo's second page: the same network trained on the GPU, beside the runs on the CPU."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, final

from pullback.arrays.backends import move_array
from pullback.arrays.trees import map_tree
from pullback.tools.render.html_page import Page
from pullback.tools.render.svg_plots import COLORS, Bar, draw_bars, draw_curves

from .network import BATCH, Digits
from .peers import race
from .report import DemoReport
from .training import CompiledTrainer, TapeTrainer, Trainer, TrainingRun, train


@final
class OnDevice(Trainer):
    """A trainer whose parameters are on a device: batches are moved there, parameters for evaluation back."""

    def __init__(self, kind: type[TapeTrainer] | type[CompiledTrainer], params: Any, device: str) -> None:
        self.device, self.name = device, f"{kind.name}, {device}"
        self.inner = kind(map_tree(functools.partial(move_array, device=device), params))

    def step(self, images: Any, labels: Any) -> float:
        return self.inner.step(*(move_array(x, self.device) for x in (images, labels)))

    def params(self) -> Any:
        return map_tree(functools.partial(move_array, device="cpu"), self.inner.params())


def write_gpu_page(report: DemoReport, data: Digits, start: Any, seed: int, device: str) -> Path:
    """Train on the device by tape and compiled, from the CPU's start with its batches, and write a page beside the
    report's; where it is.
    """
    ways = [OnDevice(kind, start, device) for kind in (TapeTrainer, CompiledTrainer)]
    runs = [train(way, data, report.steps, seed, lambda run: None) for way in ways]
    times = time_on_device(data, start, device)
    path: Path = report.path.with_name(f"{report.path.stem}-gpu{report.path.suffix}")
    _build(report, runs, times, ways[1], device).save(path)
    return path


def time_on_device(data: Digits, start: Any, device: str) -> dict[str, float]:
    """The best seconds of a step whose batch is on the device already; each step waits for its loss."""
    batch = [move_array(x[:BATCH].copy(), device) for x in (data.images, data.labels)]
    fresh = {way.name: way.inner for way in (OnDevice(kind, start, device) for kind in (TapeTrainer, CompiledTrainer))}
    return race({name: functools.partial(way.step, *batch) for name, way in fresh.items()}, 1.0)


def _build(report: DemoReport, runs: list[TrainingRun], times: dict[str, float], way: OnDevice, device: str) -> Page:
    page = Page("pullback demo, on the GPU")
    page.text(
        f"The network of the first page, trained on {device} from the same start with the same batches. It is far too "
        "small to fill a GPU: a step costs what its launches cost, and the compiled one is a single graph."
    )
    compiled = times[way.name]
    page.figures(
        [
            (f"{runs[1].accuracy:.1%}", f"of held-out digits read right, after {report.steps:,} steps on {device}"),
            (f"{1e3 * compiled:.2f} ms", f"a compiled training step: {1 / compiled:,.0f} steps a second"),
            (f"{largest_gap(report, runs):.0e}", "the largest difference of a loss from the CPU's, in the first tenth"),
        ]
    )
    ours = {name: seconds for name, seconds in report.times.items() if name.startswith("pullback")}
    bars = sorted({**times, **{f"{name}, on the CPU": s for name, s in ours.items()}}.items(), key=lambda pair: pair[1])
    colors = {name: COLORS[0] if name in times else COLORS[7] for name, _ in bars}
    page.pictures(
        draw_bars([Bar(n, s, f"{1e3 * s:.2f} ms", colors[n]) for n, s in bars], title="Time of a training step"),
        draw_curves(
            {run.name: (range(1, report.steps + 1), run.losses) for run in (*runs, report.compiled)},
            title="Loss", x_label="step", y_label="cross-entropy (log scale)", log=True,
        ),
    )  # fmt: skip
    page.note(report.machine)
    if isinstance(way.inner, CompiledTrainer) and way.inner.call.last is not None:
        page.folded_code("The steps of the compiled program", str(way.inner.call.last.explain()))
    return page


def largest_gap(report: DemoReport, runs: list[TrainingRun]) -> float:
    """The largest difference of the device's losses from the CPU's, in the first tenth: later they drift apart."""
    count = max(report.steps // 10, 1)
    pairs = zip(runs, (report.tape, report.compiled), strict=True)
    return max(abs(a - b) for x, y in pairs for a, b in zip(x.losses[:count], y.losses[:count], strict=True))
