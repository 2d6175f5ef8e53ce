"""What is being advised on: a function with its arguments, its compiled form, and how its calls are timed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.backends import is_array
from ...arrays.call_site import UNTYPED
from ...arrays.origin import Origin
from ...arrays.trees import map_tree
from ...compile.jit import Jitted, jit, trace_located
from ...compile.specialization import Specialization
from ...errors import ArgumentError, PullbackError
from ...instrument import Instrument, OpCall
from ...program.ir import Equation, Program
from ...settings import override_modes
from .report import Advice
from .timing import compare_times


class _OnceGuard(Instrument):
    """Refuses ops that may run only once, before they run: times need many calls."""

    sees_every_op = False

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        if call.effects.runs_once:
            raise _once_error(call.op.name)
        return below()


def _once_error(name: str) -> ArgumentError:
    return ArgumentError(
        f"advise: the function calls {name}, which may run only once, and times need many calls.\n"
        "  Advise on the function without it, or declare custom_op(pure=True)."
    )


class Subject:
    """A call f(*args, **kwargs) that may be made many times."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], seconds: float) -> None:
        self.f, self.args, self.kwargs, self.seconds = f, tuple(args), kwargs, seconds
        self.why_not_traced = ""
        #: Of a compiled function: the kinds of arguments it was traced for, and how often, before anything is tried.
        entries, self.traces = (f.entries, f.traces) if isinstance(f, Jitted) else ({}, 0)
        self.kinds = list(entries)
        self.spent = sum(form.seconds for forms in entries.values() for form in forms)
        if (form := self.form) is not None:
            for e in form.staged.equations:
                if e.effects.runs_once:
                    raise _once_error(e.op.name)
        with override_modes(_OnceGuard()):
            self.call()

    @property
    def is_compiled(self) -> bool:
        return isinstance(self.f, Jitted)

    @property
    def where(self) -> str:
        """Where the function is defined."""
        code = getattr(getattr(self.f, "__wrapped__", self.f), "__code__", None)
        return "" if code is None else Origin(code, 0).line.partition(": ")[0]

    def call(self) -> Any:
        """The call itself; a compiled function that overwrites arguments gets copies."""
        return self.f(*self.given(self.args), **self.kwargs)

    def given(self, args: Sequence[Any]) -> Sequence[Any]:
        """Arguments for one call."""
        donated = self.f.donated if isinstance(self.f, Jitted) else ()
        if not donated:
            return args
        places = [i % len(args) for i in donated]
        return [map_tree(_copy, x) if i in places else x for i, x in enumerate(args)]

    @functools.cached_property
    def form(self) -> Specialization | None:
        """The compiled form of the function, traced with the origins of its equations; None if it cannot be traced."""
        jitted = self.f if isinstance(self.f, Jitted) else jit(self.f)
        try:
            with trace_located():
                return jitted.lower(*self.args, **self.kwargs)
        except (PullbackError, *UNTYPED) as error:
            if self.is_compiled:
                raise
            self.why_not_traced = str(error)
            return None

    @property
    def program(self) -> Program | None:
        """The staged program, if there is one."""
        return None if self.form is None else self.form.staged

    @functools.cached_property
    def twin(self) -> Callable[..., Any]:
        """The function for trials with other arguments: a compiled one of the same options, so that its own forms stay
        as they are.
        """
        f = self.f
        if not isinstance(f, Jitted):
            return f
        return Jitted(f.f, f.static, f.names, f.donated, f.fast, f.limit, f.check, f.deterministic)

    def try_change(self, topic: str, what: str, change: str, where: str, after: Callable[[], Any]) -> Advice:
        """Measure the call beside one with a change."""
        times = compare_times(self.call, after, self.seconds)
        return Advice(topic, what, change, where, *times)


def _copy(x: Any) -> Any:
    return x.copy() if is_array(x) else x


def line_of(e: Equation) -> str:
    """The user's line of an equation."""
    return e.site.line if isinstance(e.site, Origin) else ""
