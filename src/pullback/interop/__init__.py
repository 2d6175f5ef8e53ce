"""Interfaces to other libraries: SciPy's optimizers with exact derivatives, einops on tensors."""

from . import einops, jax, scipy, torch

__all__ = ["einops", "jax", "scipy", "torch"]
