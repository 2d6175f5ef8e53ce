"""Interfaces to other libraries: SciPy's optimizers with exact derivatives."""

from . import scipy

__all__ = ["scipy"]
