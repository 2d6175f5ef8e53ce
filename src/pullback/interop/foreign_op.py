"""Functions of other libraries as ops of ours, as are their derivatives and batches, which those libraries make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..arrays.picklable import MakerCall, attach_maker, call_maker
from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError
from ..ops.dispatch import apply, as_value
from ..ops.op import PURE, UNKNOWN, Effects, Formula, Op
from ..transforms.custom.rules import make_custom_record


class ForeignFunction(ABC):
    """A function of arrays in a row, computed by another library, with as many results as it says."""

    name: str
    flat: Callable[..., tuple[Any, ...]]
    #: The structure of the results, once the function ran.
    structure: Any = None

    @abstractmethod
    def compute(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The results on bare arrays, as arrays that nothing else writes to."""

    @abstractmethod
    def find_specs(self, specs: Sequence[Spec]) -> Sequence[Spec]:
        """The specs of the results, without computing them."""

    @abstractmethod
    def make_pullback(self, wanted: tuple[int, ...], count: int) -> ForeignFunction:
        """The cotangents of the `wanted` ones of `count` arguments, from the arguments and the cotangents of those
        results that have one.
        """

    @abstractmethod
    def make_pushforward(self, moving: tuple[int, ...], count: int) -> ForeignFunction:
        """The tangents of those results that have one, from the arguments and the tangents of the `moving` ones."""

    @abstractmethod
    def vectorize(self, axes: tuple[int | None, ...]) -> ForeignFunction | None:
        """Over a batch along these axes, and along the first axis of all results; None: element by element."""

    @abstractmethod
    def is_floating(self, array: Any) -> bool:
        """Whether an array of the other library may have a cotangent."""

    def call_floating(self, places: tuple[int, ...], arguments: Sequence[Any], *moving: Any) -> tuple[Any, ...]:
        """The floating-point results, as a function of the arguments at some places."""
        given = list(arguments)
        for i, x in zip(places, moving, strict=True):
            given[i] = x
        return tuple(filter(self.is_floating, self.flat(*given)))


class ForeignOp:
    """The op of a function, and those that its rules use, each made once."""

    def __init__(self, function: ForeignFunction, effects: Effects) -> None:
        self.function, self.effects = function, effects
        self.derived: dict[Any, ForeignOp] = {}
        batch = self._batch if function.vectorize((0,)) is not None else None
        record = make_custom_record(
            function.name, ("*xs",), self._value, Formula(self._pull, ("bar", "xs")),
            Formula(self._push, ("tangents", "out", "xs")), batch, self._spec,
        )  # fmt: skip
        self.record: Op = replace(record, effects=effects)

    def call(self, xs: Sequence[Any]) -> list[Any]:
        """The results, which are tracked as the arguments are."""
        found = apply(self.record, *xs)
        return list(found) if type(found) is tuple else [found]

    def _value(self, xp: Any, *xs: Any) -> Any:
        found = tuple(self.function.compute(xs))
        return found if len(found) != 1 else found[0]

    def _spec(self, *specs: Spec) -> Any:
        found = tuple(self.function.find_specs(specs))
        return found if len(found) != 1 else found[0]

    def _pull(self, bar: Any, xs: tuple[Any, ...]) -> tuple[Any, ...]:
        bars = [b for b in (bar if isinstance(bar, tuple) else (bar,)) if not isinstance(b, Spec) or b.inexact]
        along = [zeros(b) if isinstance(b, Spec) else b for b in bars]
        wanted = tuple(i for i, x in enumerate(xs) if spec_of(x).inexact)
        op = self._derive(("pull", wanted), lambda: self.function.make_pullback(wanted, len(xs)))
        found = dict(zip(wanted, op.call([*xs, *along]), strict=True))
        return tuple(found.get(i) for i in range(len(xs)))

    def _push(self, tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...]) -> tuple[Any, ...]:
        moving = tuple(i for i, t in enumerate(tangents) if t is not None and spec_of(xs[i]).inexact)
        op = self._derive(("push", moving), lambda: self.function.make_pushforward(moving, len(xs)))
        found = iter(op.call([*xs, *(tangents[i] for i in moving)]))
        outs = out if type(out) is tuple else (out,)
        return tuple(next(found) if spec_of(y).inexact else None for y in outs)

    def _batch(self, size: int, axes: tuple[int | None, ...], *xs: Any) -> Any:
        op = self._derive(("batch", axes), lambda: self.function.vectorize(axes))
        found = op.call(xs)
        return (tuple(found), (0,) * len(found)) if len(found) != 1 else (found[0], 0)

    def _derive(self, key: Any, make: Callable[[], Any]) -> ForeignOp:
        if key not in self.derived:
            self.derived[key] = ForeignOp(make(), self.effects)
        return self.derived[key]


class TreeOp:
    """A function of trees as ops, one for each arrangement of its arguments, which `make` makes of a flat function."""

    def __init__(
        self, make: Callable[[Any], ForeignFunction], pure: bool, what: str, number: Callable[[Any], Any]
    ) -> None:
        self.make, self.what = make, what
        self.effects = PURE if pure else UNKNOWN
        #: What a number of Python is in the other library.
        self.number = number
        self.known: dict[Any, ForeignOp] = {}
        self.maker_call: MakerCall | None = None

    def __reduce__(self) -> Any:
        assert self.maker_call is not None
        return call_maker, tuple(self.maker_call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        if not leaves:
            raise ArgumentError(f"{self.what}: no argument is an array.")
        if texts := [x for x in leaves if isinstance(x, (str, bytes))]:
            raise ArgumentError(
                f"{self.what}: arguments are trees of arrays and numbers, got {texts[0]!r:.60}.\n"
                "  Bind settings first: functools.partial(f, mode=...)."
            )
        xs = [as_value(self.number(x) if type(x) in (bool, int, float) else x) for x in leaves]
        if structure not in self.known:
            self.known[structure] = ForeignOp(self.make(structure), self.effects)
        op = self.known[structure]
        found = op.call(xs)
        return unflatten(op.function.structure, found)


@attach_maker.register(TreeOp)
def _remember_maker(made: TreeOp, maker_call: MakerCall) -> TreeOp:
    made.maker_call = maker_call
    return made
