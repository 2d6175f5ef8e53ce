"""Values of ops in native code: an op states a function of a later layer that computes its value where it can.

Rules, transforms and programs see nothing of it: the op stays the op. Which calls run natively is fixed by their
arguments, so the same call returns the same bits, the first time and every time. `pb.native(False)` turns it off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..settings import uses_native_code
from .lazy import lazy_function


def native_value(value: Callable[..., Any], place: str, name: str) -> Callable[..., Any]:
    """A value function that asks `name` in the module `place` of `compile` first: `name(*arrays, **static)` returns the
    result, or None where it has no native code for such arguments. Arrays of other libraries never get there.
    """
    native = lazy_function(place, name, "compile")

    def compute(xp: Any, *arrays: Any, **static: Any) -> Any:
        if xp is np and uses_native_code() is not False:
            found = native(*arrays, **static)
            if found is not None:
                return found
        return value(xp, *arrays, **static)

    compute.__wrapped__ = value  # type: ignore[attr-defined]
    return compute
