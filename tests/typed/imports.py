"""Namespaces as modules: what is `pb.linalg` can be imported as `pullback.linalg`."""

from typing import reveal_type

import numpy as np

import pullback as pb
import pullback.fft
import pullback.linalg as la
import pullback.nn.functional
from pullback.memory import profile
from pullback.optim.schedules import cosine
from pullback.random import key, normal
from pullback.special import gammaln
from pullback.tree import leaves

x = pb.tensor(np.eye(2), requires_grad=True)
reveal_type(la.inv(x))  # Tensor
reveal_type(la.svd(x).S)  # Tensor
reveal_type(pullback.fft.fft(x))  # Tensor
reveal_type(normal(size=3, key=key(0)))  # ndarray
reveal_type(gammaln(x + 1))  # Tensor
reveal_type(pullback.nn.functional.relu(x))  # Tensor
reveal_type(pullback.nn.functional.cross_entropy(x, np.array([0, 1])))  # Tensor
reveal_type(len(leaves({"a": x})))  # int
assert callable(profile)
assert callable(cosine)
