"""A module's attributes flattened into children and a template, and rebuilt from them.

A module is a tree whose children are the arrays and modules in its attributes, also inside lists, tuples and dicts. The
rest (scalars, strings, functions) is its template: modules have one structure if it is equal, so a compiled function
notices when a setting changes. Templates are named tuples of data, so that a module can be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..arrays.backends import is_array
from ..arrays.node import Hooks
from ..arrays.text import join_path
from ..arrays.trees import registered_unflatten
from ..arrays.value import Value


class ChildSlot(NamedTuple):
    """The place of a child."""


SLOT = ChildSlot()
#: Types that never hold a child; checked first, since the registry is slow.
_SETTINGS = (str, int, float, complex, bool, type(None), type)


class StaticField(NamedTuple):
    """A setting: equal if type and value are. Hooks are equal while the same ones are registered."""

    value: Any
    hooks: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StaticField) or type(self.value) is not type(other.value) or self.hooks != other.hooks:
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))


class ContainerTemplate(NamedTuple):
    """A list, tuple, named tuple or dict with children somewhere below; of a module, a dict of its attributes."""

    kind: Any
    keys: tuple[Any, ...]
    items: tuple[Any, ...]

    def rebuild(self, items: list[Any]) -> Any:
        """A container of the same kind over other items."""
        if self.kind == "dict":
            return dict(zip(self.keys, items, strict=True))
        return _KINDS[self.kind](items) if self.kind in _KINDS else self.kind(*items)


_KINDS: dict[Any, Any] = {"list": list, "tuple": tuple}


def _static_field(value: Any) -> StaticField:
    return StaticField(value, tuple(value.entries.items()) if isinstance(value, Hooks) else None)


def _container_kind(value: Any) -> Any:
    """Python's own containers by name, others by their class."""
    kind = type(value)
    return kind.__name__ if kind in (list, tuple, dict) else kind


def split_children(attributes: dict[str, Any]) -> tuple[list[Any], list[str], ContainerTemplate]:
    """Children, the path of each, and the template."""
    children: list[Any] = []
    names: list[str] = []
    template = _split_into(attributes, "", children, names)
    if not isinstance(template, ContainerTemplate):  # no child at all
        template = ContainerTemplate("dict", tuple(attributes), tuple(map(_static_field, attributes.values())))
    return children, names, template


def _split_into(value: Any, path: str, children: list[Any], names: list[str]) -> Any:
    if is_child(value):
        children.append(value)
        names.append(path)
        return SLOT
    parts = _container_items(value)
    if parts is None:
        return _static_field(value)
    before = len(children)
    items = tuple(_split_into(item, join_path(path, key), children, names) for key, item in parts)
    if len(children) == before:
        return _static_field(value)
    return ContainerTemplate(_container_kind(value), tuple(key for key, _ in parts), items)


def is_child(value: Any) -> bool:
    """Whether a value is an array, a value of a transform, a module or another registered tree."""
    if isinstance(value, _SETTINGS) or _container_items(value) is not None:
        return False
    return isinstance(value, Value) or is_array(value) or registered_unflatten(type(value)) is not None


def _container_items(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a container by key; None for anything else."""
    if type(value) is dict:
        return list(value.items())
    if type(value) in (list, tuple):
        return list(enumerate(value))
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    return list(zip(value._fields, value, strict=True)) if named else None


def fill_template(template: Any, children: Iterator[Any]) -> Any:
    """The value of a template, with children in its slots."""
    if isinstance(template, ChildSlot):
        return next(children)
    if isinstance(template, StaticField):
        return template.value
    return template.rebuild([fill_template(item, children) for item in template.items])


def collect_children(template: Any, value: Any) -> list[Any] | None:
    """The contents of a template's slots; None if the value's containers have changed since."""
    if isinstance(template, ChildSlot):
        return [value]
    if isinstance(template, StaticField):
        return []
    parts = _container_items(value) if _container_kind(value) == template.kind else None
    if parts is None or tuple(key for key, _ in parts) != template.keys:
        return None
    found = [collect_children(item, child) for item, (_, child) in zip(template.items, parts, strict=True)]
    return None if None in found else [x for part in found for x in part or ()]


def slot_names(template: Any, path: str = "") -> list[str]:
    """The paths of a template's slots."""
    if not isinstance(template, ContainerTemplate):
        return [path] if isinstance(template, ChildSlot) else []
    pairs = zip(template.keys, template.items, strict=True)
    return [name for key, item in pairs for name in slot_names(item, join_path(path, key))]


def iter_children(attributes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each child with the path to it."""
    children, names, _ = split_children(attributes)
    return zip(names, children, strict=True)


def map_children(attributes: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The attributes with each child changed; an attribute without children stays the same object."""
    children, names, template = split_children(attributes)
    changed = iter([change(name, child) for name, child in zip(names, children, strict=True)])
    pairs = zip(template.keys, template.items, strict=True)
    return {key: fill_template(item, changed) for key, item in pairs if not isinstance(item, StaticField)}
