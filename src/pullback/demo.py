"""Nothing in, a fitted model and what it cost out: a two-layer network learns the 8x8 digits by tape."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

import pullback as pb
from pullback.data import digits

HIDDEN = 64
HELD_OUT = 360
RATE = 0.1
MOMENTUM = 0.9


@dataclass(frozen=True)
class Report:
    """What a run of the demo did."""

    parameters: int
    steps: int
    loss: float
    accuracy: float
    seconds_per_step: float


class Network:
    """Two layers, 64 pixels to 10 scores: `tanh(x @ w1 + b1) @ w2 + b2`, in float32."""

    def __init__(self, random: np.random.Generator) -> None:
        def weight(rows: int, columns: int) -> pb.Tensor:
            values = random.normal(scale=rows**-0.5, size=(rows, columns))
            return pb.tensor(values, dtype=np.float32, requires_grad=True)

        def bias(columns: int) -> pb.Tensor:
            return pb.tensor(np.zeros(columns), dtype=np.float32, requires_grad=True)

        self.parameters = [weight(64, HIDDEN), bias(HIDDEN), weight(HIDDEN, 10), bias(10)]

    def __call__(self, images: NDArray[np.float32]) -> pb.Tensor:
        w1, b1, w2, b2 = self.parameters
        scores: pb.Tensor = pb.tanh(images @ w1 + b1) @ w2 + b2
        return scores


class Momentum:
    """Gradient descent whose step is a running sum of the gradients seen, the older ones fading."""

    def __init__(self, parameters: list[pb.Tensor]) -> None:
        self.parameters = parameters
        self.velocities = [np.zeros(parameter.shape, np.float32) for parameter in parameters]

    def step(self) -> None:
        with pb.no_grad():
            for parameter, velocity in zip(self.parameters, self.velocities, strict=True):
                assert parameter.grad is not None, "every parameter takes part in the loss"
                velocity *= MOMENTUM
                velocity += parameter.grad.numpy()
                parameter -= RATE * velocity
                parameter.grad = None


def cross_entropy(scores: pb.Tensor, labels: NDArray[Any]) -> pb.Tensor:
    """The mean of -log(probability given to the true class)."""
    chosen = pb.take_along_axis(pb.log_softmax(scores, axis=-1), labels[:, None], axis=-1)
    loss: pb.Tensor = -pb.mean(chosen)
    return loss


def batches(random: np.random.Generator, rows: int, size: int, count: int) -> Iterable[NDArray[Any]]:
    """`count` sets of row numbers: each pass over the data goes through all rows once, in a new order."""
    left = np.empty(0, np.int64)
    for _ in range(count):
        if len(left) < size:
            left = random.permutation(rows)
        yield left[:size]
        left = left[size:]


def main(steps: int = 3000, batch: int = 64, seed: int = 0, console: Console | None = None) -> Report:
    """Fits the network to four fifths of the digits, measures it on the rest, prints and returns what it did."""
    console = console or Console()
    random = np.random.default_rng(seed)
    images, labels = digits()
    order = random.permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    model = Network(random)
    descent = Momentum(model.parameters)

    start = time.perf_counter()
    for rows in track(
        batches(random, len(train), batch, steps), "Learning the digits", total=steps, console=console, transient=True
    ):
        chosen = train[rows]
        loss = cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        descent.step()
    seconds = (time.perf_counter() - start) / steps

    with pb.no_grad():
        predicted = pb.argmax(model(images[test]), axis=-1).numpy()
    report = Report(
        parameters=sum(parameter.size for parameter in model.parameters),
        steps=steps,
        loss=loss.item(),
        accuracy=float(np.mean(predicted == labels[test])),
        seconds_per_step=seconds,
    )
    tell(report, len(train), batch, console)
    return report


def tell(report: Report, rows: int, batch: int, console: Console) -> None:
    console.print(
        f"Fitted a two-layer network (64 -> {HIDDEN} -> 10, {report.parameters:,} float32 parameters) by tape\n"
        f"to {rows:,} images of 8x8 handwritten digits: {report.steps:,} steps of {batch} images,\n"
        f"each one forward pass, one backward pass and one momentum update.\n"
        f"  time per step       {report.seconds_per_step * 1e3:.2f} ms\n"
        f"  loss, last step     {report.loss:.4f}\n"
        f"  held-out accuracy   {report.accuracy:.1%} of {HELD_OUT} images it never saw",
        highlight=False,
    )
