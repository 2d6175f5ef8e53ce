"""Seeing memory: what lives, who holds it, what a function will need, and whether it grows."""

from ...arrays.pages import peak_resident, release, resident
from .difference import Difference, diff
from .explain import Explanation, explain
from .growth import assert_no_growth
from .predict import Prediction, predict
from .profile import Profile, profile

__all__ = [
    "Difference", "Explanation", "Prediction", "Profile", "assert_no_growth", "diff", "explain", "peak_resident",
    "predict", "profile", "release", "resident",
]  # fmt: skip
