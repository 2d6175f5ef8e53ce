"""Sizes that vary: the steps of a program for two sizes in, steps out whose differing numbers are read at run time.

A program that is called with another size is lowered again, which is quick; what takes long is machine code. So its
steps are compared with those for an earlier size. Numbers that differ become `Varying`: integers like any
other while the target decides, but operands in its text. Text that then agrees with that for a third size is the
same machine code with other numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from .loop_ir import Blocks, Host, Kernel, KernelLine, Layout, Loop, Product, Step, Steps, Store


class Operand(int):
    """An integer that the text of a program does not depend on: it is a placeholder there, replaced by the target with
    an operand that is read when the code runs. What is computed of it is one too.

    Operands of one `identity` are one number for every size; others may be equal for some sizes by chance.
    """

    identity: str

    def __new__(cls, value: int, identity: str) -> Self:
        found = int.__new__(cls, value)
        found.identity = identity
        return found

    def __str__(self) -> str:
        return placeholder(int.__repr__(self), self.identity, "i64")

    def __format__(self, how: str) -> str:
        return str(self)

    def __neg__(self) -> Operand:
        return type(self)(int.__neg__(self), f"-{self.identity}")


class Varying(Operand):
    """An operand that may be any size, so the code must have a form that is right for all of them."""


class VaryingFloat(float):
    """A number that is another one for another size, such as the factor of a mean."""

    identity: str

    def __new__(cls, value: float, identity: str) -> VaryingFloat:
        found = float.__new__(cls, value)
        found.identity = identity
        return found


def _lift(name: str) -> Callable[[Operand, int], Any]:
    """An operator of integers for operands."""
    compute = getattr(int, name)

    def lifted(self: Operand, other: int) -> Any:
        value = compute(self, other)
        if value is NotImplemented:
            return value
        kind = Varying if Varying in (type(self), type(other)) else Operand
        return kind(value, _shorten(f"{name[2:-2]}({self.identity},{getattr(other, 'identity', other)})"))

    return lifted


def _shorten(identity: str) -> str:
    """A name of bounded length: a sum of many terms would have a long one, and sums of sums longer ones."""
    return identity if len(identity) < 200 else hashlib.blake2s(identity.encode()).hexdigest()


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _side in ("", "r"):
        setattr(Operand, f"__{_side}{_name}__", _lift(f"__{_side}{_name}__"))


def placeholder(literal: str, identity: str, kind: str, lanes: int = 1) -> str:
    """What stands for an operand in text: its literal, what tells it from others that are equal by chance, and its
    type.
    """
    return f"?{literal}|{identity}|{kind}|{lanes}?"


def identities(*numbers: Iterable[Any]) -> tuple[Any, ...]:
    """What tells operands from numbers to which they are equal."""
    return tuple([getattr(n, "identity", None) for n in itertools.chain(*numbers)])


class _DifferentError(Exception):
    """The steps differ in more than numbers."""


def mark_steps(steps: Steps, reference: Steps) -> Steps | None:
    """A copy of steps in which numbers that are others in the reference vary; None if more than numbers differ.
    Buffers are shared with the original.
    """
    try:
        return _mark_program(steps, reference)
    except _DifferentError:
        return None


def _require(same: bool) -> None:
    if not same:
        raise _DifferentError


def _mark(x: int, y: int) -> int:
    return x if x == y else Varying(x, str(y))


def _mark_all(xs: tuple[int, ...], ys: tuple[int, ...]) -> tuple[int, ...]:
    if xs == ys:
        return xs
    _require(len(xs) == len(ys))
    return tuple(map(_mark, xs, ys))


def _mark_number(x: Any, y: Any) -> Any:
    """The number of a line or a factor of a product."""
    _require(type(x) is type(y))
    a, b = np.asarray(x), np.asarray(y)
    if (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()):
        return x
    _require(a.dtype == b.dtype and a.ndim == b.ndim == 0 and a.dtype.kind in "iuf")
    return (VaryingFloat if a.dtype.kind == "f" else Varying)(a.item(), str(b.item()))


def _replace(x: Any, **changed: Any) -> Any:
    """x with other fields; x itself if none is another object, so that what does not vary is known by that."""
    new = {name: value for name, value in changed.items() if not _is_same(value, getattr(x, name))}
    return replace(x, **new) if new else x


def _is_same(x: Any, y: Any) -> bool:
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(_is_same, x, y))
    if isinstance(x, dict):
        return all(map(_is_same, x.values(), y.values()))
    return x is y or (type(x) is int and x == y)


def _mark_program(x: Steps, y: Steps) -> Steps:
    _require(len(x.steps) == len(y.steps) and len(x.outputs) == len(y.outputs) and len(x.inputs) == len(y.inputs))
    steps = list(map(_mark_step, x.steps, y.steps))
    return x if _is_same(steps, x.steps) else replace(x, steps=steps, varies=True)


def _mark_step(x: Step, y: Step) -> Any:
    _require(type(x) is type(y))
    return _MARK[type(x)](x, y)


def _mark_kernel(x: Kernel, y: Kernel) -> Kernel:
    lines, others = x.live_lines(), y.live_lines()
    _require(x.inner == y.inner and len(lines) == len(others) and len(x.stores) == len(y.stores))
    numbers, known = {id(line): i for i, line in enumerate(others)}, dict[int, KernelLine]()
    for line, other in zip(lines, others, strict=True):
        known[id(line)] = _mark_line(line, other, known)
        # the same line of both: arguments are in the same places
        _require(all(lines[numbers[id(b)]] is a for a, b in zip(line.args, other.args, strict=True)))
    stores = [_mark_store(s, t, known) for s, t in zip(x.stores, y.stores, strict=True)]
    extents = _mark_all(x.extents, y.extents)
    if extents is x.extents and _is_same(stores, x.stores):
        return x
    return Kernel(extents, x.inner, list(known.values()), stores)


def _fixed_parts(x: KernelLine) -> tuple[Any, ...]:
    """What lines of one program for two sizes have in common."""
    return (
        x.kind, x.dtype, x.axes, x.phase, len(x.args), x.compute_dtype, x.word, x.weight, x.narrow, len(x.places)
    )  # fmt: skip


def _mark_line(x: KernelLine, y: KernelLine, known: dict[int, KernelLine]) -> KernelLine:
    same = _fixed_parts(x) == _fixed_parts(y)
    _require(same and (x.buffer is None) == (y.buffer is None))
    marked: KernelLine = _replace(
        x,
        args=tuple([known[id(a)] for a in x.args]),
        number=_mark_number(x.number, y.number) if x.kind == "number" else x.number,
        strides=_mark_all(x.strides, y.strides),
        offset=_mark(x.offset, y.offset),
        places=_mark_places(x.places, y.places),
    )
    return marked


def _mark_places(x: tuple[tuple[int, int], ...], y: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple([(_mark(a, c), _mark(b, d)) for (a, b), (c, d) in zip(x, y, strict=True)])


def _mark_store(x: Store, y: Store, known: dict[int, KernelLine]) -> Any:
    _require((x.word, x.accumulates, len(x.args)) == (y.word, y.accumulates, len(y.args)))
    return _replace(
        x,
        line=known[id(x.line)],
        strides=_mark_all(x.strides, y.strides),
        offset=_mark(x.offset, y.offset),
        args=tuple([known[id(a)] for a in x.args]),
        places=_mark_places(x.places, y.places),
    )


def _mark_layout(x: Any, y: Any) -> Any:
    if not isinstance(x, Layout):
        return x
    _require(isinstance(y, Layout) and x.buffer.dtype == y.buffer.dtype)
    return _replace(
        x, shape=_mark_all(x.shape, y.shape), strides=_mark_all(x.strides, y.strides), offset=_mark(x.offset, y.offset)
    )


def _mark_layouts(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
    _require(len(x) == len(y))
    return tuple(map(_mark_layout, x, y))


def _mark_product(x: Product, y: Product) -> Any:
    return _replace(
        x,
        out=_mark_layout(x.out, y.out),
        left=_mark_layout(x.left, y.left),
        right=_mark_layout(x.right, y.right),
        alpha=_mark_number(x.alpha, y.alpha),
        beta=_mark_number(x.beta, y.beta),
    )


def _mark_loop(x: Loop, y: Loop) -> Any:
    fixed = operator.attrgetter("kind", "carried", "reverse")
    _require(fixed(x) == fixed(y) and len(x.programs) == len(y.programs) and (x.number is None) == (y.number is None))
    return _replace(
        x,
        programs=tuple(map(_mark_program, x.programs, y.programs)),
        inputs=_mark_layouts(x.inputs, y.inputs),
        moves=_mark_all(x.moves, y.moves),
        outputs=_mark_layouts(x.outputs, y.outputs),
        shifts=_mark_all(x.shifts, y.shifts),
        number=_mark_layout(x.number, y.number),
        rounds=_mark(x.rounds, y.rounds),
    )


def _mark_host(x: Host, y: Host) -> Any:
    if x.routine is None or y.routine is None:  # only a routine is part of the text
        return x
    return _replace(x, args=_mark_layouts(x.args, y.args), outs=_mark_layouts(x.outs, y.outs))


def _mark_blocks(x: Blocks, y: Blocks) -> Any:
    _require(len(x.steps) == len(y.steps) and len(x.moves) == len(y.moves))
    moves = {b: _mark(n, m) for (b, n), m in zip(x.moves.items(), y.moves.values(), strict=True)}
    return _replace(x, count=_mark(x.count, y.count), steps=list(map(_mark_step, x.steps, y.steps)), moves=moves)


_MARK: dict[type, Callable[[Any, Any], Any]] = {
    Kernel: _mark_kernel, Product: _mark_product, Loop: _mark_loop, Host: _mark_host, Blocks: _mark_blocks,
}  # fmt: skip
