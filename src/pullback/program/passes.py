"""Program in, an equivalent smaller one out: passes are named functions, in one tuple in their order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import spec_of
from ..errors import PullbackError
from ..ops.dispatch import compute
from ..ops.families import broadcast_shape
from ..ops.forms import Cast, Expand, Gather, Reduce, ScatterAdd
from ..ops.op import IDENTITY, OPAQUE, PURE, Algebra
from ..ops.shape.reshaping import broadcast_op, reshape_op
from .casts import move_casts
from .gathers import gather_sources
from .ir import Equation, Program, Symbol
from .loops import drop_unused_carries, share_loops, value_key
from .masks import Masks
from .scatters import compare_for_scatter
from .stage import stage
from .taps import find_taps
from .transposes import transpose_products
from .verify import verify_program

#: Constants of more elements are not folded: they would only fill memory.
LARGEST_CONSTANT = 1 << 12
#: Beside a value, one with this part of its elements is small.
SMALL_SHARE = 8
_VIEWS = broadcast_op, reshape_op
_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)


class Substitution:
    """Which values a pass replaced, by what."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.held: list[Any] = []  # ids stay valid while their objects live

    def substitute(self, old: Symbol, new: Any) -> None:
        self.known[id(old)] = new
        self.held.append(old)

    def lookup(self, x: Any) -> Any:
        return self.known.get(id(x), x)

    def equation(self, e: Equation) -> Equation:
        if not self.known or not any(id(a) in self.known for a in e.args):
            return e
        return Equation(e.results, e.op, tuple([self.lookup(a) for a in e.args]), e.static)


def optimize(program: Program) -> Program:
    """The program after all passes, verified after each; only equations that a pass made have their specs checked."""
    trusted = {id(e) for e in program.equations}
    seen = [program]  # ids stay valid while their objects live
    for run in PASSES:
        changed = run(program)
        if changed is not program:
            program = verify_program(changed, trusted)
            trusted |= {id(e) for e in program.equations}
            seen.append(program)
    return program


def _with_equations(program: Program, equations: Sequence[Equation]) -> Program:
    """The program with these equations; itself if they are its own."""
    if len(equations) == len(program.equations) and all(map(is_, equations, program.equations)):
        return program
    return dataclasses.replace(program, equations=tuple(equations))


def _rewrite(program: Program, replace: Callable[[Equation], Sequence[Any] | None]) -> Program:
    """Each equation for which `replace` returns values is dropped, and its results become those values."""
    names = Substitution()
    kept = []
    for e in program.equations:
        e = names.equation(e)
        values = replace(e)
        if values is None:
            kept.append(e)
        else:
            for old, new in zip(e.results, values, strict=True):
                names.substitute(old, new)
    if not names.known:
        return program
    return dataclasses.replace(program, equations=tuple(kept), outputs=tuple(names.lookup(o) for o in program.outputs))


def fold_constants(program: Program) -> Program:
    """Compute equations without symbols now, unless their effects belong to each run."""

    def replace(e: Equation) -> Sequence[Any] | None:
        if any(isinstance(a, Symbol) for a in e.args) or any(s.spec.size > LARGEST_CONSTANT for s in e.results):
            return None
        # an array that repeats a number is a view of it, and takes no memory
        if not e.op.is_repeatable(e.static) or e.op is broadcast_op:
            return None
        # op by op on arrays, as the program itself would
        out = compute(e.op, list(e.args), e.static)
        return out if type(out) is tuple else (out,)

    return _rewrite(program, replace)


def _is_number(x: Any, value: float) -> bool:
    return not isinstance(x, Symbol) and not (is_array(x) and x.ndim) and bool(x == value)


def expand(program: Program) -> Program:
    """Expand ops that can be expressed in others, such as a root search as a loop; at compile time alone, since they
    have their own derivatives.
    """
    return _expand_by(program, _expansion_of)


def expand_without_libraries(
    program: Program, expansion_of_others: Callable[[Equation], Callable[..., Any] | None]
) -> Program:
    """Expand what NumPy or SciPy would compute too, in bodies of loops and branches as well: for programs that run
    where neither is. What ops of other forms are made of is said by `expansion_of_others`.
    """

    def rewrite(e: Equation) -> Equation:
        def inside(x: Program) -> Program:
            return expand_without_libraries(x, expansion_of_others)

        inner = {name: _map_programs(x, inside) for name, x in e.static.items()}
        return e if all(inner[name] is x for name, x in e.static.items()) else Equation(e.results, e.op, e.args, inner)

    def expansion_of(e: Equation) -> Callable[..., Any] | None:
        form = e.op.form
        if not isinstance(form, Expand):
            return expansion_of_others(e)
        if form.anywhere is None or expand_equation(e) is not None:
            return None
        return functools.partial(form.anywhere, **e.static)

    return _expand_by(_with_equations(program, list(map(rewrite, program.equations))), expansion_of)


def _map_programs(x: Any, function: Callable[[Program], Program]) -> Any:
    """A static parameter with the programs in it changed; itself if they are not."""
    if isinstance(x, Program):
        return function(x)
    if type(x) is tuple and any(isinstance(y, Program) for y in x):
        made = tuple([_map_programs(y, function) for y in x])
        return x if all(map(is_, made, x)) else made
    return x


def _expansion_of(e: Equation) -> Callable[..., Any] | None:
    if isinstance(e.op.form, Expand):
        return functools.partial(e.op.form.function, **e.static)
    return compare_for_scatter(e) if isinstance(e.op.form, ScatterAdd) else None


def expand_equation(e: Equation) -> Program | None:
    """What an equation is expanded to, as a program of the symbols among its arguments; None if it stays as it is."""
    function = _expansion_of(e)
    return None if function is None else _stage_expansion(e, function)


def expand_equation_anywhere(e: Equation) -> Program | None:
    """The same for where there is no NumPy; None if its op is not made of other ops for these arguments."""
    return _stage_expansion(e, functools.partial(e.op.form.anywhere, **e.static))


def _expand_by(program: Program, expansion_of: Callable[[Equation], Callable[..., Any] | None]) -> Program:
    """The program with each equation replaced by the ops of a function of its arguments, where there is one."""
    names = Substitution()
    equations = tuple(_expand_equations(program.equations, names, expansion_of))
    if not names.known:
        return program
    return dataclasses.replace(program, equations=equations, outputs=tuple(map(names.lookup, program.outputs)))


def _expand_equations(
    equations: Sequence[Equation], names: Substitution, expansion_of: Callable[[Equation], Callable[..., Any] | None]
) -> list[Equation]:
    lines: list[Equation] = []
    for e in equations:
        e = names.equation(e)
        function = expansion_of(e)
        expansion = None if function is None else _stage_expansion(e, function)
        if expansion is None:
            lines.append(e)
            continue
        arguments = [a for a in e.args if isinstance(a, Symbol)]
        for symbol, argument in zip(expansion.inputs, arguments, strict=True):
            names.substitute(symbol, argument)
        lines += _expand_equations(expansion.equations, names, expansion_of)
        for old, new in zip(e.results, expansion.outputs, strict=True):
            names.substitute(old, names.lookup(new))
    return lines


def _stage_expansion(e: Equation, expansion: Callable[..., Any]) -> Program | None:
    """An equation as a program of its symbols; None if its op cannot do that here."""
    places = [i for i, a in enumerate(e.args) if isinstance(a, Symbol)]

    def function(*symbols: Any) -> Any:
        args = list(e.args)
        for i, s in zip(places, symbols, strict=True):
            args[i] = s
        return expansion(*args)

    try:
        staged = stage(function, *(e.args[i].spec for i in places))
    except PullbackError:  # it needs concrete values or what has no spec: NumPy executes it, and raises
        return None
    return None if any(o is None for o in staged.outputs) else staged


def absorb_numbers(program: Program) -> Program:
    """Have elementwise ops take a number instead of an array that repeats it, where the result's shape does not depend
    on that array; what they compute of such arrays alone is one number too.
    """
    numbers: dict[int, Any] = {}

    def rewrite(e: Equation) -> Equation:
        found = [numbers.get(id(a), a if isinstance(a, _NUMBERS) and not _has_axes(a) else None) for a in e.args]
        if all(x is None or x is a for x, a in zip(found, e.args, strict=True)) and e.op is not broadcast_op:
            return e
        result = e.results[0]
        if (
            None not in found
            and result.spec.weak is None
            and (e.op is broadcast_op or e.op is reshape_op or _is_plain_elementwise(e))
        ):
            number = found[0] if e.op.family != "elementwise" else compute(e.op, found, e.static)
            numbers[id(result)] = np.asarray(number, result.spec.dtype)
            return Equation(e.results, broadcast_op, (numbers[id(result)],), {"shape": result.spec.shape})
        if not _is_plain_elementwise(e):
            return e
        args = tuple(a if x is None else x for x, a in zip(found, e.args, strict=True))
        shape = broadcast_shape(e.op.name, *(spec_of(a).shape for a in args))
        return Equation(e.results, e.op, args, e.static) if shape == result.spec.shape else e

    return _with_equations(program, list(map(rewrite, program.equations)))


def _is_plain_elementwise(e: Equation) -> bool:
    return e.op.family == "elementwise" and len(e.results) == 1 and e.op.is_repeatable(e.static)


def simplify(program: Program) -> Program:
    """Drop equations that change nothing."""

    def replace(e: Equation) -> Sequence[Any] | None:
        algebra = e.op.algebra
        found = None if algebra is OPAQUE else _returned_argument(algebra, e.args)
        # an argument of another shape or dtype is still broadcast or converted
        return (found,) if isinstance(found, Symbol) and found.spec == e.results[0].spec else None

    return _rewrite(program, replace)


def _returned_argument(algebra: Algebra, args: Sequence[Any]) -> Any:
    """The argument whose values an op returns, by its arithmetic; None for others."""
    for i, number in algebra.neutral.items():
        if _is_number(args[i], number):
            return args[1 - i]
    return args[0] if algebra.weights == IDENTITY.weights else None


def replace_full_scatters(program: Program) -> Program:
    """Replace zeros with a value added at every place by the value, reshaped."""

    def rewrite(e: Equation) -> Equation:
        if not isinstance(e.op.form, ScatterAdd) or len(e.args) > 1:
            return e
        whole = all(entry is None or entry == slice(None) for entry in e.static["index"])
        return Equation(e.results, reshape_op, e.args, {"shape": e.results[0].spec.shape}) if whole else e

    return _with_equations(program, list(map(rewrite, program.equations)))


def replace_by_taps(program: Program) -> Program:
    """Replace scatters to known places by sums over what arrives at each."""
    return _expand_by(program, find_taps)


def merge_equal(program: Program) -> Program:
    """Compute the same op on the same values once, unless its effects forbid it (a checkpoint's fence)."""
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def replace(e: Equation) -> Sequence[Any] | None:
        if not e.effects.merge:
            return None
        args = tuple([value_key(a) for a in e.args])
        key = (id(e.op), args, repr(sorted(e.static.items(), key=lambda item: item[0])))
        if key in seen:
            return seen[key]
        seen[key] = e.results
        return None

    return _rewrite(program, replace)


def drop_repeated_masks(program: Program) -> Program:
    """Drop selections that change nothing: cotangents are masked at every op."""
    masks = Masks(program)
    once = _with_equations(program, list(map(masks.select_once, program.equations)))
    return _rewrite(once, (masks if once is program else Masks(once)).find_selected)


def drop_unused(program: Program) -> Program:
    """Drop equations whose results are unused, unless their effects forbid it."""
    wanted = {id(o) for o in program.outputs}
    live = []
    for e in reversed(program.equations):
        if not e.effects.drop or any(id(s) in wanted for s in e.results):
            live.append(e)
            wanted |= {id(a) for a in e.args}
    return program if len(live) == len(program.equations) else dataclasses.replace(program, equations=tuple(live[::-1]))


def hoist_small(program: Program) -> Program:
    """Move what depends on small values alone (a learning rate, the labels of rows) before everything else, so that it
    does not separate two loops that could be fused. Scalars are small; so is what is small beside the values it is
    broadcast to, which for the labels of rows does not depend on the number of rows.
    """
    reach = _find_reach(program)

    def is_small(s: Symbol) -> bool:
        return s.spec.size <= max(1, reach.get(id(s), 0) // SMALL_SHARE)

    early = {id(x) for x in program.inputs if is_small(x)}

    def is_early(e: Equation) -> bool:
        if not all(id(a) in early or not isinstance(a, Symbol) for a in e.args):
            return False
        alone = _goes_along(e) or isinstance(e.op.form, Reduce)
        return alone and e.op.effects is PURE and all(map(is_small, e.results))

    first, rest = [], []
    for e in program.equations:
        if is_early(e):
            early.update(map(id, e.results))
            first.append(e)
        else:
            rest.append(e)
    return _with_equations(program, [*first, *rest])


def _goes_along(e: Equation) -> bool:
    """Whether the result is at least as large as what it is computed of."""
    return e.op.family == "elementwise" or isinstance(e.op.form, Cast | Gather) or e.op in _VIEWS


def _find_reach(program: Program) -> dict[int, int]:
    """The size of the largest value to which each is broadcast."""
    reach: dict[int, int] = {}
    for e in reversed(program.equations):
        if _goes_along(e):
            size = max(max(s.spec.size, reach.get(id(s), 0)) for s in e.results)
            reach |= {id(a): max(size, reach.get(id(a), 0)) for a in e.args}
    return reach


def _has_axes(x: Any) -> bool:
    return is_array(x) and bool(x.ndim)


#: The passes in the order in which they run.
PASSES = (
    expand, absorb_numbers, simplify, fold_constants, simplify, replace_full_scatters, replace_by_taps,
    gather_sources, merge_equal, share_loops, drop_repeated_masks, drop_unused, drop_unused_carries, move_casts,
    drop_unused, transpose_products, hoist_small,
)  # fmt: skip
