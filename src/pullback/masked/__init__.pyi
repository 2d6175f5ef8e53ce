# The public names of `pullback.masked` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .values import apply as apply, array as array, MaskedArray as MaskedArray
from .selection import (
    concat as concat, masked_invalid as masked_invalid, masked_where as masked_where, stack as stack, where as where,
)
