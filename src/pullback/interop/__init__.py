"""Derivatives for other libraries: what they ask for, from functions written for pullback."""

from . import scipy

__all__ = ["scipy"]
