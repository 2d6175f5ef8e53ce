"""`predict`: the peak memory of a function and its backward pass, without computing anything.

The function and its backward pass run as they are, by the real tape and the real rules, but on sized values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.html_text import html_report
from ...arrays.memory_ledger import Ledger, owner_of
from ...arrays.node import leaf_node
from ...arrays.scope import Scope
from ...arrays.spec import Spec, spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.text import format_bytes
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError
from ...ops.op import Op
from ...ops.user_calls import call_function
from ...settings import enable_grad
from ...tape.backward import gradients
from ...tape.cotangents import arrays_in
from ...tape.sweep import leaves_of, order_deepest_first
from ...transforms.sized_values import Allocation, SizedValue, SizeLedger

#: Elements up to which an op is tried on bytes to see whether it returns a view.
_LARGEST_TRIAL = 1 << 24


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes of arrays alive at once: at most (`peak`), in each pass, of the arguments, and between the two passes."""

    peak: int
    forward: int
    backward: int
    arguments: int
    kept: int

    def __str__(self) -> str:
        return (
            f"peak {format_bytes(self.peak)} "
            f"(forward {format_bytes(self.forward)}, backward {format_bytes(self.backward)}); "
            f"arguments {format_bytes(self.arguments)}, kept in between {format_bytes(self.kept)}"
        )

    def _repr_html_(self) -> str:
        return html_report(str(self))


class _ByteCounter(SizeLedger):
    """The live bytes of sized values and arrays, and their peak."""

    def __init__(self) -> None:
        self._sized_bytes = 0
        self._arrays = Ledger()
        self.peak = 0
        self.captured: dict[int, Tensor] = {}

    def add(self, nbytes: int) -> None:
        self._sized_bytes += nbytes
        self.peak = max(self.peak, self.live())

    def live(self) -> int:
        return self._sized_bytes + self._arrays.remove_freed()

    def shared_memory(self, op: Op, args: Sequence[Any], static: dict[str, Any], out: Spec) -> Allocation | None:
        for x in args:
            if type(x) is not SizedValue:
                self._track_concrete(x)
        return args[0].allocation if _is_view(op, args, static, out) else None

    def record(self, op: Op, args: Sequence[Any], results: tuple[SizedValue, ...]) -> None:
        """Only bytes are counted."""

    def _track_concrete(self, x: Any) -> None:
        """A concrete array, or a tensor over one."""
        for array in arrays_in(x):
            self._arrays.track(array)
        if type(x) is Tensor and x.node is not None:
            leaves = (node.kept() for node in leaves_of(order_deepest_first([x.node])))
            self.captured |= {id(t): t for t in leaves if t is not None}


def _is_view(op: Op, args: Sequence[Any], static: dict[str, Any], out: Spec) -> bool:
    """Whether an op returns a view of its one argument. It is tried on an array with zero strides, so that views cost
    nothing; one that might copy too much counts as a view if it has the same elements, or repeats them.
    """
    if op.family != "linear" or len(args) != 1 or not op.effects.repeat:
        return False
    spec = spec_of(args[0])
    if max(out.size, spec.size) > _LARGEST_TRIAL:
        pairs = zip(reversed(spec.shape), reversed(out.shape), strict=False)
        stretched = out.size > spec.size and out.ndim >= spec.ndim and all(a in (1, b) for a, b in pairs)
        return op.rearranges and (out.size == spec.size or stretched)
    stand_in = np.broadcast_to(np.zeros((), bool), spec.shape)
    try:
        found = op.value(np, stand_in, **static)
    except (TypeError, ValueError):
        return False
    first = found[0] if type(found) is tuple else found
    return is_array(first) and owner_of(first) is owner_of(stand_in)


def predict(
    f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] | None = None, parameters: Sequence[Tensor] = ()
) -> Prediction:
    """The peak of live bytes when f and its backward pass run on arguments (arrays, specs or trees of them),
    without computing anything. `argnums` are those differentiated, by default all that can be; tensors
    that f closes over are found, or given as `parameters` if f has no other arguments.

    >>> import numpy as np, pullback as pb
    >>> def f(x):
    ...     for _ in range(10):
    ...         x = pb.sin(x)
    ...     return pb.sum(x)
    >>> found = pb.memory.predict(f, pb.spec_of(np.zeros(1000)))
    >>> found.arguments, found.kept
    (8000, 72008)
    """
    if not args and not parameters:
        raise ArgumentError("memory.predict: f has neither arguments nor parameters.\n  Pass specs or arrays.")
    chosen = range(len(args)) if argnums is None else {argnums} if isinstance(argnums, int) else set(argnums)
    known = {id(t): t for t in parameters}
    while True:
        found, captured = _simulate(f, args, chosen, list(known.values()))
        if not captured.keys() - known.keys():
            return found
        known |= captured  # a tensor that f closes over has a gradient too: once more, with a sized value in its place


def _simulate(f: Callable[..., Any], args: Sequence[Any], chosen: Any, known: list[Tensor]) -> tuple[Prediction, Any]:
    counter = _ByteCounter()
    with (
        Scope("prediction", lambda scope, x: SizedValue(spec_of(x), scope, counter), lambda x: x) as scope,
        enable_grad(),
    ):
        leaves: list[Tensor] = []
        given = [_size_tree(a, i in chosen, scope, counter, leaves) for i, a in enumerate(args)]
        with _substitute_values(known, scope, counter):
            arguments = counter.live()
            outs = flatten(call_function(f, given, {}))[0]
            forward, kept = counter.peak, counter.live()
            counter.peak = 0
            _simulate_backward(
                [out for out in outs if isinstance(out, Tensor) and out.node is not None], leaves + known
            )
            backward = counter.peak
    return Prediction(max(forward, backward), forward, backward, arguments, kept - arguments), counter.captured


def _size_tree(tree: Any, tracked: bool, scope: Scope, counter: _ByteCounter, leaves: list[Tensor]) -> Any:
    """An argument with sized values for its arrays; tensors over them where they are differentiated."""
    found, structure = ([tree], None) if isinstance(tree, Spec) else flatten(tree)
    return unflatten(structure, [_size_leaf(x, tracked, scope, counter, leaves) for x in found])


def _size_leaf(x: Any, tracked: bool, scope: Scope, counter: _ByteCounter, leaves: list[Tensor]) -> Any:
    if not (isinstance(x, (Spec, Value)) or is_array(x)):
        return x
    spec = x if isinstance(x, Spec) else spec_of(x)
    sized = SizedValue(spec, scope, counter)
    tensor = wrap(sized, sized.spec)
    if tracked and spec.inexact:
        tensor.node = leaf_node(tensor)
        leaves.append(tensor)
    return tensor


@contextmanager
def _substitute_values(tensors: Sequence[Tensor], scope: Scope, counter: _ByteCounter) -> Iterator[None]:
    """Replace the tensors' values by sized ones within a block."""
    before = [(t, t.value, t.spec) for t in tensors]
    try:
        for t in tensors:
            t.value = SizedValue(t.spec, scope, counter)
            t.spec = t.value.spec
        yield
    finally:
        for t, value, spec in before:
            t.value, t.spec = value, spec


def _simulate_backward(outs: list[Tensor], leaves: list[Tensor]) -> None:
    """The backward pass; its results are freed at once."""
    wanted = [t for t in leaves if t.node is not None]
    if not outs or not wanted:
        return
    seeds = [None if out.size == 1 and out.dtype.kind != "c" else _sized_seed(out) for out in outs]
    gradients(outs, wanted, seeds, allow_unused=True)


def _sized_seed(out: Tensor) -> Any:
    sized = out.value
    return SizedValue(out.spec, sized.scope, sized.ledger) if type(sized) is SizedValue else None
