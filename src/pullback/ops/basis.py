"""The few ops that the families' own derivations are written in, bound once all ops are defined.

Families make ops and are written in ops; this is the one knot of that circle.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "add", "bind", "broadcast_to", "conj", "moveaxis", "multiply", "negative", "positive", "reshape",
    "unrecorded",
]  # fmt: skip

add: Any
multiply: Any
negative: Any
positive: Any
conj: Any
moveaxis: Any
reshape: Any
broadcast_to: Any
unrecorded: Any


def bind(**functions: Any) -> None:
    """Tie the knot; called once by the package."""
    globals().update(functions)
