"""Arrays of JAX and ours in the same memory, and which dtypes cross."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec
from ..errors import DtypeError


def import_jax(what: str) -> Any:
    try:
        return import_module("jax")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what}: JAX is not installed.\n  Install it: pip install jax.") from error


def refuse_dtypes(specs: Sequence[Spec], what: str) -> None:
    """Raise for dtypes that would be changed on the way: JAX rounds 64 bits to 32 by default."""
    wide = import_jax(what).config.jax_enable_x64
    for spec in specs:
        if spec.dtype.kind == "c":
            raise DtypeError(f"{what}: gradients of complex arrays have another convention in JAX, and are not passed.")
        if spec.dtype.itemsize == 8 and not wide:
            raise DtypeError(
                f"{what}: JAX would round {spec.dtype} to 32 bits.\n"
                '  Allow 64 bits, jax.config.update("jax_enable_x64", True), or cast: pb.astype(x, "float32").'
            )


def narrow_number(x: bool | int | float) -> Any:
    """A number of Python in the dtype that JAX gives it: of 32 bits by default."""
    return np.asarray(x, import_jax("interop.jax").dtypes.canonicalize_dtype(np.asarray(x).dtype))


def spec_of_array(x: Any) -> Spec:
    jax = import_jax("interop.jax")
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        raise DtypeError(f"interop.jax: an array of {x.dtype} has no numbers.\n  Pass jax.random.key_data(key).")
    return make_spec(tuple(x.shape), np.dtype(x.dtype))


def as_jax_array(x: Any) -> Any:
    """An array of NumPy as one of JAX, which has the machine's own order of bytes alone; in its memory where it can."""
    return import_jax("interop.jax").numpy.asarray(x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("=")))


def as_frozen_array(x: Any) -> Any:
    """An array of JAX, which never changes, as one of NumPy in its memory."""
    found = np.asarray(x)
    if found.flags.writeable:
        found = found.view()
        found.flags.writeable = False
    return found
