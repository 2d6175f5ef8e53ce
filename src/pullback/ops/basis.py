"""The few ops that the families' derivations use, bound once all ops are defined.

Families define ops and also use them; this module breaks the import cycle.
"""

from __future__ import annotations

from typing import Any

add: Any
astype: Any
multiply: Any
negative: Any
positive: Any
conj: Any
moveaxis: Any
reshape: Any
broadcast_to: Any
unrecorded: Any


def bind(**functions: Any) -> None:
    """Bind the ops; called once by the package."""
    globals().update(functions)
