"""`compare`: two runs side by side, and the first step in which they differ."""

from .report import Comparison, Difference
from .search import compare

__all__ = ["Comparison", "Difference", "compare"]
