"""The demo's report as one self-contained HTML page: plots, kernels, memory, digits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tools.render.html_page import Page
from pullback.tools.render.svg_plots import COLORS, Bar, draw_bars, draw_curves, draw_images

from .network import BATCH, Digits, loss, scores
from .report import DemoReport, headlines, report_rows
from .training import CompiledTrainer, training_step

#: How many digits are shown.
IMAGES_SHOWN = 48


def build_page(
    report: DemoReport, data: Digits, way: CompiledTrainer, gradients: Any, profile: Any, drawing: str
) -> Page:
    """The whole page; `gradients` is a gradient report, `profile` one of memory, `drawing` an SVG of the tape."""
    page = Page("pullback demo")
    page.text(
        f"A convolutional network of {report.parameters:,} parameters learns 8x8 handwritten digits in "
        f"{report.steps:,} steps of {BATCH} images, once on the tape and once as a compiled step, from the same start."
    )
    page.figures(headlines(report))
    page.beside(_draw_times(report), _step_source())
    page.note(report.machine)
    for line in report.omissions:
        page.note(line)
    page.table(("what", "found"), [row for row in report_rows(report) if row[0] not in ("", "machine")])
    _add_learning(page, report)
    _add_speed(page, report)
    _add_gradients(page, report, gradients)
    _add_compiled_step(page, report, way)
    page.heading("Memory of a step on the tape")
    page.text("Live bytes over the events of one forward and one backward pass, by holder.")
    page.pictures(profile.svg())
    page.folded_code("What is live at the peak", profile.table(12))
    page.heading("The tape of a step")
    page.pictures(drawing)
    _add_digits(page, data, way.params())
    return page


def _add_learning(page: Page, report: DemoReport) -> None:
    page.heading("Learning")
    runs = (report.tape, report.compiled)
    steps = range(1, report.steps + 1)
    window = max(report.steps // 50, 1)
    losses = {run.name: (steps[window - 1 :], _running_mean(run.losses, window)) for run in runs}
    trials = {run.name: ([step for step, _ in run.evaluations], [a for _, a in run.evaluations]) for run in runs}
    page.pictures(
        draw_curves(
            losses, title=f"Loss, mean of {window} steps", x_label="step", y_label="cross-entropy (log scale)", log=True
        ),
        draw_curves(
            trials, title="Accuracy on held-out digits", x_label="step", y_label="read right",
            text=lambda share: f"{share:.0%}", cover=(1.0,),
        ),
    )  # fmt: skip


def _running_mean(numbers: Sequence[float], window: int) -> Sequence[float]:
    found: Sequence[float] = np.convolve(numbers, np.full(window, 1 / window), mode="valid").tolist()
    return found


def _step_source() -> str:
    """The code that learned: the network, its loss, and the compiled step, without types and docstrings."""
    source = "\n".join(inspect.getsource(f) for f in (scores, loss, training_step))
    source = re.sub(r': Any| -> Any|\n *""".*?"""', "", source)
    return f"{source}\nstep = pb.jit(training_step, donate_argnums=(0, 1))"


def _draw_times(report: DemoReport) -> str:
    rows = [
        Bar(name, seconds, f"{1e3 * seconds:.2f} ms", COLORS[0] if name.startswith("pullback") else COLORS[7])
        for name, seconds in sorted(report.times.items(), key=lambda pair: pair[1])
    ]
    return draw_bars(rows, title="Time of a training step: the best, all in turn in one process")


def _add_speed(page: Page, report: DemoReport) -> None:
    page.heading("Time of a step")
    runs = (report.tape, report.compiled)
    later = {run.name: (range(2, report.steps + 1), [1e3 * s for s in run.seconds[1:]]) for run in runs}
    page.pictures(
        draw_curves(
            later, title="Time per step (first step excluded)", x_label="step", y_label="ms (log scale)", log=True
        )
    )


def _add_gradients(page: Page, report: DemoReport, gradients: Any) -> None:
    page.heading("Gradients")
    steps = range(1, report.steps + 1)
    norms = {layer: (steps, found) for layer, found in report.tape.norms.items()}
    curves = draw_curves(
        norms, title="Norm of the gradient by layer", x_label="step", y_label="norm (log scale)", log=True
    )
    page.pictures(curves, gradients.svg())
    page.folded_code("Gradients by parameter and activation", str(gradients))


def _add_compiled_step(page: Page, report: DemoReport, way: CompiledTrainer) -> None:
    page.heading("The compiled step")
    if not report.native:
        page.text("This run had no LLVM, so NumPy ran the program. Get it with: pip install 'pullback[jit]'.")
        return
    entry: Any = way.call.last
    page.text(
        "Forward pass, backward pass and update of every parameter are one native call. It runs these steps, one after "
        "the other; each line names the ops fused into it."
    )
    page.folded_code("The steps of the compiled program", entry.explain())


def _add_digits(page: Page, data: Digits, params: Any) -> None:
    page.heading("Held-out digits")
    page.text("Predicted digit; errors in red with the true label.")
    found = np.argmax(scores(params, data.test_images), axis=-1)
    wrong = found != data.test_labels
    order: Sequence[int] = [*np.flatnonzero(wrong), *np.flatnonzero(~wrong)][:IMAGES_SHOWN]
    captions = [f"{found[i]}, is {data.test_labels[i]}" if wrong[i] else str(found[i]) for i in order]
    images = [data.test_images[i, 0].tolist() for i in order]
    page.pictures(draw_images(images, captions, [bool(wrong[i]) for i in order]))
