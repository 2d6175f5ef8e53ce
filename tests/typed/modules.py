"""Modules: fields make a constructor, a call is a call of `forward`."""

from typing import reveal_type

import numpy as np

import pullback as pb


class Scaled(pb.nn.Module):
    inner: pb.nn.Linear
    factor: float = 2.0

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        return self.inner(x) * self.factor


x = pb.tensor(np.ones((4, 3), np.float32))
net = Scaled(pb.nn.Linear(3, 2))
reveal_type(net(x))  # Tensor
reveal_type(net.factor)  # float
reveal_type(Scaled(net.inner, factor=3.0).inner(np.ones((4, 3), np.float32)))  # Tensor
reveal_type(net.eval())  # Scaled
both = pb.nn.Sequential(pb.nn.Linear(3, 5), pb.nn.ReLU(), pb.nn.Linear(5, 2))
reveal_type(both(x))  # Tensor
reveal_type(pb.nn.ReLU()(x))  # Tensor
reveal_type(pb.nn.ReLU()(np.ones(3)))  # ndarray
reveal_type(pb.nn.MSELoss()(both(x), pb.zeros((4, 2))))  # Tensor
reveal_type(pb.nn.Dropout(0.5)(x))  # Tensor
