"""Training runs: by tape, or as one compiled step."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, final

import numpy as np

import pullback as pb
from pullback.arrays.trees import map_tree

from .network import RATE, Digits, iter_batches, loss, scores

#: How often in a run the network is evaluated on the held-out digits.
EVALUATIONS = 20


@dataclass(slots=True)
class TrainingRun:
    """What a run did: the loss and seconds of each step, (step, accuracy) now and then, norms of gradients by layer."""

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    norms: dict[str, list[float]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The final accuracy on the held-out digits."""
        return self.evaluations[-1][1]


class Trainer(ABC):
    """A way to train: `step` takes one step and returns the loss; `params` are the current parameters."""

    name: str

    @abstractmethod
    def step(self, images: Any, labels: Any) -> float: ...

    @abstractmethod
    def params(self) -> Any: ...

    def norms(self) -> dict[str, float]:
        """The norm of the last gradient of each layer, if it is known."""
        return {}


@final
class TapeTrainer(Trainer):
    """Forward, `backward`, and the optimizer's step, op by op, as PyTorch users write it."""

    name = "tape"

    def __init__(self, params: Any) -> None:
        self.layers = map_tree(lambda x: pb.tensor(x, requires_grad=True), params)
        self.optimizer = pb.optim.Adam(self.layers, lr=RATE)

    def step(self, images: Any, labels: Any) -> float:
        self.optimizer.zero_grad()
        value = loss(self.layers, images, labels)
        value.backward()
        self.optimizer.step()
        return float(value.item())

    def params(self) -> Any:
        return map_tree(lambda x: x.detach().numpy(), self.layers)

    def norms(self) -> dict[str, float]:
        gradients = {name: {key: x.grad for key, x in layer.items()} for name, layer in self.layers.items()}
        return {name: float(pb.optim.global_norm(layer).detach()) for name, layer in gradients.items()}


def training_step(params: Any, state: Any, images: Any, labels: Any) -> Any:
    """Forward, backward and update: the loss, the new parameters, the new state of the optimizer."""
    value, gradients = pb.value_and_grad(loss)(params, images, labels)
    updates, state = adam_rule().update(gradients, state, params)
    return value, pb.optim.apply_updates(params, updates), state


@functools.cache
def adam_rule() -> Any:
    return pb.optim.adam(RATE)


@final
class CompiledTrainer(Trainer):
    """The whole step as one native call that updates donated parameters in place."""

    name = "compiled"

    def __init__(self, params: Any) -> None:
        mine = map_tree(lambda x: x.copy(), params)
        self.call = pb.jit(training_step, donate_argnums=(0, 1))
        self.params_and_state = (mine, adam_rule().init(mine))

    def step(self, images: Any, labels: Any) -> float:
        value, *at = self.call(*self.params_and_state, images, labels)
        self.params_and_state = (at[0], at[1])
        return float(value)

    def params(self) -> Any:
        return self.params_and_state[0]

    @property
    def is_native(self) -> bool:
        """Whether there is machine code; without LLVM NumPy runs the program."""
        return self.call.last is not None and self.call.last.code.compilation is not None


def accuracy(params: Any, images: Any, labels: Any) -> float:
    return float(np.mean(np.argmax(scores(params, images), axis=-1) == labels))


def train(way: Trainer, data: Digits, steps: int, seed: int, watch: Callable[[TrainingRun], None]) -> TrainingRun:
    """A run of so many steps, the same batches for the same seed; `watch` is called after each."""
    run = TrainingRun(way.name)
    every = max(steps // EVALUATIONS, 1)
    for number, rows in enumerate(iter_batches(np.random.default_rng(seed), len(data.images), steps), 1):
        images, labels = data.images[rows], data.labels[rows]
        begin = perf_counter()
        run.losses.append(way.step(images, labels))
        run.seconds.append(perf_counter() - begin)
        for layer, norm in way.norms().items():
            run.norms.setdefault(layer, []).append(norm)
        if number % every == 0 or number == steps:
            run.evaluations.append((number, accuracy(way.params(), data.test_images, data.test_labels)))
        watch(run)
    return run
