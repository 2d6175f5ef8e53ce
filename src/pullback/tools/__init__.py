"""Tools: drawings of programs, gradient reports, gradient checks, certification, memory profiles."""

from .drawing import draw
from .gradients import GradientReport, gradient_report

__all__ = ["GradientReport", "draw", "gradient_report"]
