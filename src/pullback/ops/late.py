"""Names in, functions out, of modules that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["late", "module", "package", "public"]


def module(name: str) -> Any:
    """A module of ops by its name."""
    return import_module(f"pullback.ops.{name}")


def late(place: str, name: str) -> Callable[..., Any]:
    """A function of a module of ops that is imported at its first call, so that `import pullback` stays quick."""

    found: Any = None

    def function(*args: Any, **kwargs: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(module(place), name)
        return found(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    return function


def package() -> Any:
    """The package itself, which is the array API's namespace."""
    return import_module("pullback")


def public(name: str) -> Any:
    """What users find under a name such as "linalg.solve", or None; a user's call asks, so the package is whole."""
    found: Any = package()
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
