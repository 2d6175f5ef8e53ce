"""Memory tools: profile, explain, predict, compare, and check for growth."""

from ...arrays.process_memory import peak_resident, release, resident
from .difference import Difference, diff
from .explain import Explanation, explain
from .growth import assert_no_growth
from .predict import Prediction, predict
from .profile import Profile, profile

__all__ = [
    "Difference", "Explanation", "Prediction", "Profile", "assert_no_growth", "diff", "explain", "peak_resident",
    "predict", "profile", "release", "resident",
]  # fmt: skip
