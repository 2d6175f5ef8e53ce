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

u, s, vh = pb.linalg.svd(x)
reveal_type(vh)  # Tensor
reveal_type(pb.linalg.svd(a, full_matrices=False).S)  # ndarray
reveal_type(pb.linalg.svd(x, compute_uv=False))  # Tensor
reveal_type(pb.linalg.qr(x).R)  # Tensor
reveal_type(pb.linalg.qr(a, "r"))  # ndarray
reveal_type(pb.linalg.qr(a, mode="raw"))  # tuple[ndarray, ndarray]
reveal_type(pb.linalg.lu(x))  # tuple[Tensor, Tensor, Tensor]
reveal_type(pb.linalg.lu(a, permute_l=True))  # tuple[ndarray, ndarray]
reveal_type(pb.linalg.eigh(x).eigenvalues)  # Tensor
reveal_type(pb.linalg.eig(a)[1])  # ndarray
reveal_type(pb.linalg.slogdet(x).logabsdet)  # Tensor
reveal_type(pb.gradient(x, axis=0))  # Tensor
reveal_type(pb.gradient(a, 0.5, axis=1))  # ndarray
reveal_type(pb.select([x > 1, x > 0], [x, x * 2]))  # Tensor
reveal_type(pb.select([a > 1, a > 0], [a, a * 2], default=1.0))  # ndarray
reveal_type(pb.piecewise(x, [x > 0], [pb.sqrt, 0.0]))  # Tensor
reveal_type(pb.choose(np.array([0, 1]), [x[0], x[1]]))  # Tensor
reveal_type(pb.choose(np.arange(2), [np.ones(2), np.zeros(2)]))  # ndarray
reveal_type(pb.histogram(a, bins=3))  # tuple[ndarray, ndarray]
reveal_type(pb.histogram(a, weights=x)[0])  # Tensor
reveal_type(pb.tri(3))  # ndarray

key = pb.random.key(0)
reveal_type(key)  # ndarray
reveal_type(pb.random.split(key, 3))  # ndarray
reveal_type(pb.random.normal(size=(2, 2), key=key))  # ndarray
reveal_type(pb.random.normal(x, key=key))  # Tensor
reveal_type(pb.random.normal(loc=a, scale=x, key=key))  # Tensor
reveal_type(pb.random.uniform(0.0, x, key=key))  # Tensor
reveal_type(pb.random.uniform(-1.0, 1.0, (2,)))  # ndarray
reveal_type(pb.random.gamma(x, key=key))  # Tensor
reveal_type(pb.random.integers(0, 10, size=4))  # ndarray
reveal_type(pb.random.bernoulli(0.3, 5))  # ndarray
reveal_type(pb.random.choice(10, 3, replace=False))  # ndarray
reveal_type(pb.random.choice(x, 1, key=key))  # Tensor
reveal_type(pb.random.permutation(10))  # ndarray
reveal_type(pb.random.categorical(a, key=key))  # ndarray

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
