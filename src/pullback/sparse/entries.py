"""The two parts of a sparse matrix, which functions of this package take and return."""

from __future__ import annotations

from typing import Any, NamedTuple

from .pattern import Pattern


class Entries(NamedTuple):
    """Numbers, and where they are."""

    data: Any
    pattern: Pattern
