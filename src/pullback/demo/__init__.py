"""Nothing in, a trained network, what it cost and a page about it out: a small CNN learns the 8x8 digits."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import pullback as pb

from .network import BATCH, Digits, loss, new_parameters, shuffled_digits
from .page import written_page
from .peers import Step, race, with_peers
from .result import Report, told
from .threads import one_thread
from .training import ByTape, Compiled, Run, Way, train
from .weighing import weigh_compiled, weigh_tape

__all__ = ["Report", "main"]

#: The page, where nobody says otherwise.
PAGE = "pullback-demo.html"


def main(
    steps: int = 500,
    seed: int = 0,
    console: Console | None = None,
    report: str | Path | None = None,
    peers: bool = True,
) -> Report:
    """Trains the network by tape and compiled, times both beside other libraries (unless told not to), prints and
    returns what it found, and writes a page about it to `report`.
    """
    with one_thread():
        return _run(steps, seed, console or Console(), place_of(report), peers)


def _run(steps: int, seed: int, console: Console, path: Path, peers: bool) -> Report:
    random = np.random.default_rng(seed)
    data, start = shuffled_digits(random), new_parameters(random)
    tape, compiled = ByTape(start), Compiled(start)
    with progress(console) as bar:
        runs = [watched(way, data, steps, seed, bar) for way in (tape, compiled)]
    batch = data.images[:BATCH].copy(), data.labels[:BATCH].copy()
    with console.status("measuring"):
        times, left_out = timed(start, batch, peers)
        on_tape, profile = weigh_tape(start, *batch)
        memory = {"tape": on_tape, "compiled": weigh_compiled(compiled, *batch)}
    found = Report(
        sum(x.size for layer in start.values() for x in layer.values()),
        steps, runs[0], runs[1], compiled.is_native, times, left_out, memory, path,
    )  # fmt: skip
    gradients = pb.tools.gradient_report(tape.params(), loss, *batch)
    layers = ByTape(start).layers
    names = {f"{name}.{key}": x for name, layer in layers.items() for key, x in layer.items()}
    drawing = pb.tools.draw(loss(layers, *batch), form="svg", names=names)
    written_page(found, data, compiled, gradients, profile, drawing).save(path)
    show(found, console)
    return found


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    columns = [
        TextColumn("{task.description:9}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[accuracy]}"), TimeElapsedColumn(),
    ]  # fmt: skip
    with Progress(*columns, console=console) as bar:
        yield bar


def watched(way: Way, data: Digits, steps: int, seed: int, bar: Progress) -> Run:
    """A run whose steps are seen on a bar."""
    task = bar.add_task(way.name, total=steps, loss="", accuracy="compiling" if isinstance(way, Compiled) else "")

    def watch(run: Run) -> None:
        right = f"right {run.accuracy:.1%}" if run.trials else ""
        bar.update(task, advance=1, loss=f"loss {run.losses[-1]:.4f}", accuracy=right)

    return train(way, data, steps, seed, watch)


def timed(start: Any, batch: tuple[Any, Any], peers: bool) -> tuple[dict[str, float], list[str]]:
    """The best time of a step of each, in turn."""
    ways: dict[str, Way] = {"pullback, tape": ByTape(start), "pullback, compiled": Compiled(start)}
    ours: dict[str, Step] = {name: functools.partial(way.step, *batch) for name, way in ways.items()}
    steps, left_out = with_peers(ours, start, *batch) if peers else (ours, ["other libraries: not asked for"])
    return race(steps, 0.5 * len(steps)), left_out


def place_of(report: str | Path | None) -> Path:
    """Where the page goes: where it was asked for, else the current directory, else, if that is closed, a new one."""
    if report is not None:
        return Path(report).resolve()
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.mkdtemp(prefix="pullback-"))
    return folder / PAGE


def show(found: Report, console: Console) -> None:
    console.print(
        f"A convolutional network ({found.parameters:,} float32 parameters) learned 8x8 handwritten digits in "
        f"{found.steps:,} steps of {BATCH} images, by tape and compiled.",
        highlight=False,
    )
    table = Table.grid(padding=(0, 2))
    for row in told(found):
        table.add_row(*row)
    console.print(table)
    console.print(f"A page with plots: {found.path}", highlight=False, soft_wrap=True)
