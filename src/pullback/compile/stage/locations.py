"""Places that a function reads from and may write to: a variable, an item or attribute, a slot, a tensor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from types import CellType
from typing import Any

from ...arrays.closures import MISSING, content_of
from ...arrays.tensor import Tensor
from ...settings import no_grad


class Location(ABC):
    """A place that holds a value. `key` is equal for two that are the same place."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> tuple[int, Any]: ...

    @abstractmethod
    def get(self) -> Any: ...

    @abstractmethod
    def put(self, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class CellLocation(Location):
    """A variable of an enclosing function."""

    cell: CellType

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.cell), None

    def get(self) -> Any:
        return content_of(self.cell)

    def put(self, value: Any) -> None:
        if value is MISSING:
            del self.cell.cell_contents
        else:
            self.cell.cell_contents = value

    def __str__(self) -> str:
        return "a variable of an enclosing function"


@dataclass(frozen=True, slots=True)
class ItemLocation(Location):
    """An item of a dict or a list; global names and attributes are items of dicts too."""

    holder: Any
    name: Any

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.holder), self.name

    def get(self) -> Any:
        if isinstance(self.holder, dict):
            return self.holder.get(self.name, MISSING)
        return self.holder[self.name] if self.name < len(self.holder) else MISSING

    def put(self, value: Any) -> None:
        if isinstance(self.holder, list) and self.name == len(self.holder) and value is not MISSING:
            self.holder.append(value)  # what was taken out comes back in order
        elif value is not MISSING:
            self.holder[self.name] = value
        elif isinstance(self.holder, dict):
            self.holder.pop(self.name, None)
        else:
            del self.holder[self.name :]

    def __str__(self) -> str:
        return f"item {self.name} of a list" if isinstance(self.holder, list) else repr(self.name)


@dataclass(frozen=True, slots=True)
class ContentLocation(Location):
    """All that a set or a deque holds, which has no places in it."""

    holder: set[Any] | deque[Any]

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.holder), ContentLocation

    def get(self) -> Any:
        return self.holder.copy()

    def put(self, value: Any) -> None:
        self.holder.clear()
        if isinstance(self.holder, set):
            self.holder.update(value)
        else:
            self.holder.extend(value)

    def __str__(self) -> str:
        return f"a {type(self.holder).__name__}"


@dataclass(frozen=True, slots=True)
class ClassLocation(Location):
    """An attribute of a class itself."""

    kind: type
    name: str

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.kind), self.name

    def get(self) -> Any:
        return vars(self.kind).get(self.name, MISSING)

    def put(self, value: Any) -> None:
        if value is not MISSING:
            setattr(self.kind, self.name, value)
        elif self.get() is not MISSING:
            delattr(self.kind, self.name)

    def __str__(self) -> str:
        return repr(f"{self.kind.__name__}.{self.name}")


@dataclass(frozen=True, slots=True)
class SlotLocation(Location):
    """An attribute that a class keeps in `__slots__`."""

    slot: Any
    thing: Any

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.thing), self.slot

    def get(self) -> Any:
        try:
            return self.slot.__get__(self.thing)
        except AttributeError:
            return MISSING

    def put(self, value: Any) -> None:
        if value is not MISSING:
            self.slot.__set__(self.thing, value)
        elif self.get() is not MISSING:
            self.slot.__delete__(self.thing)

    def __str__(self) -> str:
        return repr(self.slot.__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TensorLocation(Location):
    """A tensor, which may be rebound to another value."""

    tensor: Tensor

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.tensor), None

    def get(self) -> Any:
        return self.tensor

    def put(self, value: Any) -> None:
        with no_grad():  # a parameter stays a leaf
            self.tensor.rebind(value, "an update inside a compiled function")

    def __str__(self) -> str:
        return f"a tensor of shape {self.tensor.shape}"
