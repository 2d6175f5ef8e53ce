"""`Step`: when the parts of a training step are done on one rank, and `record_step`, which times them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from ..arrays.argument_checks import check_count, check_functions, check_number
from ..arrays.backends import namespace_of
from ..arrays.tensor import Tensor
from ..arrays.text import format_bytes, format_seconds
from ..arrays.trees import flatten, leaf_paths
from ..errors import ArgumentError
from ..ops.collective.checks import check_finite

_Clock = Callable[[], float]


@final
@dataclass(frozen=True, slots=True)
class GradientTime:
    """A gradient: its bytes, and how many seconds after the backward pass began it is complete.

    >>> import pullback as pb
    >>> pb.distributed.GradientTime("weight", bytes=4096, ready=0.002)
    GradientTime(name='weight', bytes=4096, ready=0.002)
    """

    name: str
    bytes: int
    ready: float

    def __post_init__(self) -> None:
        check_count(self.bytes, "GradientTime: bytes", 0)
        check_number("GradientTime: ready", self.ready, least=0.0)


@final
@dataclass(frozen=True, slots=True)
class Step:
    """The seconds of a training step on one rank, before anything is sent: forward pass, backward pass, update, and
    when each gradient is complete. `check` are the seconds it takes to see that all summed gradients are finite.

    `record_step` measures one; of a compiled step, whose gradients are complete together, it is written by hand.

    >>> import pullback as pb
    >>> from pullback.distributed import GradientTime, Step
    >>> Step(forward=0.0, backward=0.020, gradients=(GradientTime("all", 12 << 20, ready=0.020),))
    <step of 20 ms: forward 0 ns, backward 20 ms, update 0 ns; 1 gradients of 12.0 MiB>
    """

    forward: float
    backward: float
    update: float = 0.0
    gradients: tuple[GradientTime, ...] = ()
    check: float = 0.0

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "update", "check"):
            check_number(f"Step: {name}", getattr(self, name), least=0.0)
        if late := next((g for g in self.gradients if g.ready > self.backward), None):
            raise ArgumentError(
                f"Step: the gradient {late.name!r} is complete after {late.ready:g} s, and the backward pass takes "
                f"{self.backward:g} s."
            )

    @property
    def compute(self) -> float:
        """The seconds of the step on a rank that is alone."""
        return self.forward + self.backward + self.update

    @property
    def bytes(self) -> int:
        """The bytes of all gradients."""
        return sum(g.bytes for g in self.gradients)

    def __repr__(self) -> str:
        parts = (self.compute, self.forward, self.backward, self.update)
        whole, forward, backward, update = map(format_seconds, parts)
        return (
            f"<step of {whole}: forward {forward}, backward {backward}, update {update}; "
            f"{len(self.gradients)} gradients of {format_bytes(self.bytes)}>"
        )


def record_step(
    params: Any, loss: Callable[[], Tensor], update: Callable[[], Any] | None = None, *, repeats: int = 10
) -> Step:
    """Time training steps on this rank and return the fastest: `loss()` runs the forward pass, its `backward()` is
    called, then `update()`. `params` is a tree of tensors, such as a module. One more step comes before those that
    count. Gradients are as they were before; parameters are as `update` leaves them.

    Ranks that share a machine slow each other down: for a step as it is there, call it on all of them at once, inside
    `with ddp.no_sync()` if there is a `DistributedGradient`. It measures when NumPy is done; CuPy's arrays are not
    waited for.

    >>> import numpy as np, pullback as pb
    >>> w = pb.tensor(np.ones((64, 64)), requires_grad=True)
    >>> step = pb.distributed.record_step([w], lambda: pb.sum(pb.tanh(w @ w)))
    >>> [g.name for g in step.gradients], step.bytes
    (['params[0]'], 32768)
    """
    check_functions("record_step", loss, *([] if update is None else [update]))
    check_count(repeats, "record_step: repeats")
    leaves, structure = flatten(params)
    pairs = zip(leaf_paths(structure), leaves, strict=True)
    found = {f"params{path}": p for path, p in pairs if isinstance(p, Tensor) and p.requires_grad and p.is_leaf}
    if not found:
        raise ArgumentError("record_step: none of the parameters requires a gradient.")
    held = [p.grad for p in found.values()]
    watch = _Watch(found)
    try:
        steps = [_time_step(watch, loss, update, time.perf_counter) for _ in range(repeats + 1)]
    finally:
        watch.remove()
        for p, grad in zip(found.values(), held, strict=True):
            p.grad = grad
    return min(steps[1:], key=lambda step: step.compute)


class _Watch:
    """Hooks that note when gradients are complete."""

    def __init__(self, params: dict[str, Tensor]) -> None:
        self.params = params
        self.clock: _Clock = time.perf_counter
        self.done: list[tuple[str, float]] = []
        self._handles = [p.register_post_accumulate_grad_hook(self._hook(name)) for name, p in params.items()]

    def _hook(self, name: str) -> Callable[[Tensor], None]:
        return lambda p: self.done.append((name, self.clock()))

    def clear(self) -> None:
        self.done = []
        for p in self.params.values():
            p.grad = None

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def _time_step(watch: _Watch, loss: Callable[[], Tensor], update: Callable[[], Any] | None, clock: _Clock) -> Step:
    watch.clear()
    watch.clock = clock
    start = clock()
    value = loss()
    between = clock()
    value.backward()
    end = clock()
    if update is not None:
        update()
    updated = clock() if update is not None else end
    gradients = tuple(GradientTime(name, watch.params[name].spec.nbytes, at - between) for name, at in watch.done)
    return Step(between - start, end - between, updated - end, gradients, _time_check(watch, clock))


def _time_check(watch: _Watch, clock: _Clock) -> float:
    """The seconds of the check that sums are finite, which one rank alone does not make."""
    found = [watch.params[name].grad for name, _ in watch.done]
    arrays = [grad.value for grad in found if grad is not None]
    start = clock()
    if arrays:
        check_finite(namespace_of(arrays[:1]), [""] * len(arrays), arrays, arrays, lambda flags: flags)
    return clock() - start
