"""Functions and modules of the package that are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def load_module(name: str, layer: str = "ops") -> Any:
    """A module of a layer by its name."""
    place = f"{layer}.{name}"
    return import_module(f"pullback.{place}")


def lazy_function(place: str, name: str, layer: str = "ops") -> Callable[..., Any]:
    """A function imported at its first call: so that `import pullback` stays fast, or since its layer comes later."""

    found: Any = None

    def function(*args: Any, **kwargs: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(load_module(place, layer), name)
        return found(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    return function


def load_package() -> Any:
    """The package itself, which is the array API's namespace."""
    return import_module("pullback")


def find_public(name: str) -> Any:
    """What users find under a name such as "linalg.solve", or None; the package is fully imported by then."""
    found: Any = load_package()
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
