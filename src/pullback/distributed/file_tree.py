"""A tree like the one wanted in, the same tree with the contents of a checkpoint out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, move_array, to_host
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DtypeError, FormatError, PullbackError, ShapeError
from ..ops.collective.world import current_world
from ..saving.tree_reader import TreeReader
from .file_reader import CheckpointReader
from .file_writer import BARE_NAME
from .marks import Leaf, Row, Summed, list_leaves, part_size, row_range

#: How many names an error lists.
_LISTED = 5


def read_tree(reader: CheckpointReader, like: Any, what: str) -> Any:
    """A tree like another, with what the checkpoint has under the names of its leaves."""
    leaves = [leaf._replace(name=leaf.name or BARE_NAME) for leaf in list_leaves(like)]
    index = reader.index
    if missing := [leaf.name for leaf in leaves if leaf.name not in index.arrays and leaf.name not in index.values]:
        raise _missing_error(missing, [*index.arrays, *index.values], what)
    return unflatten(flatten(like)[1], [_read_leaf(reader, leaf, what) for leaf in leaves])


def _missing_error(missing: Sequence[str], there: Sequence[str], what: str) -> ArgumentError:
    def listed(names: Sequence[str]) -> str:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return ", ".join(name[:80] for name in names[:_LISTED]) + more

    return ArgumentError(
        f"{what}: the checkpoint has no {listed(missing)}; it has {listed(there) or 'nothing'}.\n"
        "  Leave out of `like` what was not saved, and name the rest as it was."
    )


def read_everything(reader: CheckpointReader) -> dict[str, Any]:
    """All arrays, whole, and all values by name."""
    index = reader.index
    arrays = {name: reader.read(name, 0, math.prod(a.shape)).reshape(a.shape) for name, a in index.arrays.items()}
    return arrays | {name: _read_value(reader, name, "load") for name in index.values}


def _read_leaf(reader: CheckpointReader, leaf: Leaf, what: str) -> Any:
    spec = _wanted_spec(leaf.value)
    if spec is None:
        if leaf.name in reader.index.values:
            return _read_value(reader, leaf.name, what)
        raise ArgumentError(f"{what}: {leaf.name} is an array, and a {type(leaf.value).__name__} in `like`.")
    if leaf.name in reader.index.values:
        raise ArgumentError(f"{what}: {leaf.name} is a value that is no array, and {spec} in `like`.")
    return _place(_read_array(reader, leaf, spec, what), leaf.value, spec)


def _wanted_spec(x: Any) -> Spec | None:
    """The spec of a leaf that is an array or tells of one, None for other values."""
    if isinstance(x, Spec):
        return x
    return spec_of(x) if isinstance(x, (Tensor, np.generic)) or is_array(x) else None


def _read_array(reader: CheckpointReader, leaf: Leaf, spec: Spec, what: str) -> Any:
    """What this rank has of an array, on the host."""
    stored, world = reader.index.arrays[leaf.name], current_world()
    wanted = leaf.mark.shape if isinstance(leaf.mark, Row) else spec.shape
    if stored.shape != wanted:
        raise ShapeError(f"{what}: {leaf.name} has shape {stored.shape}, and {wanted} in `like`.")
    if stored.dtype != spec.dtype.newbyteorder("="):
        raise DtypeError(
            f"{what}: {leaf.name} is {stored.dtype.name}, and {spec.dtype.name} in `like`.\n"
            "  Load it as it was saved, and convert it then."
        )
    if isinstance(leaf.mark, Row):
        return _read_row(reader, leaf, spec, what)
    if isinstance(leaf.mark, Summed) and world.rank > 0:
        return np.zeros(spec.shape, stored.dtype)
    return reader.read(leaf.name, 0, spec.size).reshape(spec.shape)


def _read_row(reader: CheckpointReader, leaf: Leaf, spec: Spec, what: str) -> Any:
    """This rank's row; what fills it up stays as it is in `like`."""
    world = current_world()
    shape = reader.index.arrays[leaf.name].shape
    size = math.prod(shape)
    if spec.shape != (part_size(size, world.size),):
        raise ShapeError(
            f"{what}: {leaf.name} is a row of an array of shape {shape}, and has shape {spec.shape} in `like`, which "
            f"is none of {world.size} ranks.\n  Make `like` by ranks of this run."
        )
    start, stop = row_range(size, world.rank, world.size)
    row = np.zeros(spec.shape, spec.dtype)
    row[: stop - start] = reader.read(leaf.name, start, stop)
    if not isinstance(leaf.value, Spec):
        own = leaf.value.value if isinstance(leaf.value, Tensor) else leaf.value
        row[stop - start :] = to_host(own)[stop - start :]
    return row


def _place(array: Any, like: Any, spec: Spec) -> Any:
    """An array as `like` is: on its device, a tensor, a scalar."""
    if isinstance(like, np.generic):
        return array[()]
    found = move_array(array, spec.device)
    if not isinstance(like, Tensor):
        return found
    tensor = wrap(found, make_spec(spec.shape, spec.dtype, spec.device))
    return tensor.requires_grad_() if like.is_leaf and like.requires_grad else tensor


def _read_value(reader: CheckpointReader, name: str, what: str) -> Any:
    """A value that is no array."""
    try:
        return TreeReader({}, (), what, {}).decode(reader.index.values[name])
    except FormatError:
        raise
    except (PullbackError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(f"{what}: the value {name[:60]!r} is not well formed: {str(error)[:80]}.") from None
