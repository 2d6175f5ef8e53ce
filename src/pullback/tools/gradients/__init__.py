"""Gradient reports: what vanishes, explodes, is dead or saturated, by layer."""

from .analyze import gradient_report
from .report import GradientReport

__all__ = ["GradientReport", "gradient_report"]
