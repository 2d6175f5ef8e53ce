"""The summary table and the repr of a module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..arrays.backends import is_array
from ..arrays.html_text import html_block, html_table
from ..arrays.node import Hooks
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.text import format_bytes, text_table
from ..arrays.trees import registered_unflatten
from ..arrays.value import Value

if TYPE_CHECKING:
    from .module import Module

_HEAD = ("name", "kind", "shape", "parameters")
#: The most rows that a notebook shows.
_MOST_ROWS = 100


def summary_table(module: Module) -> str:
    """One line for each module and each array of it, then the sums."""
    return f"{text_table([_HEAD, *_summary_rows(module)], right=(3,))}\n{_summary_totals(module)}"


def summary_html(module: Module) -> str:
    """The same for notebooks."""
    title = f"{type(module).__name__}: {_summary_totals(module)}"
    return html_block(title, html_table(_HEAD, _summary_rows(module), numbers=(3,), most=_MOST_ROWS))


def _summary_rows(module: Module) -> list[tuple[str, str, str, str]]:
    arrays = list(module.named_arrays())
    rows = []
    modules = dict(module.named_modules())
    owners = [max((p for p in modules if not p or name.startswith(f"{p}.")), key=len) for name, _, _ in arrays]
    for path, found in modules.items():
        rows.append((path, type(found).__name__, "", f"{sum(map(_element_count, found.parameters())):,}"))
        rows += [_array_row(*array) for array, owner in zip(arrays, owners, strict=True) if owner == path]
    return rows


def _summary_totals(module: Module) -> str:
    arrays = list(module.named_arrays())
    distinct = {id(x): x for _, x, trained in arrays if trained}
    total = sum(map(_element_count, distinct.values()))
    trained = sum(_element_count(x) for x in distinct.values() if not isinstance(x, Tensor) or x.requires_grad)
    in_buffers = sum(_element_count(x) for _, x, is_parameter in arrays if not is_parameter)
    buffers = f"; {in_buffers:,} values in buffers" if in_buffers else ""
    size = format_bytes(sum(spec_of(x).nbytes for x in distinct.values()))
    return f"{total:,} parameters, {size}; {trained:,} of them trained{buffers}"


def _array_row(name: str, x: Any, trained: bool) -> tuple[str, str, str, str]:
    return name, str(spec_of(x).dtype), str(spec_of(x).shape), f"{_element_count(x):,}" if trained else "buffer"


def _element_count(x: Any) -> int:
    return math.prod(spec_of(x).shape)


def module_repr(module: Module) -> str:
    """A module as one would write it: arrays by dtype and shape, modules below on lines of their own."""
    public = {name: x for name, x in vars(module).items() if not name.startswith("_") and not isinstance(x, Hooks)}
    parts = [f"{name}={_value_repr(x)}" for name, x in public.items()]
    one_line = f"{type(module).__name__}({', '.join(parts)})"
    if len(one_line) <= 80 and "\n" not in one_line and not any(_is_module(x) for x in public.values()):
        return one_line
    inner = ",\n".join(parts).replace("\n", "\n  ")
    return f"{type(module).__name__}(\n  {inner},\n)"


def _is_module(x: Any) -> bool:
    return hasattr(x, "named_modules")


def _value_repr(x: Any) -> str:
    if isinstance(x, Value) or is_array(x):
        spec = spec_of(x)
        return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
    if isinstance(x, (list, tuple)) and any(map(_is_module, x)):
        return "[" + ", ".join(map(_value_repr, x)) + "]"
    if callable(x) and registered_unflatten(type(x)) is None:
        return getattr(x, "__name__", repr(x))
    return repr(x)
