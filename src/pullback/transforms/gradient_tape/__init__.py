"""The explicit tape: which tensors are watched, and derivatives of what was computed from them."""

from .tape import GradientTape

__all__ = ["GradientTape"]
