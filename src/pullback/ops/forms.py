"""Forms: how ops that are not elementwise become loops. Each is stated in the op's record and read by the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..arrays.spec import Spec


class Attend(NamedTuple):
    """Attention (static `scale`, `is_causal`) by a routine that a target may have: "attend" of queries, keys and
    values, or "attend_back" of the cotangent and these.
    """

    routine: str


class Recompute:
    """The argument itself, at the start of a recomputation: nothing is shared with what was computed before."""

    __slots__ = ()


class Cast(NamedTuple):
    """Each element converted to the dtype of the result; without `rounds`, as the result of any other op is: rounded
    where it is stored, not where a kernel goes on with it.
    """

    rounds: bool = True


class Reduce(NamedTuple):
    """Axes (static `axis`, `keepdims`) reduced by a word of the scalar vocabulary, starting from its identity."""

    word: str


class Check:
    """The first argument itself, or an error, which the op decides where the second argument has a flag set."""

    __slots__ = ()


class Contract(NamedTuple):
    """A sum of products: `equation(specs, static)` returns the labels of the arguments and of the result."""

    equation: Callable[[Sequence[Spec], dict[str, Any]], tuple[tuple[str, ...], str]]


class Convolve(NamedTuple):
    """A convolution or one of its transposes, in the statics of `ops.window.convolution`: one of "x", "w" and "y"."""

    result: str


class Expand(NamedTuple):
    """Other ops: `function(*args, **static)` computes the same with them, or returns None where it cannot, or where
    NumPy does it better; `anywhere` is for those without NumPy (`exchange`), and always computes it.
    """

    function: Callable[..., Any]
    anywhere: Callable[..., Any] | None = None


def elsewhere(function: Callable[..., Any]) -> Expand:
    """What an op that a library computes here is made of where there is no such library."""
    return Expand(lambda *xs, **static: None, function)


class Flow(NamedTuple):
    """Programs run repeatedly, or one of several: `kind` is "iterate", "repeat" or "branch"."""

    kind: str


class Fourier(NamedTuple):
    """A discrete Fourier transform in the statics of `ops.fft`: `kind` is "fft", "rfft" or "irfft"."""

    kind: str


class Gather:
    """The first argument at the static `index`, in which the other arguments are slots."""

    __slots__ = ()


class Join:
    """The arguments side by side along the static `axis`."""

    __slots__ = ()


class Matrix(NamedTuple):
    """A routine on each matrix of a stack, by a name under which a target may have it; about `weight` multiplications
    for each element of the first argument and column of the result. `overwrites`: it works in place of its last
    argument, so that the result should lie in memory as that does. `fits`: where there is no solution, or are many, the
    result is the shortest of the best ones.
    """

    routine: str
    weight: float = 1.0
    overwrites: bool = False
    fits: bool = False


class Name:
    """The argument itself, from now on known under the static `name`."""

    __slots__ = ()


class Running(NamedTuple):
    """Along the static `axis`, each element with all before it: "add" or "multiply" them, or of arguments a and b the
    "recurrence" `y[i] = a[i] y[i-1] + b[i]`; or all with each other: the positions that "sort" them, equal ones in
    order, `descending` or not.
    """

    word: str


class ScatterAdd:
    """Zeros with the first argument added at the static `index`, in which the other arguments are slots."""

    __slots__ = ()


class ScatterExtreme:
    """The first argument with each element the greatest (static `least`: the least) of itself and those of the second
    that are sent to it by the static `index`, in which the others are slots.
    """

    __slots__ = ()


class View(NamedTuple):
    """A view of the argument's memory, by a NumPy function, where the op's value may be a copy."""

    function: Callable[..., Any]


class Window(NamedTuple):
    """Windows of a grid, element by element, in the statics of `ops.window.pooling`: "index", "take", "put", "sum" or
    "spread".
    """

    kind: str


class Write:
    """The first argument with the second written at the static `index`, in which the others are slots."""

    __slots__ = ()
