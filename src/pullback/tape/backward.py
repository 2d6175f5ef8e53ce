"""Output and seed in, gradients out: the public ways of asking the tape for derivatives."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from ..arrays.backends import as_array, namespace_on
from ..arrays.node import Node, sign_back, user_line
from ..arrays.spec import Spec, ones, spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import ArgumentError, DeviceError, DtypeError, GraphError, ShapeError
from ..ops import elementwise as pointwise
from ..ops.shaping import astype
from ..settings import modes, switched
from .cotangents import Delivery, plain_bar
from .parallel import run_threads
from .sweep import Sweep, in_running_call

__all__ = ["backward", "gradients"]

_writing_gradients = threading.Lock()


def backward(
    self: Tensor,
    seed: Any = None,
    *,
    inputs: Any = None,
    retain_graph: bool = False,
    create_graph: bool = False,
    workers: int = 1,
) -> None:
    """Add the gradient of this tensor to the `.grad` of every leaf it was computed from, or of `inputs` only.

    The seed is the cotangent to start from: ones for a single element, else it must be given. What the graph
    kept is released on the way, unless `retain_graph`; with `create_graph` the gradients can be differentiated
    again. Independent branches run on up to `workers` threads, with the same bits as on one. If anything
    raises, every `.grad` is as it was before.

    >>> import pullback as pb
    >>> x = pb.tensor([1.0, 2.0], requires_grad=True)
    >>> pb.sum(x * x * x).backward()
    >>> x.grad.tolist()
    [3.0, 12.0]
    """
    create_graph = create_graph or in_running_call([_root(self)])
    start = checked_seed(self, seed, create_graph)
    only = None if inputs is None else list(dict.fromkeys(_input_tensors(inputs)))
    log = _Log(only, create_graph)
    targets = None if only is None else frozenset(_tracked(t, i) for i, t in enumerate(only))
    try:
        sweep([(_root(self), start)], targets, log.take, log.add, retain_graph, create_graph, workers)
        log.settle(targets)
    except BaseException:
        log.undo()
        raise


def gradients(
    outputs: Any,
    inputs: Any,
    seeds: Any = None,
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
    allow_unused: bool = False,
    workers: int = 1,
) -> tuple[Tensor | None, ...]:
    """The gradients of one or more outputs with respect to one or more inputs, as a tuple; no `.grad` is touched.

    >>> import pullback as pb
    >>> x = pb.tensor(2.0, requires_grad=True)
    >>> (first,) = pb.gradients(x**3, x, create_graph=True)
    >>> (second,) = pb.gradients(first, x)
    >>> first.item(), second.item()
    (12.0, 12.0)
    """
    roots = _sequence(outputs, "outputs")
    wanted = _input_tensors(inputs)
    given = [None] * len(roots) if seeds is None else _sequence(seeds, "seeds")
    if len(given) != len(roots):
        raise ArgumentError(f"gradients: got {len(given)} seeds for {len(roots)} outputs.")
    create_graph = create_graph or in_running_call([_root(t) for t in roots])
    starts = [(_root(t), checked_seed(t, s, create_graph)) for t, s in zip(roots, given, strict=True)]
    nodes = [_tracked(t, i) for i, t in enumerate(wanted)]
    found: dict[Node, Any] = {}
    retain = create_graph if retain_graph is None else retain_graph
    sweep(starts, frozenset(nodes), found.__setitem__, _leave_alone, retain, create_graph, workers)
    return _answers(wanted, nodes, found, allow_unused)


def gradients_of_call(output: Tensor, inputs: list[Tensor], retain: bool) -> tuple[tuple[Tensor | None, ...], bool]:
    """The gradients of one real number with respect to the variables of a call that is over, and whether they can be
    differentiated again: only if leaves of others took part. What the graph kept is released otherwise.
    """
    nodes = [_tracked(t, i) for i, t in enumerate(inputs)]
    found: dict[Node, Any] = {}
    starts = [(_root(output), ones(output.spec))]
    linked = sweep(starts, frozenset(nodes), found.__setitem__, _leave_alone, retain, None, 1)
    return _answers(inputs, nodes, found, True), linked


def _answers(
    wanted: list[Tensor], nodes: list[Node], found: dict[Node, Any], allow_unused: bool
) -> tuple[Tensor | None, ...]:
    delivery = Delivery()
    return tuple(
        _answer(t, n, found, i, allow_unused, delivery) for i, (t, n) in enumerate(zip(wanted, nodes, strict=True))
    )


def sweep(
    starts: list[tuple[Node, Any]],
    targets: frozenset[Node] | None,
    sink: Any,
    retain_grad: Any,
    retain: bool,
    create_graph: bool | None,
    workers: int,
) -> bool:
    """Run a pass; whether it was linked, which None leaves to the pass itself."""
    if not isinstance(workers, int) or workers < 1:
        raise ArgumentError(f"workers must be a positive integer, got {workers!r}.")
    observer = modes().observer
    if observer is not None:
        observer.began()
    linked = True
    try:
        linked = _sweep(starts, targets, sink, retain_grad, retain, create_graph, workers)
    finally:
        if observer is not None:
            observer.ended(not linked and not retain)
    return linked


def _sweep(
    starts: list[tuple[Node, Any]],
    targets: frozenset[Node] | None,
    sink: Any,
    retain_grad: Any,
    retain: bool,
    create_graph: bool | None,
    workers: int,
) -> bool:
    with np.errstate(all="ignore"):  # infinities on the way back are answers; detect_anomaly is there to find them
        one_pass = Sweep(starts, targets, sink, retain_grad, retain=retain, linked=create_graph, alone=workers == 1)
        if not one_pass.linked:
            _run(one_pass, workers)
            return False
        with switched(grad=True):
            _run(one_pass, workers)
        return True


def _leave_alone(tensor: Tensor, bar: Any) -> None:
    """`gradients` touches no `.grad`, retained or not."""


def _run(one_pass: Sweep, workers: int) -> None:
    if workers == 1:
        one_pass.run(one_pass.order)
    else:
        run_threads(one_pass, workers)


class _Log:
    """Writes gradients to tensors and remembers what was there, so that a failed backward leaves no trace."""

    __slots__ = ("_before", "_delivery", "_linked", "_only", "_seen")

    def __init__(self, only: list[Tensor] | None, linked: bool) -> None:
        self._before: list[tuple[Tensor, Tensor | None]] = []
        self._delivery = Delivery()
        self._linked = linked
        self._only = only
        self._seen: set[Node] = set()

    def take(self, node: Node, bar: Any) -> list[Tensor]:
        """The gradient of a leaf, or of an input that was asked for, has arrived; answers who got it."""
        self._seen.add(node)
        tensors = self._tensors(node)
        for tensor in tensors:
            self.add(tensor, zeros(tensor.spec) if bar is None else bar)
        return tensors

    def _tensors(self, node: Node) -> list[Tensor]:
        if self._only is not None:
            return [t for t in self._only if t.node is node]
        tensor = node.kept()
        return [] if tensor is None else [tensor]

    def add(self, tensor: Tensor, bar: Any) -> None:
        """tensor.grad += bar, in memory of its own."""
        with _writing_gradients:
            old = tensor.grad
            watcher = modes().watcher
            if watcher is not None:
                watcher.grading(tensor)
            self._before.append((tensor, old))
            total = bar if old is None else pointwise.add(old if self._linked else old.value, plain_bar(bar))
            total = self._delivery.own(total)
            tensor._grad = total if isinstance(total, Tensor) else wrap(total, spec_of(total))
            if self._linked:
                sign_back(tensor._grad.node, user_line(sys._getframe(1)))

    def settle(self, targets: frozenset[Node] | None) -> None:
        """Inputs that were asked for but never reached: an error, not a silent None."""
        for i, tensor in enumerate(self._only or ()):
            if tensor.node in (targets or frozenset()) - self._seen:
                raise _unused(_tracked(tensor, i), i)

    def undo(self) -> None:
        for tensor, old in reversed(self._before):
            tensor._grad = old


def _sequence(given: Any, what: str) -> list[Any]:
    if isinstance(given, (list, tuple)):
        if not given:
            raise ArgumentError(f"gradients: {what} is empty.")
        return list(given)
    return [given]


def _input_tensors(inputs: Any) -> list[Tensor]:
    found = _sequence(inputs, "inputs")
    for i, tensor in enumerate(found):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"input {i} is a {type(tensor).__name__}, wanted a tensor.")
    return found


def _tracked(tensor: Tensor, i: int) -> Node:
    if tensor.node is None:
        raise GraphError(f"input {i} ({tensor.spec}) does not require a gradient.\n  Make it with requires_grad=True.")
    return tensor.node


def _root(tensor: Any) -> Node:
    _refuse_others(tensor)
    node: Node | None = tensor.node
    if node is None:
        raise GraphError(
            "backward: this tensor does not require a gradient: nothing it was computed from does.\n"
            "  Make an input with requires_grad=True, and check for no_grad and detach on the way."
        )
    return node


def _refuse_others(x: Any) -> None:
    """Only tensors have a tape; a value of a transform says so in its own words."""
    if isinstance(x, Tensor):
        return
    if isinstance(x, Value):
        x.backward()
    raise ArgumentError(f"backward: wants a tensor, got {type(x).__name__}.")


def checked_seed(tensor: Any, seed: Any, linked: bool) -> Any:
    """The cotangent to start from, in memory of its own."""
    _refuse_others(tensor)
    spec = tensor.spec
    if seed is None:
        return _implicit_seed(tensor, linked)
    if isinstance(seed, Tensor) and not linked and seed.level == tensor.level:
        value = seed.value
    else:
        value = seed if isinstance(seed, Value) else as_array(seed)
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(
            f"backward: seed has shape {found.shape}, the output has shape {spec.shape}.\n{_made_at(tensor)}"
            f"  Pass a seed of shape {spec.shape}, or reduce the output to a scalar first."
        )
    if found.device != spec.device and found.weak is None:
        raise DeviceError(f"backward: the seed is on {found.device}, the output on {spec.device}.\n{_made_at(tensor)}")
    if found.weak is None and not _may_seed(found, spec):
        raise DtypeError(f"backward: seed is {found.dtype}, the output is {spec.dtype}.\n{_made_at(tensor)}  Convert.")
    if isinstance(value, Value):
        return pointwise.positive(astype(value, spec.dtype))  # in memory of its own
    return namespace_on(spec.device).array(value, dtype=spec.dtype)


def _made_at(tensor: Tensor) -> str:
    return f"  output made at {tensor.node.where()}\n" if tensor.node is not None else ""


def _may_seed(seed: Spec, output: Spec) -> bool:
    """Of the same kind, real or complex floating-point; a real seed may start a complex output."""
    return seed.inexact and (seed.dtype.kind != "c" or output.dtype.kind == "c")


def _implicit_seed(tensor: Tensor, linked: bool) -> Any:
    spec = tensor.spec
    node = _root(tensor)
    if spec.size != 1:
        raise ShapeError(
            f"backward: the output has shape {spec.shape}; only a single element has a seed of its own.\n"
            f"  output made at {node.where()}\n"
            f"  Pass a seed of shape {spec.shape}, or reduce the output to a scalar first."
        )
    if spec.dtype.kind == "c":
        raise DtypeError(
            f"backward: the output is {spec.dtype}; only a real one has a seed of its own.\n  Pass a seed."
        )
    return wrap(ones(spec), spec) if linked and tensor.level == 1 else ones(spec)


def _answer(
    tensor: Tensor, node: Node, found: dict[Node, Any], i: int, allow_unused: bool, delivery: Delivery
) -> Tensor | None:
    if node not in found:
        if allow_unused:
            return None
        raise _unused(node, i, "Pass allow_unused=True to get None for it.")
    bar = found[node]
    bar = delivery.own(zeros(tensor.spec) if bar is None else bar)
    return bar if isinstance(bar, Tensor) else wrap(bar, spec_of(bar))


def _unused(node: Node, i: int, advice: str = "Leave it out of inputs.") -> GraphError:
    return GraphError(
        f"input {i} ({node.spec}) was not used: no path leads from the outputs to it.\n"
        f"  input made at {node.where()}\n  {advice}"
    )


Tensor.backward = backward  # type: ignore[method-assign]
