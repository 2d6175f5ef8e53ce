"""`Tensor.backward` and `gradients`: outputs and seeds in, gradients out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ..arrays.backends import array_class_of_gpus, as_array, namespace_on
from ..arrays.call_site import propagate_call_site, user_line
from ..arrays.node import DifferentiatedCall, Hooks, Node, PlannedCall
from ..arrays.spec import Spec, ones, spec_of, zeros
from ..arrays.tensor import Tensor, wrap
from ..arrays.timing import BACKWARD, PULL, clock
from ..arrays.value import Value
from ..errors import ArgumentError, DeviceError, DtypeError, GraphError, ShapeError
from ..ops.elementwise import pointwise
from ..ops.shape.reshaping import astype
from ..settings import PLAIN, Modes, installed, modes, modes_below_timer, override_modes
from .cotangents import GradientDelivery, strip_mask
from .hooks import run_failure_hooks
from .row_sparse import RowSparse
from .sweep import Sweep, is_in_running_call, locate_error

_gradient_lock = threading.Lock()
_ndarray = np.ndarray


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

    The seed is the cotangent to start from: ones for a single element, else it must be given. Saved values
    are released during the pass, unless `retain_graph`; with `create_graph` the gradients can be differentiated
    again. Independent branches run on up to `workers` threads, with the same bits as on one. If anything
    raises, every `.grad` is as it was before.

    >>> import pullback as pb
    >>> x = pb.tensor([1.0, 2.0], requires_grad=True)
    >>> pb.sum(x * x * x).backward()
    >>> x.grad.tolist()
    [3.0, 12.0]
    """
    if seed is None and inputs is None and not create_graph and workers == 1 and _deliver_directly(self, retain_graph):
        return
    # inside a function that `grad` runs, the caller will differentiate what this pass computes
    create_graph = create_graph or is_in_running_call([_root_node(self)])
    start = check_seed(self, seed, create_graph)
    # an input that is given twice receives its gradient once
    only = None if inputs is None else list(dict.fromkeys(_input_tensors(inputs)))
    targets = None if only is None else frozenset(_require_node(t, i) for i, t in enumerate(only))
    log = _GradientLog(only, create_graph)
    try:
        sweep = Sweep(log, targets, retain=retain_graph, create_graph=create_graph, workers=workers)
        sweep.run([(_root_node(self), start)])
        log.check_all_reached(targets)
        sweep.hooks.run_end_hooks()
    except BaseException:
        log.undo()
        raise


def _deliver_directly(root: Any, retain: bool) -> bool:
    """The pass over a single node whose parents are leaves, such as that of a compiled loss, where nothing looks at it:
    its gradient becomes the leaves' own. False where only a sweep is right; nothing has happened then.
    """
    node = root.node if type(root) is Tensor else None
    if node is None or node.order != 1 or type(node.call) is not PlannedCall or node.call.gradient is None:
        return False
    parents = node.parents
    if DifferentiatedCall.is_any_running() or node.kept is None:
        return False
    if (mode := modes()) is not PLAIN and modes_below_timer(mode) is not PLAIN:
        if mode.autocast is None:
            return False
        with override_modes(autocast=None):  # a derivative has the dtypes of its op, whatever is cast here
            return _deliver_directly(root, retain)
    # an argument that was passed twice gets the sum of its shares, before what it has already is added
    if len(set(parents)) < len(parents) or (Hooks.exist and any(parent.hooks is not None for parent in parents)):
        return False
    try:
        gradient = node.call.gradient
        found = gradient(node.kept) if mode is PLAIN else _time_gradient(node, gradient, mode)
    except Exception as error:
        raise locate_error(error, node)  # noqa: B904 - it is the same error
    if found is None:
        return False
    _store_gradients(parents, found)
    if not retain:
        node.kept = None
    return True


def _time_gradient(node: Any, gradient: Callable[[Any], Any], mode: Modes) -> Any:
    """The gradient of a node, and an event about it, which is the whole pass."""
    start = clock()
    found = gradient(node.kept)
    end = clock()
    if found is not None:
        code, lasti = user_line(sys._getframe(2))
        made, thread, write = id(node), get_ident(), mode.instruments.timer.write  # type: ignore[union-attr]
        write((PULL, node.rule, start, end, node.code, node.lasti, node.call.specs, made, thread))
        write((BACKWARD, "backward", start, clock(), code, lasti, 0, 0, thread))
    return found


def _store_gradients(leaves: Sequence[Node], found: Sequence[Tensor]) -> None:
    """leaf.grad += gradient for each, in memory of its own, or for none of them."""
    first: list[Tensor] = []
    more: list[tuple[Tensor, Tensor | None]] = []
    with _gradient_lock:
        try:
            for leaf, gradient in zip(leaves, found, strict=True):
                tensor = leaf.kept()
                if tensor is not None:
                    old = getattr(tensor, "_grad", None)
                    if old is None:
                        first.append(tensor)
                        tensor._grad = gradient
                    else:
                        more.append((tensor, old))
                        tensor._grad = gradient
            if more:
                _add_old_gradients(more)
        except BaseException:
            _restore([*more, *((tensor, None) for tensor in first)])
            raise


def _add_old_gradients(before: Sequence[tuple[Tensor, Any]]) -> None:
    """tensor.grad += old for each."""
    with np.errstate(all="ignore"):
        for tensor, old in before:
            new: Any = tensor._grad
            total = pointwise.add(_as_dense(old).value, new.value)
            tensor._grad = wrap(total, new.spec if type(total) is _ndarray else spec_of(total))


def _as_dense(gradient: Any) -> Any:
    """What is in `.grad` as a tensor."""
    return wrap(gradient.todense(), gradient.spec) if type(gradient) is RowSparse else gradient


def _restore(before: Sequence[tuple[Tensor, Tensor | None]]) -> None:
    """Give tensors the gradients that they had."""
    # the oldest entry of a tensor is written last
    for tensor, old in reversed(before):
        tensor._grad = old


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
    roots = _as_list(outputs, "outputs")
    wanted = _input_tensors(inputs)
    given = [None] * len(roots) if seeds is None else _as_list(seeds, "seeds")
    if len(given) != len(roots):
        raise ArgumentError(f"gradients: got {len(given)} seeds for {len(roots)} outputs.")
    create_graph = create_graph or is_in_running_call([_root_node(t) for t in roots])
    starts = [(_root_node(t), check_seed(t, s, create_graph)) for t, s in zip(roots, given, strict=True)]
    found = _Collector(wanted)
    # the gradients refer to what the graph saved
    retain = create_graph if retain_graph is None else retain_graph
    Sweep(found, found.targets, retain=retain, create_graph=create_graph, workers=workers).run(starts)
    return found.gradients(allow_unused)


def gradients_of_call(output: Tensor, inputs: list[Tensor], retain: bool) -> tuple[tuple[Tensor | None, ...], bool]:
    """The gradients of one real number with respect to the variables of a call that is over, and whether they can be
    differentiated again: only if other leaves took part. The saved values are released otherwise.
    """
    found = _Collector(inputs)
    has_graph = Sweep(found, found.targets, retain=retain).run([(_root_node(output), ones(output.spec))])
    return found.gradients(True), has_graph


class _Collector:
    """Collects the gradients of some inputs; no `.grad` is touched."""

    __slots__ = ("_found", "_inputs", "_nodes", "targets")

    def __init__(self, inputs: list[Tensor]) -> None:
        self._inputs, self._nodes = inputs, [_require_node(t, i) for i, t in enumerate(inputs)]
        self.targets = frozenset(self._nodes)
        self._found: dict[Node, Any] = {}

    def receive(self, node: Node, bar: Any) -> Sequence[Tensor]:
        self._found[node] = bar
        return ()

    def retain(self, tensor: Tensor, bar: Any) -> None:
        """`gradients` writes no `.grad`, retained or not."""

    def gradients(self, allow_unused: bool) -> tuple[Tensor | None, ...]:
        """The gradient of each input; None, or an error, for one that was not reached."""
        delivery = GradientDelivery()
        return tuple(
            self._gradient(i, t, n, allow_unused, delivery)
            for i, (t, n) in enumerate(zip(self._inputs, self._nodes, strict=True))
        )

    def _gradient(self, i: int, tensor: Tensor, node: Node, allow_unused: bool, delivery: GradientDelivery) -> Any:
        if node not in self._found:
            if allow_unused:
                return None
            raise _unused_input_error(node, i, "Pass allow_unused=True to get None for it.")
        bar = self._found[node]
        bar = delivery.owned_copy(zeros(tensor.spec) if bar is None else bar)
        return bar if isinstance(bar, Tensor) else wrap(bar, spec_of(bar))


class _GradientLog:
    """Writes gradients to tensors and saves the old ones, so that a failed backward restores them."""

    __slots__ = ("_announce", "_before", "_create_graph", "_delivery", "_on_gpu", "_only", "_seen")

    def __init__(self, only: list[Tensor] | None, create_graph: bool) -> None:
        self._before: list[tuple[Tensor, Tensor | None]] = []
        self._announce = installed().writes_gradient
        self._delivery = GradientDelivery()
        self._on_gpu = array_class_of_gpus()
        self._create_graph = create_graph
        self._only = only
        self._seen: set[Node] = set()

    def receive(self, node: Node, bar: Any) -> list[Tensor]:
        """The gradient of a leaf or of a requested input is complete; returns the tensors that received it."""
        if self._only is None:
            leaf = node.kept()
            tensors = [] if leaf is None else [leaf]
        else:
            self._seen.add(node)
            tensors = [t for t in self._only if t.node is node]
        for tensor in tensors:
            self.retain(tensor, zeros(tensor.spec) if bar is None else bar)
        return tensors

    def retain(self, tensor: Tensor, bar: Any) -> None:
        """tensor.grad += bar, in owned memory."""
        # two passes may add to one tensor
        with _gradient_lock:
            old: Any = tensor.grad
            self._announce(tensor)
            self._before.append((tensor, old))
            if type(bar) is RowSparse and not self._create_graph and (old is None or type(old) is RowSparse):
                own = RowSparse(bar.rows, self._delivery.owned_copy(bar.values), bar.spec)
                tensor._grad = own if old is None else old.add_rows(own)  # type: ignore[assignment]
                return
            old = _as_dense(old)
            total = bar if old is None else pointwise.add(old if self._create_graph else old.value, strip_mask(bar))
            total = self._delivery.owned_copy(total)
            spec = tensor.spec
            # a cotangent has the spec of its value
            if spec.plain is not None if type(total) is _ndarray else self._is_plain_on_gpu(total, spec):
                tensor._grad = wrap(total, spec)
            else:
                tensor._grad = total if isinstance(total, Tensor) else wrap(total, spec_of(total))
            if self._create_graph:
                propagate_call_site(tensor._grad.node, user_line(sys._getframe(1)))

    def _is_plain_on_gpu(self, total: Any, spec: Spec) -> bool:
        return type(total) is self._on_gpu and spec.number > 0 and not spec.half

    def check_all_reached(self, targets: frozenset[Node] | None) -> None:
        """Raise for requested inputs that the pass did not reach, instead of a silent None."""
        for i, tensor in enumerate(self._only or ()):
            if tensor.node in (targets or frozenset()) - self._seen:
                raise _unused_input_error(_require_node(tensor, i), i)

    def undo(self) -> None:
        _restore(self._before)
        if Hooks.exist:
            run_failure_hooks([tensor.node for tensor, _ in self._before])


def _as_list(given: Any, what: str) -> list[Any]:
    if isinstance(given, (list, tuple)):
        if not given:
            raise ArgumentError(f"gradients: {what} is empty.")
        return list(given)
    return [given]


def _input_tensors(inputs: Any) -> list[Tensor]:
    found = _as_list(inputs, "inputs")
    for i, tensor in enumerate(found):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"input {i} is a {type(tensor).__name__}, wanted a tensor.")
    return found


def _require_node(tensor: Tensor, i: int) -> Node:
    if tensor.node is None:
        raise GraphError(f"input {i} ({tensor.spec}) does not require a gradient.\n  Make it with requires_grad=True.")
    return tensor.node


def _root_node(tensor: Any) -> Node:
    _require_tensor(tensor)
    node: Node | None = tensor.node
    if node is None:
        raise GraphError(
            "backward: this tensor does not require a gradient: nothing it was computed from does.\n"
            "  Make an input with requires_grad=True, and check for no_grad and detach on the way."
        )
    return node


def _require_tensor(x: Any) -> None:
    """Raise: only tensors have a tape. A value of a transform raises its own message."""
    if isinstance(x, Tensor):
        return
    if isinstance(x, Value):
        x.backward()
    raise ArgumentError(f"backward: wants a tensor, got {type(x).__name__}.")


def check_seed(tensor: Any, seed: Any, create_graph: bool) -> Any:
    """The cotangent to start from, in owned memory."""
    _require_tensor(tensor)
    spec = tensor.spec
    if seed is None:
        return _default_seed(tensor, create_graph)
    # a pass without a graph computes one level below the tape
    if isinstance(seed, Tensor) and not create_graph and seed.level == tensor.level:
        value = seed.value
    else:
        value = seed if isinstance(seed, Value) else as_array(seed)
    found = spec_of(value)
    if found.shape != spec.shape:
        raise ShapeError(
            f"backward: seed has shape {found.shape}, the output has shape {spec.shape}.\n{_describe_origin(tensor)}"
            f"  Pass a seed of shape {spec.shape}, or reduce the output to a scalar first."
        )
    if found.device != spec.device and found.weak is None:
        raise DeviceError(
            f"backward: the seed is on {found.device}, the output on {spec.device}.\n{_describe_origin(tensor)}"
        )
    if found.weak is None and not _is_valid_seed(found, spec):
        raise DtypeError(
            f"backward: seed is {found.dtype}, the output is {spec.dtype}.\n{_describe_origin(tensor)}  Convert."
        )
    if isinstance(value, Value):
        return pointwise.positive(astype(value, spec.dtype))  # an owned copy
    return namespace_on(spec.device).array(value, dtype=spec.dtype)


def _describe_origin(tensor: Tensor) -> str:
    return f"  output made at {tensor.node.where()}\n" if tensor.node is not None else ""


def _is_valid_seed(seed: Spec, output: Spec) -> bool:
    """Of the same kind, real or complex floating-point; a real seed may start a complex output."""
    return seed.inexact and (seed.dtype.kind != "c" or output.dtype.kind == "c")


def _default_seed(tensor: Tensor, create_graph: bool) -> Any:
    spec = tensor.spec
    node = _root_node(tensor)
    if spec.shape and spec.size != 1:
        raise ShapeError(
            f"backward: the output has shape {spec.shape}; only a single element has a default seed.\n"
            f"  output made at {node.where()}\n"
            f"  Pass a seed of shape {spec.shape}, or reduce the output to a scalar first."
        )
    if spec.dtype.kind == "c":
        raise DtypeError(
            f"backward: the output is {spec.dtype}; only a real one has a default seed.\n"
            f"  output made at {node.where()}\n"
            "  Differentiate a real number of it, such as pb.real(out), or pass a seed: backward(1 + 0j)."
        )
    if create_graph and tensor.level == 1:
        return wrap(ones(spec), spec)
    return np.array(1, spec.dtype) if spec.plain is not None and not spec.shape else ones(spec)


def _unused_input_error(node: Node, i: int, advice: str = "Leave it out of inputs.") -> GraphError:
    return GraphError(
        f"input {i} ({node.spec}) was not used: no path leads from the outputs to it.\n"
        f"  input made at {node.where()}\n  {advice}"
    )


Tensor.backward = backward  # type: ignore[method-assign]
