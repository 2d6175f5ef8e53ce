"""`advise`: why a function is slow, and what changes gain, as measured."""

from .report import Advice, AdviceReport
from .search import advise

__all__ = ["Advice", "AdviceReport", "advise"]
