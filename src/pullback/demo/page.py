"""The demo's report as one self-contained HTML page: plots, kernels, memory, digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tools.render.html_page import Page
from pullback.tools.render.svg_plots import COLORS, Bar, draw_bars, draw_curves, draw_images

from .network import BATCH, Digits, scores
from .report import DemoReport, report_rows
from .training import CompiledTrainer

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
    page.table(("", ""), report_rows(report))
    _add_learning(page, report)
    _add_speed(page, report)
    _add_gradients(page, report, gradients)
    _add_compiled_step(page, report, way)
    page.heading("Memory of a step on the tape")
    page.text("Live bytes over the events of one forward and one backward pass, by holder.")
    page.pictures(profile.svg())
    page.code(profile.table(12))
    page.heading("The tape of a step")
    page.pictures(drawing)
    _add_digits(page, data, way.params())
    return page


def _add_learning(page: Page, report: DemoReport) -> None:
    page.heading("Learning")
    runs = (report.tape, report.compiled)
    steps = range(1, report.steps + 1)
    losses = {run.name: (steps, run.losses) for run in runs}
    trials = {run.name: ([step for step, _ in run.evaluations], [a for _, a in run.evaluations]) for run in runs}
    page.pictures(
        draw_curves(losses, title="Loss", x_label="step", y_label="cross-entropy", log=True),
        draw_curves(trials, title="Accuracy on held-out digits", x_label="step", y_label="share right"),
    )


def _add_speed(page: Page, report: DemoReport) -> None:
    page.heading("Time of a step")
    runs = (report.tape, report.compiled)
    rows = [
        Bar(name, seconds, f"{1e3 * seconds:.2f} ms", COLORS[0] if name.startswith("pullback") else COLORS[7])
        for name, seconds in sorted(report.times.items(), key=lambda pair: pair[1])
    ]
    later = {run.name: (range(2, report.steps + 1), [1e3 * s for s in run.seconds[1:]]) for run in runs}
    page.pictures(
        draw_bars(rows, title="Best time of a step, all in turn in one process"),
        draw_curves(
            later, title="Each step of the two runs, the first left out", x_label="step", y_label="ms", log=True
        ),
    )
    for line in report.omissions:
        page.text(line)


def _add_gradients(page: Page, report: DemoReport, gradients: Any) -> None:
    page.heading("Gradients")
    steps = range(1, report.steps + 1)
    norms = {layer: (steps, found) for layer, found in report.tape.norms.items()}
    curves = draw_curves(norms, title="Norm of the gradient by layer", x_label="step", y_label="norm", log=True)
    page.pictures(curves, gradients.svg())
    page.code(str(gradients))


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
    page.code(entry.explain())


def _add_digits(page: Page, data: Digits, params: Any) -> None:
    page.heading("Held-out digits")
    page.text("The predicted digit; where it is wrong, followed by the true one.")
    found = np.argmax(scores(params, data.test_images), axis=-1)
    wrong = found != data.test_labels
    order: Sequence[int] = [*np.flatnonzero(wrong), *np.flatnonzero(~wrong)][:IMAGES_SHOWN]
    captions = [f"{found[i]}, is {data.test_labels[i]}" if wrong[i] else str(found[i]) for i in order]
    images = [data.test_images[i, 0].tolist() for i in order]
    page.pictures(draw_images(images, captions, [bool(wrong[i]) for i in order]))
