"""Digits and parameters in, a run of training out: by tape, or as one compiled step."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, final

import numpy as np

import pullback as pb
from pullback.compile.cpu.executable import NativeExecutable

from .network import RATE, Digits, batches, loss, scores

__all__ = ["ByTape", "Compiled", "Run", "Way", "accuracy", "train", "whole_step"]

#: How often in a run the network is tried on the digits that were held out.
TRIALS = 20


@dataclass(slots=True)
class Run:
    """What a run did: the loss and seconds of each step, (step, accuracy) now and then, norms of gradients by layer."""

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    trials: list[tuple[int, float]] = field(default_factory=list)
    norms: dict[str, list[float]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of held-out digits that the network knew at the end."""
        return self.trials[-1][1]

    @property
    def seconds_per_step(self) -> float:
        """The median, without the first step, which may compile."""
        return median(self.seconds[1:] or self.seconds)


class Way(ABC):
    """A way to train: `step` takes one and answers the loss; `params` are where it stands."""

    name: str

    @abstractmethod
    def step(self, images: Any, labels: Any) -> float: ...

    @abstractmethod
    def params(self) -> Any: ...

    def norms(self) -> dict[str, float]:
        """The norm of the last gradient of each layer, if it is known."""
        return {}


@final
class ByTape(Way):
    """Forward, `backward`, and the optimiser's step, op by op, as PyTorch users write it."""

    name = "tape"

    def __init__(self, params: Any) -> None:
        self.layers = {
            name: {key: pb.tensor(x, requires_grad=True) for key, x in layer.items()} for name, layer in params.items()
        }
        self.optimiser = pb.optim.Adam(self.layers, lr=RATE)

    def step(self, images: Any, labels: Any) -> float:
        self.optimiser.zero_grad()
        value = loss(self.layers, images, labels)
        value.backward()
        self.optimiser.step()
        return float(value.item())

    def params(self) -> Any:
        return {name: {key: x.detach().numpy() for key, x in layer.items()} for name, layer in self.layers.items()}

    def norms(self) -> dict[str, float]:
        def norm(layer: dict[str, pb.Tensor]) -> float:
            return float(np.sqrt(sum(np.sum(np.square(x.grad.numpy())) for x in layer.values() if x.grad is not None)))

        return {name: norm(layer) for name, layer in self.layers.items()}


def whole_step(params: Any, state: Any, images: Any, labels: Any) -> Any:
    """Forward, backward and update: the loss, the new parameters, the new state of the optimiser."""
    value, gradients = pb.value_and_grad(loss)(params, images, labels)
    updates, state = rule().update(gradients, state, params)
    return value, pb.optim.apply_updates(params, updates), state


@functools.cache
def rule() -> Any:
    return pb.optim.adam(RATE)


@final
class Compiled(Way):
    """The whole step as one native call that writes the new parameters over the old."""

    name = "compiled"

    def __init__(self, params: Any) -> None:
        mine = {name: {key: x.copy() for key, x in layer.items()} for name, layer in params.items()}
        self.call = pb.jit(whole_step, donate_argnums=(0, 1))
        self.at = (mine, rule().init(mine))

    def step(self, images: Any, labels: Any) -> float:
        value, *at = self.call(*self.at, images, labels)
        self.at = (at[0], at[1])
        return float(value)

    def params(self) -> Any:
        return self.at[0]

    @property
    def is_native(self) -> bool:
        """Whether there is machine code; without LLVM the array library runs the program."""
        return self.call.last is not None and isinstance(self.call.last.code, NativeExecutable)


def accuracy(params: Any, images: Any, labels: Any) -> float:
    return float(np.mean(np.argmax(scores(params, images), axis=-1) == labels))


def train(way: Way, data: Digits, steps: int, seed: int, watch: Callable[[Run], None]) -> Run:
    """A run of so many steps, the same batches for the same seed; `watch` is told after each."""
    run = Run(way.name)
    every = max(steps // TRIALS, 1)
    for number, rows in enumerate(batches(np.random.default_rng(seed), len(data.images), steps), 1):
        images, labels = data.images[rows], data.labels[rows]
        begin = perf_counter()
        run.losses.append(way.step(images, labels))
        run.seconds.append(perf_counter() - begin)
        for layer, norm in way.norms().items():
            run.norms.setdefault(layer, []).append(norm)
        if number % every == 0 or number == steps:
            run.trials.append((number, accuracy(way.params(), data.test_images, data.test_labels)))
        watch(run)
    return run
