"""Public names of a package, each listed once: its stub says where a name lives, to type checkers and at run time.

`__init__.pyi` beside the package holds lines such as `from .module import name as name`; the repetition is what
exports a name from a stub.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Home(NamedTuple):
    """The module that a public name lives in, as an import statement names it, and its name there."""

    module: str
    name: str

    def load(self, package: str) -> Any:
        """The thing itself: an attribute of the module, or a module inside of it."""
        if self.module == ".":
            return import_module(f"{package}.{self.name}")
        depth = len(self.module) - len(self.module.lstrip("."))
        within = {"__package__": package}
        return getattr(__import__(self.module[depth:], within, None, (self.name,), depth), self.name)


def read_stub(package: str) -> dict[str, Home]:
    """Where each public name of a package lives."""
    module: Any = sys.modules[package]
    text = module.__loader__.get_data(f"{module.__path__[0]}/__init__.pyi").decode()  # a loader reads zip files too
    homes: dict[str, Home] = {}
    for statement in text.split("\nfrom ")[1:]:
        where, _, names = statement.partition(" import ")
        homes |= {name: Home(where, name) for name in re.findall(r"\bas (\w+)", names)}
    return homes | {alias: homes[name] for alias, name in re.findall(r"^(\w+) = (\w+)$", text, re.MULTILINE)}


def import_public_names(package: str) -> None:
    """Import all public names of a package into it, and list them as its `__all__`."""
    homes = read_stub(package)
    loaded = {name: home.load(package) for name, home in homes.items()}
    vars(sys.modules[package]).update(loaded, __all__=sorted(homes))


def load_on_access(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: its public names, each imported when it is first read."""
    own = vars(sys.modules[package])
    homes = read_stub(package)
    # a function in a module of its own name: once that is loaded, it would be found in place of the function
    own.update({name: home.load(package) for name, home in homes.items() if home.module == f".{name}"})

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = own[name] = homes[name].load(package)
        return found

    def list_names() -> list[str]:
        return [*(name for name in own if name.startswith("__")), *homes]

    return load, list_names
