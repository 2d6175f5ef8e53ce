"""Optimizers: settings are those of their rules."""

from typing import reveal_type

import numpy as np

import pullback as pb

w = pb.tensor([1.0, 2.0], requires_grad=True)
optimizer = pb.optim.Adam([w])
reveal_type(optimizer)  # Optimizer
reveal_type(pb.optim.Adam([w], lr=0.1, betas=(0.8, 0.9)))  # Optimizer
reveal_type(pb.optim.Adam([w], 0.1, jit=False))  # Optimizer
reveal_type(pb.optim.SGD([w], lr=0.1, momentum=0.9))  # Optimizer
reveal_type(pb.optim.Lion([w], lr=0.1))  # Optimizer
pb.sum(w * w).backward()
optimizer.step()
optimizer.zero_grad()
rule = pb.optim.adam(1e-3)
reveal_type(rule)  # Rule
state = rule.init(np.ones(2))
updates, state = rule.update(np.ones(2), state, np.ones(2))
