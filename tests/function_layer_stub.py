"""The stub of the layers that are made from functions: `python tests/function_layer_stub.py` writes it."""

import inspect
from pathlib import Path

import pullback
from pullback.nn.layers import function_layers
from pullback.nn.layers.make_layer import FunctionLayer

PATH = Path(pullback.__file__).parent / "nn" / "layers" / "function_layers.pyi"
HEAD = '''"""Constructors of the layers made from functions, for type checkers; a test compares the two."""

# Written by tests/function_layer_stub.py, then formatted by ruff.
from typing import Any

from .make_layer import FunctionLayer
'''


def annotation(parameter, function):
    """The type that the function's own parameter has."""
    found = inspect.signature(function).parameters[parameter.name].annotation
    return found if isinstance(found, str) else getattr(found, "__name__", "Any")


def layers():
    found = vars(function_layers).items()
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, FunctionLayer)}


def stub():
    text = HEAD
    for name, kind in layers().items():
        if kind is FunctionLayer:
            continue
        parameters = list(inspect.signature(kind).parameters.values())
        others = {ours: other for other, ours in kind.spellings.items()}
        shown = []
        for p in parameters:
            default = "" if p.default is p.empty else f" = {p.default!r}"
            shown.append(f"{p.name}: {annotation(p, kind.function)}{default}")
        text += f"\nclass {name}(FunctionLayer):\n    def __init__(\n        self"
        text += "".join(f", {part}" for part in shown)
        named = [f"{others[p.name]}: Any = ..." for p in parameters if p.name in others and p.default is not p.empty]
        text += f", *, {', '.join([*named, 'inplace: bool = ...'])},\n    ) -> None: ...\n"
    return text


if __name__ == "__main__":
    PATH.write_text(stub())
