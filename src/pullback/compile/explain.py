"""`pb.explain`: how a call runs, natively or op by op, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.spec import spec_of
from ..arrays.text import text_table
from ..ops.fusion import SWITCHED_OFF, Declined, Fusion
from ..settings import modes, override_native, uses_native_code
from .jit import Jitted
from .native_form import is_array_leaf


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """How a call runs. Of a function of `pb.jit`, the steps of its program; of one made by `pb.fuse`, as those of
    `pb.nn` are, the steps, or why it runs op by op; of any other function, which is called for that, a line for each
    kind of call of such functions that it makes.

    >>> import numpy as np, pullback as pb
    >>> print(pb.explain(pb.nn.gelu, np.ones(100, "complex64")))
    gelu runs op by op: native code has no complex64 arrays
    """
    check_functions("explain", function)
    if isinstance(function, Jitted):
        return function.lower(*args, **kwargs).explain()
    fusion = getattr(function, "fusion", None)
    if isinstance(fusion, Fusion):
        return _explain_fused(fusion, args, kwargs)
    log = CallLog(uses_native_code())
    with override_native(log):
        function(*args, **kwargs)
    return log.table()


def _explain_fused(fusion: Fusion, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    form = SWITCHED_OFF if uses_native_code() is False else fusion.find(args, kwargs, modes())[0]
    name = getattr(fusion.function, "__name__", "the function")
    if isinstance(form, Declined):
        return f"{name} runs op by op: {form.why}"
    return f"{name} runs as one native op:\n{form.entry.explain()}"


class CallLog:
    """The calls of fused functions that were made, each kind of them once, with their number."""

    def __init__(self, around: Any) -> None:
        self._around = around
        self._rows: dict[tuple[str, str, str], int] = {}

    def call(self, fusion: Fusion, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make a call as it would be made without the log, and note how; what a program traces is part of that."""
        if modes().tracing is not None:
            return fusion.function(*args, **kwargs)
        form, values = (SWITCHED_OFF, []) if self._around is False else fusion.find(args, kwargs, modes())
        result = fusion.run(args, kwargs, form, values)
        how = f"op by op: {form.why}" if isinstance(form, Declined) else "natively"
        row = (fusion.function.__name__, ", ".join(str(spec_of(x)) for x in args if is_array_leaf(x)), how)
        self._rows[row] = self._rows.get(row, 0) + 1
        return result

    def table(self) -> str:
        if not self._rows:
            return "No function that pb.fuse made was called: all ops ran one by one."
        return text_table([("function", "calls", "arguments", "runs"), *self.rows()])

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For each kind of calls: the function, the number of calls, their arguments, and how they ran."""
        return [(name, str(count), specs, how) for (name, specs, how), count in self._rows.items()]
