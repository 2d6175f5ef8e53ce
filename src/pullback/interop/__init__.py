"""Interfaces to other libraries: SciPy's optimizers with exact derivatives, einops on tensors."""

from . import einops, scipy

__all__ = ["einops", "scipy"]
