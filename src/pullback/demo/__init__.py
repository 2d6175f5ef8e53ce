"""The demo: a small CNN learns the 8x8 digits, by tape and compiled, with an HTML report."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import pullback as pb
from pullback.tools.gpu_check import count_gpus

from .gpu_page import write_gpu_page
from .machine import describe_machine
from .memory_use import measure_compiled_memory, measure_tape_memory
from .network import BATCH, Digits, init_parameters, load_shuffled_digits, loss
from .page import build_page
from .peers import PEERS, Step, add_peer_steps, race
from .report import COMPILED, DemoReport, report_rows
from .single_thread import one_thread
from .training import CompiledTrainer, TapeTrainer, Trainer, TrainingRun, train

__all__ = ["DemoReport", "main"]

#: The default path of the page.
PAGE = "pullback-demo.html"


def main(
    steps: int = 500,
    seed: int = 0,
    console: Console | None = None,
    report: str | Path | None = None,
    peers: bool = True,
) -> DemoReport:
    """Train the network by tape and compiled, time both against other libraries (unless `peers` is False), print and
    return the results, and write a page about them to `report`.
    """
    with one_thread():
        return _run(steps, seed, console or Console(), report_path(report), peers)


def _run(steps: int, seed: int, console: Console, path: Path, peers: bool) -> DemoReport:
    random = np.random.default_rng(seed)
    data, start = load_shuffled_digits(random), init_parameters(random)
    tape, compiled = TapeTrainer(start), CompiledTrainer(start)
    with progress_bar(console) as bar:
        runs = [train_with_progress(way, data, steps, seed, bar) for way in (tape, compiled)]
    batch = data.images[:BATCH].copy(), data.labels[:BATCH].copy()
    with console.status("measuring"):
        times, left_out = time_steps(start, batch, peers)
        on_tape, profile = measure_tape_memory(start, *batch)
        memory = {"tape": on_tape, "compiled": measure_compiled_memory(compiled, *batch)}
    found = DemoReport(
        sum(x.size for layer in start.values() for x in layer.values()),
        steps, runs[0], runs[1], compiled.is_native, times, left_out, memory, path,
        describe_machine(["numpy", "llvmlite", *(package for name, (package, _) in PEERS.items() if name in times)]),
    )  # fmt: skip
    gradients = pb.tools.gradient_report(tape.params(), loss, *batch)
    layers = TapeTrainer(start).layers
    names = {f"{name}.{key}": x for name, layer in layers.items() for key, x in layer.items()}
    drawing = pb.tools.draw(loss(layers, *batch), form="svg", names=names)
    build_page(found, data, compiled, gradients, profile, drawing).save(path)
    print_report(found, console)
    if count_gpus():
        with console.status("training on the GPU"):
            second = write_gpu_page(found, data, start, seed, "cuda:0")
        console.print(f"The same on the GPU: {second}", highlight=False, soft_wrap=True)
    return found


def progress_bar(console: Console) -> Progress:
    texts = [TextColumn(f"{{task.{name}}}") for name in ("description:9", "fields[loss]", "fields[accuracy]")]
    return Progress(texts[0], BarColumn(), MofNCompleteColumn(), *texts[1:], TimeElapsedColumn(), console=console)


def train_with_progress(way: Trainer, data: Digits, steps: int, seed: int, bar: Progress) -> TrainingRun:
    """A run with a progress bar."""
    state = "compiling" if isinstance(way, CompiledTrainer) else ""
    task = bar.add_task(way.name, total=steps, loss="", accuracy=state)

    def watch(run: TrainingRun) -> None:
        right = f"right {run.accuracy:.1%}" if run.evaluations else ""
        bar.update(task, advance=1, loss=f"loss {run.losses[-1]:.4f}", accuracy=right)

    return train(way, data, steps, seed, watch)


def time_steps(start: Any, batch: tuple[Any, Any], peers: bool) -> tuple[dict[str, float], list[str]]:
    """The best time of a step for each trainer and peer."""
    ways: dict[str, Trainer] = {"pullback, tape": TapeTrainer(start), COMPILED: CompiledTrainer(start)}
    ours: dict[str, Step] = {name: functools.partial(way.step, *batch) for name, way in ways.items()}
    steps, left_out = add_peer_steps(ours, start, *batch) if peers else (ours, ["other libraries: not asked for"])
    return race(steps, 0.5 * len(steps)), left_out


def report_path(report: str | Path | None) -> Path:
    """Where the page goes: the given path, else the current directory, else, if that is not writable, a new one."""
    if report is not None:
        return Path(report).resolve()
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.mkdtemp(prefix="pullback-"))
    return folder / PAGE


def print_report(found: DemoReport, console: Console) -> None:
    console.print(
        f"A convolutional network ({found.parameters:,} float32 parameters) learned 8x8 handwritten digits in "
        f"{found.steps:,} steps of {BATCH} images, by tape and compiled.",
        highlight=False,
    )
    table = Table.grid(padding=(0, 2))
    for row in report_rows(found):
        table.add_row(*row)
    console.print(table)
    console.print(f"A page with plots: {found.path}", highlight=False, soft_wrap=True)
