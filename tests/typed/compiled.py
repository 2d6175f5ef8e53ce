"""Compiled functions: the signature survives, and what `jit` adds is there."""

from typing import reveal_type

import numpy as np
from numpy.typing import NDArray

import pullback as pb

Array = NDArray[np.float64]


@pb.jit
def step(w: Array, x: Array, rate: float = 0.1) -> Array:
    slope: Array = pb.grad(lambda v: pb.sum((x @ v) ** 2))(w)
    return w - rate * slope


@pb.jit(static_argnames="power")
def norm(x: Array, power: int = 2) -> Array:
    return pb.sum(x**power)


def squares(x: Array) -> Array:
    return pb.sum(x * x)


w, x = np.ones(2), np.eye(2)
reveal_type(step)  # Jitted[[w: ndarray, x: ndarray, rate: float =], ndarray]
reveal_type(step(w, x, 0.5))  # ndarray
reveal_type(norm(x, power=4))  # ndarray
reveal_type(step.lower(w, x))  # Specialization
reveal_type(pb.jit(pb.value_and_grad(squares))(x))  # tuple[ndarray, ndarray]
