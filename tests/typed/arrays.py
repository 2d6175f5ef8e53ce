"""Functions, operators and methods: tensors give tensors, plain arrays NumPy's."""

from typing import Any, reveal_type

import numpy as np
from numpy.typing import NDArray

import pullback as pb

x = pb.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
a = np.ones((2, 2))

reveal_type(pb.sin(x))  # Tensor
reveal_type(pb.sin(a))  # ndarray
reveal_type(pb.cos(pb.sin(a)))  # ndarray
reveal_type(pb.matmul(x, pb.sin(a)))  # Tensor
reveal_type(pb.sqrt(2.0))  # ndarray
reveal_type(pb.exp([1.0, 2.0]))  # ndarray
reveal_type(pb.add(x, 1))  # Tensor
reveal_type(pb.maximum(0.0, x))  # Tensor
reveal_type(pb.multiply(a, x))  # Tensor
reveal_type(pb.multiply(a, 2))  # ndarray
reveal_type(pb.where(x > 0, x, 0.0))  # Tensor
reveal_type(pb.where(a > 0, a, 0.0))  # ndarray
reveal_type(pb.sum(x, axis=0, keepdims=True))  # Tensor
reveal_type(pb.mean(a))  # ndarray
reveal_type(pb.argmax(x, axis=1))  # Tensor
reveal_type(pb.nansum(a))  # ndarray
reveal_type(pb.matmul(a, x))  # Tensor
reveal_type(pb.concat([x, x]))  # Tensor
reveal_type(pb.stack([a, a], axis=1))  # ndarray
reveal_type(pb.einsum("ij,jk->ik", x, x))  # Tensor
reveal_type(pb.einsum("ij,jk", a, a, optimize=False))  # ndarray
reveal_type(pb.block_diag(x, x))  # Tensor
reveal_type(pb.special.hyp2f1(x / 10, 1.0, 1.0, 0.5))  # Any
reveal_type(pb.split(x, 2))  # list[Tensor]
reveal_type(pb.topk(x, 1))  # tuple[Tensor, Tensor]
reveal_type(pb.unstack(a))  # tuple[ndarray, ...]
reveal_type(pb.linalg.inv(x))  # Tensor
reveal_type(pb.linalg.solve(a + np.eye(2), a))  # ndarray
reveal_type(pb.fft.fft(x))  # Tensor
reveal_type(pb.special.gammaln(x))  # Tensor
reveal_type(pb.nn.softmax(x))  # Tensor
reveal_type(pb.nn.linear(x, a))  # Tensor
reveal_type(pb.nn.avg_pool1d(x, 2))  # Tensor
reveal_type(pb.nn.cross_entropy(x, np.array([0, 1])))  # Tensor
reveal_type(pb.zeros((2, 3)))  # Tensor

reveal_type(x + 1)  # Tensor
reveal_type(2 * x)  # Tensor
reveal_type(x @ x)  # Tensor
reveal_type(x > 0)  # Tensor
reveal_type(x == x)  # Tensor
reveal_type(-x)  # Tensor
reveal_type(x[0])  # Tensor
reveal_type(x.T)  # Tensor
reveal_type(x.sum())  # Tensor
reveal_type(x.reshape(4).exp().mean())  # Tensor
reveal_type(x.unsqueeze(0))  # Tensor
reveal_type(x.detach().numpy())  # ndarray
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(float(x.sum().detach()))  # float
for row in x:
    reveal_type(row)  # Tensor


def scale(v: pb.Tensor | NDArray[Any]) -> None:
    reveal_type(pb.tanh(v))  # Tensor | ndarray


scale(x)
