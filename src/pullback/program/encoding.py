"""Structures, specs and arrays as text and JSON represent them, and back."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on, to_host
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.scope import Scope
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError
from ..ops import load_all_ops
from ..ops.lazy import load_module
from ..ops.op import Op
from .ir import Symbol

#: Python's own numbers, whose dtype promotes weakly.
WEAK_TYPES: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, complex)}
#: Beyond what any machine holds; a product of sizes that is larger is a mistake or an attack.
_MAX_ELEMENTS = 1 << 48


class LeafMarker:
    """The place of an array in a structure, with its name there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: An array that needs no name, since the leaves of a structure have an order.
LEAF_MARKER = LeafMarker("*")
#: Stands for a structure with containers that only its program knows.
OPAQUE = object()


def template_of(structure: Any, leaves: Sequence[LeafMarker]) -> Any:
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
    return x is None or isinstance(x, (LeafMarker, Symbol)) or is_constant(x)


def structure_from(template: Any, count: int, what: str) -> Any:
    """The structure that a template shows, which must have a star for each of `count` arrays."""
    leaves, structure = flatten(template)
    if any(leaf is not LEAF_MARKER for leaf in leaves) or not _is_plain(template):
        raise ArgumentError(f"{what}: a structure is made of tuples, lists, dicts, None and arrays.")
    if len(leaves) != count:
        raise ArgumentError(f"{what}: the structure has {len(leaves)} places for {count} arrays.")
    return structure


def check_arguments(template: Any) -> Any:
    """The template of arguments, if it is (args, kwargs)."""
    pair = type(template) is tuple and [type(t) for t in template] == [tuple, dict]
    if not pair or not all(type(name) is str for name in template[1]):
        raise ArgumentError("arguments are a pair (args, kwargs): a tuple, and a dict by names.")
    return template


def split_template(template: Any) -> tuple[tuple[Any, ...], Any]:
    """The arrays and symbols in plain containers, and the structure they stand in."""
    leaves, structure = flatten(template)
    if not _is_plain(template) or any(isinstance(leaf, LeafMarker) for leaf in leaves):
        raise ArgumentError("a structure is made of tuples, lists, dicts, None and arrays.")
    return tuple(leaves), structure


def spec_from(name: Any, shape: Any, device: Any = "cpu") -> Spec:
    """The spec of a dtype's name and a shape, checked."""
    if name not in NAMES:
        raise ArgumentError(f"{name!r} is no dtype; there are {', '.join(sorted(NAMES))}.")
    if not isinstance(shape, (tuple, list)) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 64:
        raise ArgumentError(f"a shape is at most 64 sizes that are not negative, got {str(shape)[:60]}.")
    if math.prod(max(n, 1) for n in shape) > _MAX_ELEMENTS:
        raise ArgumentError(f"shape {tuple(shape)} has more elements than any memory.")
    cuda = isinstance(device, str) and device.startswith("cuda:") and device[5:].isdecimal()
    if device != "cpu" and not cuda:
        raise ArgumentError(f"{device!r} is no device; there are cpu, cuda:0, cuda:1, ...")
    return make_spec(tuple(shape), as_dtype(name), device)


def as_contiguous(x: Any) -> Any:
    """A constant as a contiguous NumPy array, wherever it lives."""
    return np.ascontiguousarray(to_host(x)).reshape(x.shape)


def to_base64(x: Any) -> str:
    """The elements of an array, little-endian, in base64."""
    array = as_contiguous(x)
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def decode_array(spec: Spec, data: Any) -> Any:
    """An array from base64 text or a list of numbers. Their length is checked before memory is allocated."""
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
        array = _array_from_numbers(spec, data)
    array.flags.writeable = False
    return array if spec.device == "cpu" else namespace_on(spec.device).asarray(array)


def _array_from_numbers(spec: Spec, numbers: Any) -> Any:
    if not isinstance(numbers, list) or any(type(n) not in WEAK_TYPES.values() for n in numbers):
        raise ArgumentError("the elements of an array are a flat list of numbers, or base64.")
    if len(numbers) != spec.size:
        raise ArgumentError(f"{spec} has {spec.size} elements, got {len(numbers)}.")
    try:
        return np.array(numbers, spec.dtype).reshape(spec.shape)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"numbers that do not fit into {spec.dtype}.") from None


def _own() -> dict[str, Op]:
    """The ops of the package, also those that later layers define."""
    flow, modifiers = (load_module(m, "transforms") for m in ("control.flow", "custom.gradient_modifiers"))
    found: dict[str, Op] = load_all_ops() | flow.FLOW | modifiers.ALTERED
    return found


def ops_by_name(given: Any) -> Mapping[str, Op]:
    """Every op of the package, and those given: records, custom ops, or a dict of them by name."""
    if isinstance(given, Mapping):
        return _own() | {name: _op_record(op) for name, op in given.items()}
    wanted: Iterable[Any] = given if isinstance(given, (tuple, list)) else (given,)
    return _own() | {op.name: op for op in map(_op_record, wanted)}


def _op_record(given: Any) -> Op:
    op = getattr(given, "op", None) or (given.record() if hasattr(given, "record") else given)
    if not isinstance(op, Op):
        raise ArgumentError(f"ops: wants ops, got a {type(given).__name__}.")
    return op


def find_op(ops: Mapping[str, Op], name: Any) -> Op:
    """The op of a name, or an error that says how to pass a custom one."""
    if not isinstance(name, str) or name not in ops:
        raise ArgumentError(f"there is no op {str(name)[:60]!r}.\n  A custom op must be given: ops=[my_op].")
    return ops[name]


def closed_scope() -> Scope:
    """The scope of symbols that were read and never traced: it is closed."""
    scope = Scope("staging", lambda scope, x: x, lambda x: x)
    scope.open = False
    return scope


def is_constant(x: Any) -> bool:
    """Whether a value that is no symbol can be serialized: a bare array or a Python number."""
    return (is_array(x) and not isinstance(x, Symbol) and spec_of(x).dtype.name in NAMES) or type(
        x
    ) in WEAK_TYPES.values()
