"""The demo's data and network: a small CNN in float32, its logits and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pullback as pb
from pullback.data import digits

#: Held-out images, batch size, and Adam's learning rate.
HELD_OUT, BATCH, RATE = 360, 64, 3e-3
CHANNELS = (16, 32)


@dataclass(frozen=True, slots=True)
class Digits:
    """Images as (number, 1, 8, 8) with their labels, to learn from and to be tested on."""

    images: NDArray[np.float32]
    labels: NDArray[Any]
    test_images: NDArray[np.float32]
    test_labels: NDArray[Any]


def load_shuffled_digits(random: np.random.Generator) -> Digits:
    """The digits that come with the package, a fifth of them held out."""
    images, labels = digits()
    images = images.reshape(-1, 1, 8, 8)
    order = random.permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train], images[test], labels[test])


def init_parameters(random: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Two convolutions of 3x3 and a dense layer, with variances at which relu neither shrinks nor grows values."""
    one, two = CHANNELS
    shapes = {"conv1": (one, 1, 3, 3), "conv2": (two, one, 3, 3), "dense": (two * 2 * 2, 10)}
    found = {}
    for name, shape in shapes.items():
        inputs = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        outputs = shape[0] if len(shape) == 4 else shape[1]
        weight = random.normal(scale=(2 / inputs) ** 0.5, size=shape).astype(np.float32)
        found[name] = {"weight": weight, "bias": np.zeros(outputs, np.float32)}
    return found


def scores(params: Any, images: Any) -> Any:
    """Ten logits for each image."""
    one, two, dense = params["conv1"], params["conv2"], params["dense"]
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(images, one["weight"], one["bias"], padding=1)), 2)
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(h, two["weight"], two["bias"], padding=1)), 2)
    return pb.reshape(h, (len(images), -1)) @ dense["weight"] + dense["bias"]


def loss(params: Any, images: Any, labels: Any) -> Any:
    """The mean of -log(probability given to the true digit): log(sum(exp(z))) - z[true]."""
    z = scores(params, images)
    return pb.mean(pb.logsumexp(z, axis=1) - pb.take_along_axis(z, labels[:, None], axis=1)[:, 0])


def iter_batches(random: np.random.Generator, rows: int, count: int) -> Iterator[NDArray[Any]]:
    """`count` batches of row indices: each epoch visits all rows once, in a new order."""
    left = np.empty(0, np.int64)
    for _ in range(count):
        if len(left) < BATCH:
            left = random.permutation(rows)
        yield left[:BATCH]
        left = left[BATCH:]
