"""A training loop on the tape."""

from typing import reveal_type

import numpy as np

import pullback as pb

rng = np.random.default_rng(0)
images, labels = rng.normal(size=(8, 3)), rng.integers(0, 2, 8)
w = pb.tensor(rng.normal(size=(3, 2)), requires_grad=True)
for _ in range(2):
    logits = images @ pb.nn.relu(w)
    loss = pb.nn.cross_entropy(pb.matmul(images, w), labels)
    reveal_type(loss)  # Tensor
    loss.backward()
    assert w.grad is not None
    reveal_type(w.grad)  # Tensor
    with pb.no_grad():
        w -= 0.1 * w.grad
    reveal_type(w)  # Tensor
    w.grad = None
(dw,) = pb.gradients(pb.sum(w * w), [w])
reveal_type(dw)  # Tensor | None
