"""How classes are named in files: by names that stay when their modules move."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..errors import ArgumentError

#: Classes of this package that no public package exports, by their names in files.
PRIVATE_CLASSES = {
    "module.container": "pullback.nn.module_template:ContainerTemplate",
    "module.slot": "pullback.nn.module_template:ChildSlot",
    "module.static": "pullback.nn.module_template:StaticField",
    "random.state": "pullback.ops.replay.default_stream:State",
    "linalg.Eig": "pullback.ops.linalg.eigen:Eig",
    "linalg.Eigh": "pullback.ops.linalg.eigen:Eigh",
    "linalg.QR": "pullback.ops.linalg.factorizations:QR",
    "linalg.SVD": "pullback.ops.linalg.singular:SVD",
    "linalg.Slogdet": "pullback.ops.linalg.determinants:Slogdet",
    "unique.all": "pullback.ops.order.sorting:UniqueAll",
    "unique.counts": "pullback.ops.order.sorting:UniqueCounts",
    "unique.inverse": "pullback.ops.order.sorting:UniqueInverse",
}
_NAMES = {place: name for name, place in PRIVATE_CLASSES.items()}
#: Packages whose classes may be saved. The others import optional packages.
_CLASS_PACKAGES = ("pullback.arrays.", "pullback.ops.", "pullback.nn.", "pullback.optim.", "pullback.implicit.")


def class_name(kind: type, where: str) -> str:
    """The name of a class in a file: its module and its name there, or a short one of ours. For a public class of ours
    the module is the package that exports it, such as `pullback.nn`.
    """
    if "<locals>" in kind.__qualname__:
        raise ArgumentError(
            f"save: {where} is a {kind.__name__} made inside a function, which cannot be found when loading.\n"
            "  Define the class in a module, or save its fields as a dict."
        )
    if (short := _NAMES.get(f"{kind.__module__}:{kind.__qualname__}")) is not None:
        return short
    parts = kind.__module__.split(".")
    packages = [".".join(parts[:n]) for n in range(2, len(parts))] if parts[0] == "pullback" else []
    module = next((p for p in packages if vars(sys.modules[p]).get(kind.__name__) is kind), kind.__module__)
    return f"{module}:{kind.__qualname__}"


def find_class(name: str) -> Any:
    """What has this name, None if it is unknown. Modules of this package are imported for it; nothing else is."""
    module, _, path = PRIVATE_CLASSES.get(name, name).partition(":")
    found: Any = _import_own_module(module) or sys.modules.get(module)
    for step in path.split("."):  # by its dict: a module's lazy attributes would let a file import
        found = getattr(found, "__dict__", {}).get(step)
    return found


def _import_own_module(module: str) -> Any:
    """A module of this package that has classes to be saved, which may not be imported yet."""
    if not f"{module}.".startswith(_CLASS_PACKAGES) or "__" in module:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
