"""Batches: a function of one element becomes one of many; every op runs once, with one more axis."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from ..arrays.call_site import format_line, user_line
from ..arrays.origin import Origin
from ..arrays.scope import Scope, new_level
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import alias
from ..arrays.trees import broadcast_prefix, flatten, leaf_paths, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, ShapeError
from ..ops.axes import normalize_axis
from ..ops.dispatch import run
from ..ops.op import Op
from ..ops.shape.reshaping import broadcast_to, moveaxis
from ..ops.user_calls import call_function
from ..program.ir import Symbol
from ..settings import PLAIN, installed, modes
from .boundary import as_array_leaf, owned_copy, unwrap_to_level

P = ParamSpec("P")
R = TypeVar("R")


class Batched(Value):
    """A value for each element of a batch, which lies along one axis that the function does not see; with `axis` None
    one value for all of them.
    """

    __slots__ = ("axis", "level", "made_by", "scope", "spec", "value")
    level: int
    scope: Scope
    is_variable = True
    is_its_parts = True

    def __init__(self, value: Any, axis: int | None, scope: Scope, made_by: str = "an argument") -> None:
        self.value = value
        self.axis = axis
        spec = spec_of(value)
        # The first axis is the usual one: the spec of an element is cached with that of the whole.
        if axis == 0:
            self.spec: Spec = spec.element or spec.element_spec()
        else:
            shape = spec.shape if axis is None else spec.shape[:axis] + spec.shape[axis + 1 :]
            self.spec = make_spec(shape, spec.dtype, spec.device).as_guarded()
        self.scope = scope
        self.level = scope.level
        self.made_by = made_by

    def point_at(self, new: Any, what: str) -> None:
        if isinstance(new, Value) and new.level >= self.level:
            if type(new) is not Batched or new.scope is not self.scope:
                raise self.rebind_error(what)
            self.value, self.axis, self.made_by = new.value, new.axis, new.made_by
        else:
            self.value, self.axis = new, None

    def parts(self) -> tuple[Any, ...]:
        return (self.value,)

    def with_parts(self, *parts: Any) -> Batched:
        (value,) = parts
        return Batched(value, self.axis, self.scope, self.made_by)

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Pass the op its arguments with their batch axes; its record has the batch rule."""
        scope = self.scope
        if not scope.open:
            scope.check()
        level = self.level
        values: list[Any] = []
        axes: list[int | None] = []
        constant = True
        for x in args:
            if type(x) is Batched and x.level == level:
                values.append(x.value)
                axes.append(x.axis)
                constant = constant and x.axis is None
            else:
                values.append(x)
                axes.append(None)
        # No argument differs by element: compute once for all of them.
        if constant:
            out = run(op, values, static)
            axis: Any = (None,) * len(out) if type(out) is tuple else None
        else:
            out, axis = op.batch(op, scope.size, values, axes, static)
        if type(out) is tuple:
            made = tuple(Batched(x, a, scope, op.name) for x, a in zip(out, axis, strict=True))
            return made if modes() is PLAIN else _tell_batched(made)
        one = Batched(out, axis, scope, op.name)
        return one if modes() is PLAIN else _tell_batched((one,))[0]

    @property
    def is_tracked(self) -> bool:
        return isinstance(self.value, Value) and self.value.is_tracked

    @property
    def is_unknown(self) -> bool:
        return self.axis is not None or (isinstance(self.value, Value) and self.value.is_unknown)

    def __bool__(self) -> bool:
        if self.axis is None:
            return bool(self.value)
        error = ConversionError(
            f"vmap: an `if` or `while` asks for the truth of a value that differs by element: "
            f"{self.spec}, made by {self.made_by}.\n  asked at {format_line(*user_line(sys._getframe(1)))}\n"
            "  Use pb.where(condition, x, y), which computes both; or pb.cond and pb.while_loop, which each element "
            "goes through in its own way;\n  or compile the function of one element, which follows an `if` both ways: "
            "pb.vmap(pb.jit(f))."
        )
        error.asked_by_branch = True
        raise error

    def __index__(self) -> int:
        if self.axis is None:
            return int(self.value.__index__())
        raise self.conversion_error("index()")

    def conversion_error(self, what: str) -> ConversionError:
        """Raise: an element of a batch has no array of its own."""
        lookup = "  Sets, dicts and caches look up by hash: compare instead, as in pb.isin(x, values).\n" * (
            what == "hash()"
        )
        return ConversionError(
            f"{what}: this value differs by element of a vmap ({self.spec}, made by {self.made_by}).\n{lookup}"
            "  Use functions of pullback on it, and return it from the function to see its values."
        )

    def __repr__(self) -> str:
        return f"batched({self.spec}, {self.scope.size} of them)"


def _tell_batched(made: tuple[Batched, ...]) -> tuple[Batched, ...]:
    """The results of an op, after instruments have seen them, and equations have noted where their elements are."""
    for value in made:
        installed().batched(value)
        if modes().locates and value.axis is not None:
            _note_batch_axis(value)
    return made


def _note_batch_axis(value: Batched) -> None:
    """In a program that is traced, note on the equation which axis counts the elements."""
    below: Any = value
    while isinstance(below, Value) and type(below) is not Symbol:
        below = next(iter(below.parts()), None)
    origin = getattr(below, "site", None)
    if isinstance(origin, Origin):
        origin.batches[value.level] = axis_in_array(value)


def axis_in_array(value: Batched) -> int:
    """The axis of the elements in the array itself, in which those of outer batches are not hidden."""
    axis, below = value.axis or 0, value.value
    while isinstance(below, Value):
        axis += isinstance(below, Batched) and below.axis is not None and axis >= below.axis
        below = next(iter(below.parts()), None)
    return axis


class Apart(NamedTuple):
    """A function runs whose elements stand each for itself in batches below a level: why, and what to do instead."""

    reason: str
    instead: str
    level: int


kept_apart: ContextVar[Apart | None] = ContextVar("pullback_kept_apart", default=None)


@contextmanager
def _keep_apart(reason: str, instead: str) -> Iterator[None]:
    token = kept_apart.set(Apart(reason, instead, new_level()))
    try:
        yield
    finally:
        kept_apart.reset(token)


def take_unit_directions(what: str) -> AbstractContextManager[None]:
    """Around a function whose places are moved one by one. With values of other elements that is half of the matter:
    forward, a unit direction would move the same place of every element, in reverse each would get what all have found.
    """
    instead = f"Take that of the whole, {what} of pb.vmap(f); or products inside, by pb.grad, pb.vjp or pb.jvp."
    return _keep_apart(f"whose {what} is taken", instead)


def solve_apart(what: str) -> AbstractContextManager[None]:
    """Around a function that a solver calls: each element of a batch has its own steps, and stops by itself."""
    instead = "Pose the problem of the whole batch, with sums along its axis."
    return _keep_apart(f"that {what} solves for each of them by itself", instead)


def batch_scope(size: int, axis_name: str | None = None) -> Scope:
    """A run of `vmap` over so many elements."""
    scope = Scope("vmap", _lift_constant, _lower_constant, size)
    scope.axis_name = axis_name
    return scope


def _lift_constant(scope: Scope, x: Any) -> Batched:
    return Batched(x, None, scope)


def _lower_constant(x: Any) -> Any:
    return x.value if type(x) is Batched and x.axis is None else x


def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    axis_name: str | None = None,
) -> Callable[P, R]:
    """f over a batch, all of it at once: what the public function does without chunks."""

    @functools.wraps(f)
    def batched(*args: P.args, **kwargs: P.kwargs) -> Any:
        batch = read_batch(in_axes, args, kwargs, axis_size)
        scope = batch_scope(batch.size, axis_name)
        own = [alias(v) for v in batch.values]  # f may rebind its own
        inputs = [v if a is None else Batched(v, a, scope) for v, a in zip(own, batch.axes, strict=True)]
        with scope:
            given = unflatten(batch.structure, inputs)  # inside: modules rebuilt here are the transform's own
            out = call_function(f, given[0], given[1] if kwargs else {})
            results, shape = flatten(out)
            # After the call, since only then the structure of the result is known.
            wanted = broadcast_prefix(out_axes, out, "vmap: out_axes")
            pairs = zip(results, wanted, strict=True)
            return unflatten(shape, [owned_copy(unbatch(x, scope, axis)) for x, axis in pairs])

    return batched


class BatchArguments(NamedTuple):
    """The leaves of the arguments (and keyword arguments) of a call, which axis of each counts the elements, and how
    many these are.
    """

    values: list[Any]
    axes: list[int | None]
    structure: Any
    size: int


def read_batch(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axis_size: int | None) -> BatchArguments:
    """What the arguments of a call have along which axes."""
    leaves, structure = flatten((args, kwargs) if kwargs else (args,))
    values = [as_array_leaf(leaf, "vmap") for leaf in leaves]
    # `in_axes` cannot name keyword arguments, so these are batched along their first axis.
    asked = _axes_per_argument(in_axes, args) + [0] * (len(leaves) - len(flatten(args)[0]))
    axes = [_check_axis(v, a, structure, i) for i, (v, a) in enumerate(zip(values, asked, strict=True))]
    return BatchArguments(values, axes, structure, _batch_size(values, axes, structure, axis_size))


def _axes_per_argument(in_axes: Any, args: tuple[Any, ...]) -> list[Any]:
    if in_axes is None or isinstance(in_axes, (int, np.integer)):
        return broadcast_prefix(in_axes, args, "vmap: in_axes")
    if not isinstance(in_axes, (tuple, list)) or len(in_axes) != len(args):
        raise ArgumentError(f"vmap: in_axes {in_axes!r} has no entry for each of the {len(args)} arguments.")
    pairs = zip(in_axes, args, strict=True)
    return [entry for axis, arg in pairs for entry in broadcast_prefix(axis, arg, "vmap: in_axes")]


def _check_axis(value: Any, axis: Any, structure: Any, number: int) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"vmap: in_axes holds integers or None, got {axis!r}.")
    rank = spec_of(value).ndim
    # A number among arrays is most often meant for all elements.
    if rank == 0:
        raise ShapeError(
            f"vmap: argument{leaf_paths(structure)[number][3:]} is {spec_of(value)}, "
            "with no axis to count elements along.\n"
            "  Give None for it in in_axes if it is common to all."
        )
    return normalize_axis(int(axis), rank, "vmap")


def _batch_size(values: list[Any], axes: list[int | None], structure: Any, given: int | None) -> int:
    sizes = {spec_of(v).shape[a] for v, a in zip(values, axes, strict=True) if a is not None}
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise ArgumentError(f"vmap: axis_size must be an integer, not negative, got {given!r}.")
        sizes.add(given)
    if len(sizes) == 1:
        return sizes.pop()
    if not sizes:
        raise ArgumentError("vmap: no argument has a batch axis.\n  Pass the number of elements: axis_size=n.")
    found = [
        f"argument{path[3:]} has {spec_of(v).shape[a]}"
        for path, v, a in zip(leaf_paths(structure), values, axes, strict=True)
        if a is not None
    ]
    stated = [] if given is None else [f"axis_size says {given}"]
    raise ShapeError(f"vmap: the batch axes differ in size: {', '.join(found + stated)}.")


def unbatch(out: Any, scope: Scope, out_axis: int | None) -> Any:
    """A result as a value of the level below, its elements along an axis; with None, one that all share."""
    out = unwrap_to_level(as_array_leaf(out, "vmap"), scope)
    own = type(out) is Batched and out.scope is scope
    value, axis = (out.value, out.axis) if own else (out, None)
    if out_axis is None:
        if axis is not None:
            raise ArgumentError(
                f"vmap: out_axes is None for a result that differs by element ({out.spec}, made by {out.made_by}).\n"
                "  Give the axis its elements should lie along."
            )
        return value
    # The same for all elements, but the caller wants one for each.
    if axis is None:
        value, axis = broadcast_to(value, (scope.size, *spec_of(value).shape)), 0
    wanted = normalize_axis(out_axis, spec_of(value).ndim, "vmap")
    return value if axis == wanted else moveaxis(value, axis, wanted)
