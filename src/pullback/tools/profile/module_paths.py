"""Paths of modules, as they are called inside each other: `MLP.body.0`."""

from __future__ import annotations

from typing import Any


class ModulePaths:
    """Finds the path of a module that is called inside another one. A module that its caller has under several names
    goes by the first.
    """

    def __init__(self) -> None:
        #: By path: the module there. It is held, so that no other one gets its number.
        self._modules: dict[str, Any] = {}
        self._names: dict[tuple[int, int], str] = {}

    def path_of(self, module: Any, caller: str) -> str:
        name = self._name_in(module, caller)
        path = f"{caller}.{name}" if name else type(module).__name__
        self._modules[path] = module
        return path

    def _name_in(self, module: Any, caller: str) -> str:
        """The name that a caller has for a module, "" if it is none of its own."""
        owner = self._modules.get(caller)
        if owner is None or owner is module:
            return ""
        key = (id(owner), id(module))
        if key not in self._names:
            self._names[key] = next((name for name, each in owner.named_modules() if each is module), "")
        return self._names[key]
