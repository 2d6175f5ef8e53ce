"""The attributes of an object in, arrays and modules among them out, with a template to put them back; and back.

A module is a tree whose children are the arrays and modules in its attributes, also inside lists, tuples and dicts. The
rest (numbers, text, functions) is its shape: modules are alike if that is equal, so a compiled function notices when a
setting changes. Shapes are named tuples of data, so that a module can be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..arrays.backends import is_array
from ..arrays.node import Hooks
from ..arrays.trees import registered
from ..arrays.value import Value

__all__ = ["Shape", "collected", "filled", "rebuilt", "slot_names", "split", "walked"]


class Slot(NamedTuple):
    """Where a child stands."""


SLOT = Slot()
#: What no attribute of these kinds can hold a child in; asked first, since the registry is slow.
_SETTINGS = (str, int, float, complex, bool, type(None), type)


class Static(NamedTuple):
    """A setting: equal if it is of the same kind and equal. Hooks are so while the same ones are registered."""

    value: Any
    hooks: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or type(self.value) is not type(other.value) or self.hooks != other.hooks:
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))


class Shape(NamedTuple):
    """A list, tuple, named tuple or dict with children somewhere below; of a module, a dict of its attributes."""

    kind: Any
    keys: tuple[Any, ...]
    items: tuple[Any, ...]

    def put_together(self, items: list[Any]) -> Any:
        """A container of the same kind over other items."""
        if self.kind == "dict":
            return dict(zip(self.keys, items, strict=True))
        return _KINDS[self.kind](items) if self.kind in _KINDS else self.kind(*items)


_KINDS: dict[Any, Any] = {"list": list, "tuple": tuple}


def _static(value: Any) -> Static:
    return Static(value, tuple(value.entries.items()) if isinstance(value, Hooks) else None)


def _kind(value: Any) -> Any:
    """Python's own containers by name, others by their class."""
    kind = type(value)
    return kind.__name__ if kind in (list, tuple, dict) else kind


def split(attributes: dict[str, Any]) -> tuple[list[Any], list[str], Shape]:
    """Children, where each stands, and the template."""
    children: list[Any] = []
    names: list[str] = []
    template = _split(attributes, "", children, names)
    if not isinstance(template, Shape):  # no child at all
        template = Shape("dict", tuple(attributes), tuple(map(_static, attributes.values())))
    return children, names, template


def _split(value: Any, path: str, children: list[Any], names: list[str]) -> Any:
    if is_child(value):
        children.append(value)
        names.append(path)
        return SLOT
    parts = _parts(value)
    if parts is None:
        return _static(value)
    before = len(children)
    items = tuple(_split(item, _below(path, key), children, names) for key, item in parts)
    return Shape(_kind(value), tuple(key for key, _ in parts), items) if len(children) > before else _static(value)


def is_child(value: Any) -> bool:
    """Whether a value is an array, a value of a transform, a module or another registered tree."""
    if isinstance(value, _SETTINGS) or _parts(value) is not None:
        return False
    return isinstance(value, Value) or is_array(value) or registered(type(value)) is not None


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a container by key; None for anything else."""
    if type(value) is dict:
        return list(value.items())
    if type(value) in (list, tuple):
        return list(enumerate(value))
    return (
        list(zip(value._fields, value, strict=True)) if isinstance(value, tuple) and hasattr(value, "_fields") else None
    )


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def filled(template: Any, children: Iterator[Any]) -> Any:
    """The value that a template shows, with children in its slots."""
    if isinstance(template, Slot):
        return next(children)
    if isinstance(template, Static):
        return template.value
    return template.put_together([filled(item, children) for item in template.items])


def collected(template: Any, value: Any) -> list[Any] | None:
    """What stands in the slots of a template, whatever it is; None if the value has other containers by now."""
    if isinstance(template, Slot):
        return [value]
    if isinstance(template, Static):
        return []
    parts = _parts(value) if _kind(value) == template.kind else None
    if parts is None or tuple(key for key, _ in parts) != template.keys:
        return None
    found = [collected(item, child) for item, (_, child) in zip(template.items, parts, strict=True)]
    return None if None in found else [x for part in found for x in part or ()]


def slot_names(template: Any, path: str = "") -> list[str]:
    """Where the slots of a template are."""
    if not isinstance(template, Shape):
        return [path] if isinstance(template, Slot) else []
    pairs = zip(template.keys, template.items, strict=True)
    return [name for key, item in pairs for name in slot_names(item, _below(path, key))]


def walked(attributes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each child with the path to it."""
    children, names, _ = split(attributes)
    return zip(names, children, strict=True)


def rebuilt(attributes: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The attributes with each child changed; what holds none stays the very object it was."""
    children, names, template = split(attributes)
    changed = iter([change(name, child) for name, child in zip(names, children, strict=True)])
    pairs = zip(template.keys, template.items, strict=True)
    return {key: filled(item, changed) for key, item in pairs if not isinstance(item, Static)}
