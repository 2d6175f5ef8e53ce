"""A report of the demo in, one HTML page out that needs nothing else: plots, kernels, memory, digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tools.pages import Page
from pullback.tools.plots import COLOURS, Bar, bars, curves, pictures

from .network import BATCH, Digits, scores
from .result import Report, told
from .training import Compiled

__all__ = ["written_page"]

#: How many digits are shown.
SHOWN = 48


def written_page(report: Report, data: Digits, way: Compiled, gradients: Any, profile: Any, drawing: str) -> Page:
    """The whole page; `gradients` is a gradient report, `profile` one of memory, `drawing` an SVG of the tape."""
    page = Page("pullback demo")
    page.text(
        f"A convolutional network of {report.parameters:,} parameters learns 8x8 handwritten digits in "
        f"{report.steps:,} steps of {BATCH} images, once on the tape and once as a compiled step, from the same start."
    )
    page.table(("", ""), told(report))
    _learning(page, report)
    _speed(page, report)
    _gradients(page, report, gradients)
    _compiled(page, report, way)
    page.heading("Memory of a step on the tape")
    page.text("Living bytes over the events of one forward and one backward pass, by who holds them.")
    page.pictures(profile.svg())
    page.code(profile.table(12))
    page.heading("The tape of a step")
    page.pictures(drawing)
    _digits(page, data, way.params())
    return page


def _learning(page: Page, report: Report) -> None:
    page.heading("Learning")
    runs = (report.tape, report.compiled)
    steps = range(1, report.steps + 1)
    losses = {run.name: (steps, run.losses) for run in runs}
    trials = {run.name: ([step for step, _ in run.trials], [share for _, share in run.trials]) for run in runs}
    page.pictures(
        curves(losses, title="Loss", x_label="step", y_label="cross-entropy", log=True),
        curves(trials, title="Accuracy on held-out digits", x_label="step", y_label="share right"),
    )


def _speed(page: Page, report: Report) -> None:
    page.heading("Time of a step")
    runs = (report.tape, report.compiled)
    rows = [
        Bar(name, seconds, f"{1e3 * seconds:.2f} ms", COLOURS[0] if name.startswith("pullback") else COLOURS[7])
        for name, seconds in sorted(report.times.items(), key=lambda pair: pair[1])
    ]
    later = {run.name: (range(2, report.steps + 1), [1e3 * s for s in run.seconds[1:]]) for run in runs}
    page.pictures(
        bars(rows, title="Best time of a step, all in turn in one process"),
        curves(later, title="Each step of the two runs, the first left out", x_label="step", y_label="ms", log=True),
    )
    for line in report.left_out:
        page.text(line)


def _gradients(page: Page, report: Report, gradients: Any) -> None:
    page.heading("Gradients")
    steps = range(1, report.steps + 1)
    norms = {layer: (steps, found) for layer, found in report.tape.norms.items()}
    page.pictures(
        curves(norms, title="Norm of the gradient by layer", x_label="step", y_label="norm", log=True), gradients.svg()
    )
    page.code(str(gradients))


def _compiled(page: Page, report: Report, way: Compiled) -> None:
    page.heading("The compiled step")
    if not report.native:
        page.text(
            "This run had no LLVM, so the array library ran the program. Get it with: pip install 'pullback[jit]'."
        )
        return
    entry: Any = way.call.last
    page.text(
        "Forward pass, backward pass and update of every parameter are one native call. It runs these steps, one after "
        "the other; what is fused into one of them stands in its line."
    )
    page.code(entry.explain())


def _digits(page: Page, data: Digits, params: Any) -> None:
    page.heading("Held-out digits")
    page.text("What each is taken for; where that is wrong, the truth stands behind it.")
    found = np.argmax(scores(params, data.test_images), axis=-1)
    wrong = found != data.test_labels
    order: Sequence[int] = [*np.flatnonzero(wrong), *np.flatnonzero(~wrong)][:SHOWN]
    captions = [f"{found[i]}, is {data.test_labels[i]}" if wrong[i] else str(found[i]) for i in order]
    images = [data.test_images[i, 0].tolist() for i in order]
    page.pictures(pictures(images, captions, [bool(wrong[i]) for i in order]))
