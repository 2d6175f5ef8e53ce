"""A flat rule in, native code out: the rule is staged on one parameter alone, a row of numbers.

Settings and counts are arguments of the program, so the code depends on the rule and the dtype, and neither on the
parameters' number and shapes nor on a schedule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import Spec, make_spec, spec_of
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...compile.cpu.rows import CHUNK, NotRowsError, RowCode, compile_rows, is_fold, is_same_for_rows
from ...compile.cpu.target import cpu_target
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.lazy import lazy_function
from ...program.constants import Constants
from ...program.fingerprint import fingerprint
from ...program.ir import Program, Symbol
from ...program.passes import optimize
from ...program.stage import stage
from ..rule import Rule

if TYPE_CHECKING:
    from ...compile.cuda.rows import DeviceRowCode

_FLOAT = make_spec((), np.dtype(np.float64))
_compile_device_rows = lazy_function("cuda.rows", "compile_device_rows", "compile")
#: The native code of programs that are equal, the latest last.
_codes: OrderedDict[Any, RowCode | DeviceRowCode] = OrderedDict()
_MAX_CODES = 64


class StateLayout(NamedTuple):
    """The state of one parameter alone: its structure, and the specs of its arrays if the parameter is a chunk; those
    of that shape are rows, the others numbers.
    """

    structure: Any
    specs: tuple[Spec, ...]

    def is_row(self, number: int) -> bool:
        return self.specs[number].shape == (CHUNK,)

    def rows_first(self) -> list[int]:
        """The numbers of the arrays, those of rows first."""
        return sorted(range(len(self.specs)), key=lambda i: not self.is_row(i))


def find_layout(rule: Rule, dtype: Any) -> StateLayout:
    leaves, structure = flatten(rule.start(np.zeros(CHUNK, dtype)))
    specs = tuple(spec_of(as_value(x)) for x in leaves)
    if any(s.dtype != dtype if s.shape == (CHUNK,) else s.shape for s in specs):
        raise NotRowsError(f"{rule.name} keeps arrays that are neither numbers nor like the parameter.")
    return StateLayout(structure, specs)


class Settings:
    """The settings of a rule: those called `names` are numbers, arguments of the program, the others part of it."""

    def __init__(self, settings: Mapping[str, Any], names: Sequence[str]) -> None:
        self.known = dict(settings)
        self.fixed = {n: v for n, v in settings.items() if n not in names}
        self.names = [n for n in settings if n in names]
        self.structure = self._flatten(settings)[1]

    def _flatten(self, settings: Mapping[str, Any]) -> tuple[list[Any], Any]:
        return flatten([settings[n] for n in self.names])

    def are_same(self, settings: Mapping[str, Any]) -> bool:
        """Whether these are the settings as they were last read."""
        if len(settings) != len(self.known):
            return False
        for name, value in self.known.items():  # noqa: SIM110 - a generator costs more than the comparisons
            if settings.get(name) is not value:
                return False
        return True

    def read_numbers(self, settings: Mapping[str, Any]) -> list[float] | None:
        """The numbers in their order; None if these settings differ in more than numbers."""
        if settings.keys() != self.known.keys() or any(settings[n] is not v for n, v in self.fixed.items()):
            return None
        leaves, structure = self._flatten(settings)
        if structure != self.structure or not all(_is_number(settings[n]) for n in self.names):
            return None
        self.known = dict(settings)
        return [float(x) for x in leaves]

    def with_numbers(self, numbers: Sequence[Any]) -> dict[str, Any]:
        return {**self.fixed, **dict(zip(self.names, unflatten(self.structure, list(numbers)), strict=True))}


def _is_number(x: Any) -> bool:
    """Whether a setting may be an argument. A zero alone may not: rules leave out what it scales."""
    if isinstance(x, tuple):
        return bool(x) and all(isinstance(v, (float, np.floating)) for v in x)
    return isinstance(x, (float, np.floating)) and x != 0


def candidate_settings(settings: Mapping[str, Any]) -> list[Settings]:
    """What may be arguments, most first: some rules look at their numbers as they are made."""
    every = [n for n, v in settings.items() if _is_number(v)]
    choices = [every, [n for n in every if n == "lr"], []]
    return [Settings(settings, names) for i, names in enumerate(choices) if names not in choices[:i]]


def compile_leaf(
    choose: Callable[[Sequence[Any]], Rule], settings: Settings, layout: StateLayout, dtype: Any, device: str
) -> Any:
    """The native code of a step of one parameter, and the number of its folds; `choose(numbers)` is the rule.

    Its arrays are the parameter, the gradient and the rows of the state; its numbers those of the state, then the
    settings.
    """
    staged, longer = (_stage_leaf(choose, settings, layout, dtype, n) for n in (CHUNK, 2 * CHUNK))
    if not is_same_for_rows(staged, longer):
        raise NotRowsError("the length of a row is part of the program.")
    program = optimize(staged)
    kept = len(layout.specs)
    donated = {0: 0, **{i: i + 1 for i in range(1, kept + 1)}}
    arrays = 2 + sum(map(layout.is_row, range(kept)))
    return _find_code(program, arrays, donated, device), sum(map(is_fold, program.equations))


def _stage_leaf(
    choose: Callable[[Sequence[Any]], Rule], settings: Settings, layout: StateLayout, dtype: Any, length: int
) -> Program:
    """The step of a parameter of some length as a program, whose results replace the parameter and its state."""
    order = layout.rows_first()
    kept = len(order)

    def step(p: Any, g: Any, *rest: Any) -> list[Any]:
        state = dict(zip(order, rest[:kept], strict=True))
        update, after = choose(rest[kept:]).advance(
            g, unflatten(layout.structure, [state[i] for i in range(kept)]), p, {}
        )
        found = flatten(after)[0]
        return [pointwise.add(p, update), *(as_value(found[i]) for i in order)]

    row = make_spec((length,), np.dtype(dtype))
    wanted = [row, *(row if layout.is_row(i) else layout.specs[i] for i in order)]
    constants = Constants()
    specs = [row, *wanted, *[_FLOAT] * settings.structure.num_leaves]
    staged = stage(step, *specs, constants=constants)
    if any(spec_of(x) != s for x, s in zip(staged.outputs, wanted, strict=True)):
        raise NotRowsError("a result has another shape or dtype than what it replaces.")
    _refuse_captures(staged, constants)
    return staged


def _refuse_captures(program: Program, constants: Constants) -> None:
    """A program is staged once, so it must not hold what others may change: a tensor, or an array that lives on."""
    found = [a for e in program.equations for a in e.args if not isinstance(a, Symbol)]
    if any(isinstance(a, Value) or (is_array(a) and constants.origin(a) is not a) for a in found):
        raise NotRowsError("a setting is an array.")


def _find_code(program: Program, arrays: int, donated: dict[int, int], device: str) -> RowCode | DeviceRowCode:
    found = fingerprint(program)
    key = None if found is None else (found, device == "cpu")
    code = _codes.get(key) if key is not None else None
    if code is None:
        code = _compile_rows(program, arrays, donated, device)
        if key is not None:
            _codes[key] = code
            if len(_codes) > _MAX_CODES:
                _codes.popitem(last=False)
    return code


def _compile_rows(program: Program, arrays: int, donated: dict[int, int], device: str) -> RowCode | DeviceRowCode:
    if device == "cpu":
        return compile_rows(program, arrays, donated, cpu_target())
    found: DeviceRowCode | None = _compile_device_rows(program, arrays, donated)
    if found is None:
        raise NotRowsError("an op has no line of a kernel, or sums over a parameter.")
    return found
