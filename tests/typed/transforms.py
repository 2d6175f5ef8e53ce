"""Transforms keep what a function is called with, and say what comes out."""

from typing import Any, reveal_type

import numpy as np
from numpy.typing import NDArray

import pullback as pb

Array = NDArray[np.float64]


def loss(w: Array, x: Array, scale: float = 1.0) -> Array:
    """A scalar."""
    return pb.multiply(pb.sum((x @ w) ** 2), scale)


def loss_and_norm(w: Array, x: Array) -> tuple[Array, float]:
    return loss(w, x), 3.0


def of_anything(w: Any) -> Any:
    return pb.sum(w * w)


w, x = np.ones(2), np.ones((3, 2))

reveal_type(pb.grad(loss))  # def (ndarray, x: ndarray, scale: float =) -> ndarray
reveal_type(pb.grad(loss)(w, x, scale=2.0))  # ndarray
reveal_type(pb.value_and_grad(loss)(w, x))  # tuple[ndarray, ndarray]
reveal_type(pb.grad(loss_and_norm, has_aux=True)(w, x))  # tuple[ndarray, float]
reveal_type(pb.grad(loss, argnums=(0, 1)))  # def (w: ndarray, x: ndarray, scale: float =) -> Any
reveal_type(pb.grad(of_anything)(w))  # Any
reveal_type(pb.grad(lambda v: pb.sum(v * v))(w))  # Any
reveal_type(pb.grad(pb.grad(lambda v: v * v * v))(2.0))  # Any
reveal_type(pb.hessian(loss))  # def (w: ndarray, x: ndarray, scale: float =) -> Any
reveal_type(pb.vmap(loss, (None, 0)))  # def (w: ndarray, x: ndarray, scale: float =) -> ndarray
reveal_type(pb.checkpoint(loss)(w, x))  # ndarray
reveal_type(pb.checkpoint(policy=pb.save_nothing)(loss)(w, x))  # ndarray
reveal_type(pb.fuse(loss)(w, x))  # ndarray
reveal_type(pb.jvp(loss, (w, x), (w, x)))  # tuple[ndarray, ndarray]
value, pull = pb.vjp(loss, w, x)
reveal_type(value)  # ndarray
