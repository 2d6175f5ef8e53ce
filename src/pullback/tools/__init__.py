"""Tools: drawings of programs, gradient reports, gradient checks, certification, memory profiles, debugging, advice."""

from .advise import Advice, AdviceReport, advise
from .compare import Comparison, compare
from .digests import DigestDifference, DigestStep, RunDigest
from .drawing import draw
from .find_nan import NanReport, find_nan
from .gradients import GradientReport, gradient_report

__all__ = [
    "Advice", "AdviceReport", "Comparison", "DigestDifference", "DigestStep", "GradientReport", "NanReport",
    "RunDigest", "advise", "compare", "draw", "find_nan", "gradient_report",
]  # fmt: skip
