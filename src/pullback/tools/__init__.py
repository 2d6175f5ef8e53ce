"""Seeing and checking: programs as pictures, gradients by layer, differences, certificates, memory."""

from .drawing import draw
from .gradients import GradientReport, gradient_report

__all__ = ["GradientReport", "draw", "gradient_report"]
