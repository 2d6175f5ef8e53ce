"""Data-parallel steps of perceptrons, predicted and measured. The script starts itself on each number of ranks, fits a
model to all but the last, and predicts the last too.

On each number of ranks collectives are timed, then a step without sums on all ranks at once, then the same step with
sums: on the tape by `DistributedGradient`, compiled by `aggregate`. Times are the least of the repeats, each as long as
the slowest rank took. The last number is predicted twice: from the step that was recorded on the ranks before, as one
would without these ranks; and from the step as it was recorded on them, so that the error is that of sums alone.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

import pullback as pb
from pullback import distributed
from pullback.arrays.text import format_seconds, text_table
from pullback.distributed.launch import count_cores, launch
from pullback.distributed.measure import measure
from pullback.distributed.predict import predict
from pullback.distributed.recorded_step import GradientTime, Step, record_step
from pullback.distributed.world_model import WorldModel

NETWORKS = {
    "784-256-128-10, batch 64": ([784, 256, 128, 10], 64),
    "784-256-128-10, batch 512": ([784, 256, 128, 10], 512),
    "1024-1024-1024-1024, batch 256": ([1024] * 4, 256),
}
HEAD = ("step", "by", "ranks", "alone", "measured", "predicted", "error", "")


def make_data(widths: list[int], batch: int) -> tuple:
    rng = np.random.default_rng(0)
    weights = [(rng.standard_normal(pair) / pair[0] ** 0.5).astype(np.float32) for pair in pairwise(widths)]
    biases = [np.zeros(width, np.float32) for width in widths[1:]]
    x, y = (rng.standard_normal((batch, width)).astype(np.float32) for width in (widths[0], widths[-1]))
    return [*weights, *biases], x, y


def squared_error(params: list, x: np.ndarray, y: np.ndarray) -> object:
    layers = len(params) // 2
    h = x
    for i, (w, b) in enumerate(zip(params[:layers], params[layers:], strict=True)):
        h = h @ w + b
        if i < layers - 1:
            h = pb.maximum(h, 0.0)
    return pb.mean((h - y) ** 2)


def least(step: Callable[[], object], repeats: int) -> float:
    """The least time of a step, as the slowest rank has it."""
    seconds = np.empty(repeats)
    for i in range(-3, repeats):
        distributed.barrier()
        start = perf_counter()
        step()
        if i >= 0:
            seconds[i] = perf_counter() - start
    return float(np.asarray(distributed.largest(seconds)).min())


def on_tape(params: list, x: np.ndarray, y: np.ndarray, repeats: int) -> tuple[Step, float]:
    """The step without sums, and the time with them."""
    tensors = [pb.tensor(p, requires_grad=True) for p in params]
    optimizer = pb.optim.SGD(tensors, lr=1e-4)

    def loss() -> pb.Tensor:
        return squared_error(tensors, x, y)

    ddp = distributed.DistributedGradient(tensors)
    distributed.barrier()
    with ddp.no_sync():  # all ranks have the same data, so their parameters stay the same
        step = record_step(tensors, loss, optimizer.step, repeats=repeats)

    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    seconds = least(run, repeats)
    ddp.remove()
    return step, seconds


def compiled(params: list, x: np.ndarray, y: np.ndarray, repeats: int) -> tuple[Step, float]:
    """The same of a compiled step, whose gradients are complete together. What `aggregate` does beside sums shows in a
    world of one rank.
    """

    def time_with(rule: pb.optim.Rule) -> float:
        state = rule.init(params)
        run = pb.jit(lambda p, s: rule.update(pb.grad(squared_error)(p, x, y), s, p))
        return least(lambda: run(params, state), repeats)

    over_ranks = pb.optim.chain(distributed.aggregate(), pb.optim.sgd(1e-4))
    distributed.barrier()
    alone = distributed.run(lambda: time_with(pb.optim.sgd(1e-4)), 1)[0]
    more = max(distributed.run(lambda: time_with(over_ranks), 1)[0] - alone, 0.0)
    size = sum(p.nbytes for p in params)
    return Step(0.0, alone, gradients=(GradientTime("all", size, alone),), check=more), time_with(over_ranks)


def run_rank(folder: Path, repeats: int, networks: list[str]) -> None:
    """What one rank does: measure the world and steps, and save both."""
    distributed.init()
    model = measure()
    found = {}
    for name in networks:
        data = make_data(*NETWORKS[name])
        for by, run in (("tape", on_tape), ("compiled", compiled)):
            step, seconds = run(*data, repeats)
            found[f"{name}|{by}"] = {"step": asdict(step), "seconds": seconds}
    n = distributed.world_size()
    model.save(folder / f"world-{n}.json")
    if distributed.rank() == 0:
        (folder / f"steps-{n}.json").write_text(json.dumps(found))


def read_step(held: dict) -> Step:
    gradients = tuple(GradientTime(**g) for g in held["gradients"])
    return Step(**{**held, "gradients": gradients})


def compare(folder: Path, counts: list[int]) -> list[tuple[str, ...]]:
    """A row for each step and number of ranks."""
    *fitted, last = counts
    model = WorldModel.load(*(folder / f"world-{n}.json" for n in fitted))
    found = {n: json.loads((folder / f"steps-{n}.json").read_text()) for n in counts}
    rows = []
    for key in found[last]:
        cases = [(n, n, "fitted") for n in fitted]
        cases += [(last, fitted[-1], "held out"), (last, last, "held out, its own step")]
        for n, recorded, mark in cases:
            step, seconds = read_step(found[recorded][key]["step"]), found[n][key]["seconds"]
            got = predict(step, n, model=model, meetings=2 if key.endswith("tape") else 1)
            times = map(format_seconds, (step.compute, seconds, got.seconds))
            rows.append((*key.split("|"), str(n), *times, f"{got.seconds / seconds - 1:+.0%}", mark))
    print(f"{model}\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4], help="the last is held out (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short run: rough numbers")
    parser.add_argument("--rank-of", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    networks = list(NETWORKS)[:1] if options.quick else list(NETWORKS)
    if options.rank_of:
        return run_rank(options.rank_of, 20 if options.quick else 100, networks)
    counts = sorted(set(options.ranks) - {1})  # one rank sums nothing
    if len(counts) < 2:
        parser.error("wants two or more numbers of ranks above 1")
    with tempfile.TemporaryDirectory() as folder:
        for n in counts:
            more = ["--quick"] if options.quick else []
            if launch(n, [__file__, "--rank-of", folder, *more]):
                raise SystemExit(f"the job of {n} ranks failed")
        rows = compare(Path(folder), counts)
    print(f"{count_cores()} cores; times are the least of many")
    print(text_table([HEAD, *rows], right=range(2, 7)))
    return None


if __name__ == "__main__":
    main()
