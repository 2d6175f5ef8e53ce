"""`find_nan`: the first op that made a NaN or an infinity, forward, backward or in compiled code."""

from .records import Fault, Source
from .report import NanReport
from .search import find_nan

__all__ = ["Fault", "NanReport", "Source", "find_nan"]
