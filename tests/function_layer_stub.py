"""The stub of the layers that are made from functions: `python tests/function_layer_stub.py` writes it."""

import inspect
from pathlib import Path

import pullback
from pullback.nn.layers import function_layers
from pullback.nn.layers.make_layer import FunctionLayer

PATH = Path(pullback.__file__).parent / "nn" / "layers" / "function_layers.pyi"
HEAD = '''"""Constructors of the layers made from functions, for type checkers; a test compares the two."""

# Written by tests/function_layer_stub.py, then formatted by ruff.
from typing import Any, overload

from .make_layer import FunctionLayer
'''


def annotation(parameter, function):
    """The type that the function's own parameter has."""
    found = inspect.signature(function).parameters[parameter.name].annotation
    return found if isinstance(found, str) else getattr(found, "__name__", "Any")


def layers():
    found = vars(function_layers).items()
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, FunctionLayer)}


def constructor(kind, names):
    """The constructor with other names for some of its parameters."""
    shown = []
    for p in inspect.signature(kind).parameters.values():
        default = "" if p.default is p.empty else f" = {p.default!r}"
        shown.append(f"{names.get(p.name, p.name)}: {annotation(p, kind.function)}{default}")
    return f"    def __init__(self, {', '.join([*shown, '*', 'inplace: bool = ...'])}) -> None: ...\n"


def stub():
    text = HEAD
    for name, kind in layers().items():
        if kind is FunctionLayer:
            continue
        others = {ours: other for other, ours in kind.__init__.spellings.items()}
        text += f"\nclass {name}(FunctionLayer):\n"
        if others:
            text += f"    @overload\n{constructor(kind, {})}    @overload\n{constructor(kind, others)}"
        else:
            text += constructor(kind, {})
    return text


if __name__ == "__main__":
    PATH.write_text(stub())
