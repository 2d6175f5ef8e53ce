"""A function of trees as functions of arrays in a row, as other libraries call it: with its derivatives and batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..arrays.backends import copy_array, is_array
from ..arrays.scope import outside_transforms
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, value_of, wrap
from ..arrays.trees import flatten, unflatten
from ..compile.jit import jit
from ..compile.stage.arguments import static_key
from ..errors import ArgumentError
from ..ops.replay.reach import Reach
from ..ops.replay.streams import Streams
from ..ops.user_calls import call_function
from ..program.ir import Program
from ..settings import override_modes
from ..tape.backward import gradients
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from ..transforms.stage import stage
from ..transforms.vectorize import vmap

#: The most arrangements of arguments, settings included, whose functions are kept.
_MAX_KNOWN = 256


class ArrayFunction:
    """A function of arrays in a row, which may return a tree. `derived` has its pullbacks, pushforwards and batches,
    which are such functions too, so that there is a derivative of every order; made once, since they are compiled.
    """

    def __init__(self, function: Callable[..., Any], compiled: bool, repeats: bool = False) -> None:
        self.function: Callable[..., Any] = jit(function) if compiled else function
        self.compiled = compiled
        #: Whether it computes again what was computed for a value: a derivative of its own call.
        self.repeats = repeats
        self.derived: dict[Any, Any] = {}

    def run(self, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """The results on bare arrays, as arrays, and their structure."""
        with _on_its_own(records=False):
            leaves, structure = flatten(self._call(list(map(_as_constant, arrays))))
            return self._own_results(leaves, arrays), structure

    def record(self, arrays: Sequence[Any], wanted: Sequence[int]) -> tuple[list[Any], Any, Recording]:
        """The same, and what pulls cotangents back to the `wanted` ones; it keeps the arrays, without copies."""
        with _on_its_own():
            given = [_as_constant(x) for x in arrays]
            for i in wanted:
                given[i] = given[i].requires_grad_()
            leaves, structure = flatten(self._call(given))
            recording = Recording(leaves, [given[i] for i in wanted], self._own_results)
            return self._own_results(leaves, arrays), structure, recording

    def _call(self, given: Sequence[Any]) -> Any:
        if self.compiled or not self.repeats:  # compiled code refuses streams of random numbers itself
            return self.function(*given)
        streams = Streams(Reach((self.function,)).generators, given)
        with streams.record():
            found = self.function(*given)
        if streams.were_used:
            raise ArgumentError(
                "the function draws random numbers, and its derivative computes it again, with others.\n"
                "  Pass what is drawn as an argument, or a key: pb.random.normal(..., key=key)."
            )
        return found

    def _own_results(self, results: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Results as arrays that their new owner may write to. Those of compiled code are new, unless it says
        otherwise; what an op returns may be kept by a graph, or by what f closes over.
        """
        taken = list(given)
        for x in results:
            value = value_of(x) if isinstance(x, Tensor) else np.asarray(x) if np.isscalar(x) else x
            if not is_array(value) or value.dtype.kind in "OSUMm":
                got = f"{value.dtype}" if is_array(value) else f"a {type(x).__name__}"
                raise ArgumentError(f"the results are a tree of arrays and numbers, got {got}.")
            taken.append(value if self.compiled and _is_new(value, taken) else copy_array(value))
        return taken[len(given) :]

    def make_pullback(self, wanted: tuple[int, ...], count: int) -> ArrayFunction:
        """The cotangents of the `wanted` ones of `count` arguments, as a function of the arguments and the cotangents
        of those results that have one.
        """

        def make() -> Callable[..., Any]:
            return functools.partial(_pull, self.function, wanted, count)

        return self._derive(("pull", wanted, count), make, repeats=True)

    def make_pushforward(self, moving: tuple[int, ...], count: int) -> ArrayFunction:
        """The tangents of those results that have one, from the arguments and the tangents of the `moving` ones."""

        def make() -> Callable[..., Any]:
            return functools.partial(_push, self.function, moving, count)

        return self._derive(("push", moving, count), make, repeats=True)

    def vectorize(self, axes: tuple[int | None, ...]) -> ArrayFunction:
        """Over a batch along these axes of the arguments, and along the first axis of all results."""
        return self._derive(("batch", axes), lambda: vmap(self.function, axes), self.repeats)

    def _derive(self, key: Any, make: Callable[[], Callable[..., Any]], repeats: bool) -> ArrayFunction:
        if key not in self.derived:
            self.derived[key] = ArrayFunction(make(), self.compiled, repeats)
        found: ArrayFunction = self.derived[key]
        return found

    def stage(self, specs: tuple[Spec, ...]) -> Program:
        """The program for arguments of these specs, which tells the results' specs and structure."""
        if specs not in self.derived:
            self.derived[specs] = stage(self.function)(*specs)
        found: Program = self.derived[specs]
        return found


class Recording:
    """A call on the tape: its results and variables."""

    def __init__(
        self, results: list[Any], variables: list[Tensor], own: Callable[[Sequence[Any], Sequence[Any]], list[Any]]
    ) -> None:
        self.own = own
        self.roots = [x if isinstance(x, Tensor) and x.requires_grad else None for x in results]
        self.variables = variables

    def pull(self, bars: Sequence[Any]) -> list[Any]:
        """The cotangents of the variables, None for zeros, from those of all results (None where there is none)."""
        pairs = [
            (root, bar) for root, bar in zip(self.roots, bars, strict=True) if root is not None and bar is not None
        ]
        if not pairs:
            return [None] * len(self.variables)
        roots, seeds = zip(*pairs, strict=True)
        with _on_its_own():
            found = gradients(list(roots), self.variables, list(seeds), retain_graph=True, allow_unused=True)
            made = iter(self.own([g for g in found if g is not None], [*seeds, *(x.value for x in self.variables)]))
        return [None if g is None else next(made) for g in found]


class TreeFunction:
    """A function of trees of arrays and settings: an `ArrayFunction` for each arrangement of its arguments."""

    def __init__(self, f: Callable[..., Any], compiled: bool, what: str) -> None:
        if not callable(f):
            raise ArgumentError(f"{what}: wants a function, got a {type(f).__name__}.")
        self.f, self.compiled, self.what = f, compiled, what
        self._known: dict[Any, ArrayFunction] = {}

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], is_array: Callable[[Any], bool], kind: str
    ) -> tuple[ArrayFunction, list[Any]]:
        """The function of the arrays among the leaves, and these; other leaves are settings, compared by value. `kind`
        is the name of the other library's arrays.
        """
        leaves, structure = flatten((args, kwargs))
        places = tuple(i for i, x in enumerate(leaves) if is_array(x))
        settings = [x for i, x in enumerate(leaves) if i not in places]
        if not places:
            raise ArgumentError(f"{self.what}: no argument is {kind}.")
        try:
            key = structure, places, tuple(map(static_key, settings))
            if key not in self._known:
                call = functools.partial(_call_tree, self.f, structure, places, settings)
                self._known[key] = ArrayFunction(call, self.compiled)
                if len(self._known) > _MAX_KNOWN:
                    self._known.pop(next(iter(self._known)), None)
            function = self._known[key]
        except TypeError:
            names = ", ".join(type(x).__name__ for x in settings)
            raise ArgumentError(
                f"{self.what}: arguments are trees in which each leaf is {kind} or a hashable setting, got {names}."
            ) from None
        return function, [leaves[i] for i in places]


# What is compiled is made of functions and `functools.partial`, which `jit` looks into: what f reads may change.


def _call_tree(
    f: Callable[..., Any], structure: Any, places: tuple[int, ...], settings: list[Any], *arrays: Any
) -> Any:
    """f on its arguments, put together of arrays and settings."""
    rest, known = iter(settings), dict(zip(places, arrays, strict=True))
    leaves = [known[i] if i in known else next(rest) for i in range(len(places) + len(settings))]
    args, kwargs = unflatten(structure, leaves)
    return call_function(f, args, kwargs)


def _pull(f: Callable[..., Any], wanted: tuple[int, ...], count: int, *given: Any) -> Any:
    some = functools.partial(_call_floating, f, wanted, given[:count])
    return vjp(some, *(given[i] for i in wanted))[1](tuple(given[count:]))


def _push(f: Callable[..., Any], moving: tuple[int, ...], count: int, *given: Any) -> Any:
    some = functools.partial(_call_floating, f, moving, given[:count])
    return jvp(some, tuple(given[i] for i in moving), tuple(given[count:]))[1]


def _call_floating(
    f: Callable[..., Any], places: tuple[int, ...], arguments: Sequence[Any], *moving: Any
) -> tuple[Any, ...]:
    """The floating results, as a function of the arguments at some places."""
    given = list(arguments)
    for i, x in zip(places, moving, strict=True):
        given[i] = x
    return tuple(x for x in flatten(f(*given))[0] if spec_of(x).inexact)


@contextmanager
def _on_its_own(records: bool = True) -> Iterator[None]:
    """Run as if nothing of ours were running around: what calls is the other library."""
    with outside_transforms(), override_modes(grad=records, inference=False, tracing=None, staging=None):
        yield


def _as_constant(x: Any) -> Any:
    """A tensor over an array that the caller promises not to write to while it is needed."""
    return wrap(x, spec_of(x))


def _is_new(value: Any, taken: Sequence[Any]) -> bool:
    """Whether an array is the only one with its memory, and may be written to."""
    if not isinstance(value, np.ndarray) or value.base is not None or not value.flags.writeable:
        return False
    return not any(isinstance(x, np.ndarray) and np.may_share_memory(value, x) for x in taken)
