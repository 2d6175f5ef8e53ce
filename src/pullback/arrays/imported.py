"""Modules of other libraries that the program has imported: what they define can appear, and only then."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["imported_module"]


def imported_module(name: str) -> Any:
    """A module, once its import is over, or None. `sys.modules` lists one that another thread is still importing, in
    which names are missing yet.
    """
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module
