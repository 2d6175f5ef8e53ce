"""Structures, specs and arrays in, what text and JSON can say of them out, and back."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.scope import Scope
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError
from ..ops import everything
from ..ops.op import Op
from ..ops.specialise import Symbol
from ..transforms.altered import ALTERED
from ..transforms.flow import FLOW

__all__ = [
    "OPAQUE", "STAR", "WEAK", "Star", "array_from", "array_of", "bytes_of", "check_call", "is_constant", "leaves_of",
    "op_named", "ops_by_name", "over_scope", "spec_from", "structure_from", "template_of",
]  # fmt: skip

#: Python's own numbers, whose dtype gives way in promotion.
WEAK: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, complex)}
#: Beyond what any machine holds; a product of sizes that is larger is a mistake or an attack.
_MOST_ELEMENTS = 1 << 48


class Star:
    """Where an array stands in a structure, by what it is called there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: An array that needs no name, since the leaves of a structure have an order.
STAR = Star("*")
#: What a structure is that has containers only its program knows.
OPAQUE = object()


def template_of(structure: Any, leaves: Sequence[Star]) -> Any:
    """A structure as plain containers with stars for its leaves; `OPAQUE` if it has other containers."""
    try:
        made = unflatten(structure, leaves)
    except Exception:  # a class of the user's that wants real arrays
        return OPAQUE
    return made if _is_plain(made) else OPAQUE


def _is_plain(x: Any) -> bool:
    if type(x) in (tuple, list):
        return all(map(_is_plain, x))
    if type(x) is dict:
        return all(type(k) in (str, int) for k in x) and all(map(_is_plain, x.values()))
    return x is None or isinstance(x, (Star, Symbol)) or is_constant(x)


def structure_from(template: Any, count: int, what: str) -> Any:
    """The structure that a template shows, which must have a star for each of `count` arrays."""
    leaves, structure = flatten(template)
    if any(leaf is not STAR for leaf in leaves) or not _is_plain(template):
        raise ArgumentError(f"{what}: a structure is made of tuples, lists, dicts, None and arrays.")
    if len(leaves) != count:
        raise ArgumentError(f"{what}: the structure has {len(leaves)} places for {count} arrays.")
    return structure


def check_call(template: Any) -> Any:
    """The template of arguments, if it is (args, kwargs)."""
    pair = type(template) is tuple and [type(t) for t in template] == [tuple, dict]
    if not pair or not all(type(name) is str for name in template[1]):
        raise ArgumentError("arguments are a pair (args, kwargs): a tuple, and a dict by names.")
    return template


def leaves_of(template: Any) -> tuple[tuple[Any, ...], Any]:
    """The arrays and symbols in plain containers, and the structure they stand in."""
    leaves, structure = flatten(template)
    if not _is_plain(template) or any(isinstance(leaf, Star) for leaf in leaves):
        raise ArgumentError("a structure is made of tuples, lists, dicts, None and arrays.")
    return tuple(leaves), structure


def spec_from(name: Any, shape: Any, device: Any = "cpu") -> Spec:
    """The spec of a dtype's name and a shape, or an error of ours."""
    if name not in NAMES:
        raise ArgumentError(f"{name!r} is no dtype; there are {', '.join(sorted(NAMES))}.")
    if not isinstance(shape, (tuple, list)) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 64:
        raise ArgumentError(f"a shape is at most 64 sizes that are not negative, got {str(shape)[:60]}.")
    if math.prod(max(n, 1) for n in shape) > _MOST_ELEMENTS:
        raise ArgumentError(f"shape {tuple(shape)} has more elements than any memory.")
    cuda = isinstance(device, str) and device.startswith("cuda:") and device[5:].isdecimal()
    if device != "cpu" and not cuda:
        raise ArgumentError(f"{device!r} is no device; there are cpu, cuda:0, cuda:1, ...")
    return make_spec(tuple(shape), as_dtype(name), device)


def array_of(x: Any) -> Any:
    """A constant as a contiguous NumPy array, wherever it lives."""
    return np.ascontiguousarray(x.get() if not isinstance(x, np.ndarray) else x).reshape(x.shape)


def bytes_of(x: Any) -> str:
    """The elements of an array, little-endian, in base64."""
    array = array_of(x)
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def array_from(spec: Spec, data: Any) -> Any:
    """An array from base64 text or a list of numbers. Their length is compared before memory is taken."""
    if isinstance(data, str):
        if len(data) != -(-spec.nbytes // 3) * 4:
            raise ArgumentError(f"{spec} has {spec.nbytes} bytes, the text has {len(data)} characters of base64.")
        try:
            raw = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ArgumentError("the elements of an array are not in base64.") from None
        if len(raw) != spec.nbytes:
            raise ArgumentError(f"{spec} has {spec.nbytes} bytes, the text has {len(raw)}.")
        array = np.frombuffer(raw, spec.dtype.newbyteorder("<")).astype(spec.dtype).reshape(spec.shape)
    else:
        array = _from_numbers(spec, data)
    array.flags.writeable = False
    return array if spec.device == "cpu" else namespace_on(spec.device).asarray(array)


def _from_numbers(spec: Spec, numbers: Any) -> Any:
    if not isinstance(numbers, list) or any(type(n) not in WEAK.values() for n in numbers):
        raise ArgumentError("the elements of an array are a flat list of numbers, or base64.")
    if len(numbers) != spec.size:
        raise ArgumentError(f"{spec} has {spec.size} elements, got {len(numbers)}.")
    try:
        return np.array(numbers, spec.dtype).reshape(spec.shape)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"numbers that do not fit into {spec.dtype}.") from None


def _own() -> dict[str, Op]:
    return everything() | FLOW | ALTERED


def ops_by_name(given: Any) -> Mapping[str, Op]:
    """Every op of the package, and those given: records, custom ops, or a dict of them by name."""
    if isinstance(given, Mapping):
        return _own() | {name: _record(op) for name, op in given.items()}
    wanted: Iterable[Any] = given if isinstance(given, (tuple, list)) else (given,)
    return _own() | {op.name: op for op in map(_record, wanted)}


def _record(given: Any) -> Op:
    op = getattr(given, "op", None) or (given.record() if hasattr(given, "record") else given)
    if not isinstance(op, Op):
        raise ArgumentError(f"ops: wants ops, got a {type(given).__name__}.")
    return op


def op_named(ops: Mapping[str, Op], name: Any) -> Op:
    """The op of a name, or an error that says how to bring one's own."""
    if not isinstance(name, str) or name not in ops:
        raise ArgumentError(f"there is no op {str(name)[:60]!r}.\n  A custom op must be given: ops=[my_op].")
    return ops[name]


def over_scope() -> Scope:
    """The scope of symbols that were read and never ran: it is over."""
    scope = Scope("staging", lambda scope, x: x, lambda x: x)
    scope.open = False
    return scope


def is_constant(x: Any) -> bool:
    """Whether a value that is no symbol can be written down: a bare array or a Python number."""
    return (is_array(x) and not isinstance(x, Symbol) and spec_of(x).dtype.name in NAMES) or type(x) in WEAK.values()
