"""Parameters and a loss in, what is wrong with the gradients out, by layer."""

from .asking import gradient_report
from .report import GradientReport

__all__ = ["GradientReport", "gradient_report"]
