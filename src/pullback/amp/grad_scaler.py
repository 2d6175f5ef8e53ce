"""`GradScaler`: dynamic loss scaling for `backward()` and stateful optimizers."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import check_count
from ..arrays.node import Handle
from ..arrays.spec import make_spec, spec_of
from ..arrays.tensor import Tensor, tensor, wrap
from ..arrays.trees import flatten, map_tree
from ..compile.jit import jit
from ..errors import ArgumentError, DtypeError, GraphError
from ..ops.axes import as_integer
from ..ops.concrete import is_concrete
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.placement import move
from ..ops.shape.reshaping import astype
from ..optim.leaves import all_finite
from ..optim.stateful.optimizer import Optimizer, gradient_value
from ..optim.stateful.parameter_groups import untracked_value
from ..optim.transformations.loss_scaling import (
    ScaleSettings,
    check_scale,
    divide_scale,
    initial_scale,
    multiply_scale,
)
from ..public_names import explain_missing_attributes
from ..settings import no_grad
from ..tape.backward import gradients as gradients_of


class _Visit:
    """What happened to an optimizer since the last update: its gradients were unscaled, maybe it was stepped."""

    def __init__(self, optimizer: Optimizer, finite: Any, wide: list[list[Any]] | None) -> None:
        #: Held, so that no other optimizer takes its id.
        self.optimizer = optimizer
        self.finite = finite
        #: Gradients in float32, a list for each group, where some parameters are of a half type.
        self.wide = wide
        self.stepped = False
        self._guards: list[Handle] = []
        #: The gradients as they were.
        self._scaled: list[tuple[Tensor, Any]] = []

    def assign(self, parameters: list[Tensor], gradients: list[Any]) -> None:
        """Give parameters their true gradients."""
        self._scaled = [(p, p.grad) for p in parameters]
        for p, g in zip(parameters, gradients, strict=True):
            # its spec is known: asking an array on a GPU takes microseconds
            p.grad = g if isinstance(g, Tensor) else wrap(g, make_spec(p.spec.shape, p.spec.dtype, p.spec.device))

    def restore(self) -> None:
        """Give parameters their scaled gradients back."""
        for p, g in self._scaled:
            p.grad = g

    def guard(self) -> None:
        """Let a backward pass into the true gradients raise, while the scaler lives."""
        self._scaled, myself = [], weakref.ref(self)
        self._guards = [
            p.register_post_accumulate_grad_hook(functools.partial(_refuse_mixture, myself, name))
            for name, p in named_parameters(self.optimizer)
            if p.requires_grad
        ]

    def release(self) -> None:
        for guard in self._guards:
            guard.remove()
        self._guards, self._scaled = [], []


@final
class GradScaler:
    """Scales a loss, so that small gradients do not underflow in float16, and steps optimizers by the true ones.

    `scale(loss).backward()`, then `step(optimizer)` for each optimizer, then `update()`. The scale is undone before the
    step, exactly, since it is a power of two. A step whose gradients are not all finite is skipped, and the scale
    shrinks by `backoff_factor`; after `growth_interval` updates in a row without that it grows by `growth_factor`. To
    clip gradients, call `unscale_(optimizer)` first. Between updates gradients of several losses may be accumulated.

    On a GPU whether to skip is decided there, and nothing waits for it. For steps that are functions see
    `pb.optim.scaled`.

    >>> import pullback as pb
    >>> w = pb.tensor([1.0, 2.0], dtype="float32", requires_grad=True)
    >>> opt, scaler = pb.optim.SGD([w], lr=0.5), pb.amp.GradScaler(init_scale=2.0**17)
    >>> for _ in range(3):
    ...     opt.zero_grad()
    ...     scaler.scale(pb.sum((w * w).astype("float16"))).backward()
    ...     scaler.step(opt)
    ...     scaler.update()
    >>> w.tolist(), scaler.get_scale()  # the first two scales are no numbers of float16
    ([0.0, 0.0], 32768.0)
    """

    def __init__(
        self,
        device: Any = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if isinstance(device, (int, float)):
            raise ArgumentError(f"GradScaler: the first argument is a device; use init_scale={device!r}.")
        self._settings = ScaleSettings(init_scale, growth_factor, backoff_factor, growth_interval).check("GradScaler")
        self._enabled = bool(enabled)
        scale, tracker = initial_scale(self._settings, "cpu")
        # tensors, so that a compiled loss reads the scale at each call
        self._scale, self._tracker = tensor(scale, device=device), tensor(tracker, device=device)
        self._visits: dict[int, _Visit] = {}

    def __repr__(self) -> str:
        return f"<GradScaler: {self.get_scale():g}>" if self._enabled else "<GradScaler: not enabled>"

    def __getstate__(self) -> dict[str, Any]:
        if self._visits:
            raise GraphError(
                "GradScaler: a copy cannot know which gradients are unscaled.\n  Copy or pickle it after update()."
            )
        return dict(vars(self))

    def is_enabled(self) -> bool:
        """Whether it scales; if not, `scale` returns losses as they are and `step` only steps."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """The loss, or each loss of a tree, times the scale; in float32 if it is of a half type."""
        if not self._enabled:
            return outputs
        leaves = [as_value(x) for x in flatten(outputs)[0]]
        if leaves:
            self._follow(spec_of(leaves[0]).device)
        return map_tree(lambda x: multiply_scale(x, move(self._scale, spec_of(as_value(x)).device)), outputs)

    def gradients(self, loss: Any, inputs: Any, **options: Any) -> Any:
        """Gradients of a loss as `pb.gradients` returns them, computed of the scaled loss and then unscaled: for what
        is made of gradients, such as a penalty with `create_graph=True`.

        >>> import pullback as pb
        >>> w, scaler = pb.tensor([3.0], dtype="float32", requires_grad=True), pb.amp.GradScaler()
        >>> loss = pb.sum(w * w)
        >>> (g,) = scaler.gradients(loss, [w], create_graph=True)
        >>> scaler.scale(loss + pb.sum(g * g)).backward()
        >>> w.grad / scaler.get_scale()
        tensor([30.], dtype=float32)
        """
        found = gradients_of(self.scale(loss), inputs, **options)
        if not self._enabled:
            return found
        return map_tree(lambda g: divide_scale(g, move(self._scale, spec_of(as_value(g)).device)), found)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Undo the scale in the `.grad` of an optimizer's parameters, to look at them or to clip them before `step`."""
        if not self._enabled:
            return
        visit = self._visit(optimizer, "unscale_")
        for name, p in named_parameters(optimizer):
            if p.grad is not None and p.dtype == np.float16:
                raise DtypeError(
                    f"unscale_: {name} is float16, in which its true gradient may underflow.\n"
                    "  Keep parameters in float32 and compute in float16; or leave it to step, which unscales in "
                    "float32, and clip by a rule: pb.optim.chain(pb.optim.clip_by_global_norm(1.0), ...)."
                )
        self._unscale(visit)
        visit.guard()
        self._visits[id(optimizer)] = visit

    def step(self, optimizer: Optimizer, **extra: Any) -> None:
        """Step an optimizer by its gradients, unscaled if they are not yet; not at all unless they are all finite. An
        error leaves everything as it was.
        """
        if not self._enabled:
            optimizer.step(**extra)
            return
        if "closure" in extra:
            raise ArgumentError(
                "step: a closure would compute scaled gradients again, after it was seen whether they are finite.\n"
                "  Compute the loss and call backward first."
            )
        known = self._visits.get(id(optimizer))
        visit = self._visit(optimizer, "step") if known is None else known
        if visit.stepped:
            raise GraphError("step: this optimizer was stepped already.\n  Call update() once after all steps.")
        if known is None:
            self._unscale(visit)
        try:
            optimizer.step_if(visit.finite, visit.wide, **extra)
        except BaseException:
            if known is None:
                visit.restore()
            raise
        visit.release()
        visit.stepped = True
        self._visits[id(optimizer)] = visit

    def update(self, new_scale: Any = None) -> None:
        """The next scale, after all optimizers were stepped; or a scale of your own, a power of two."""
        if not self._enabled:
            return
        if new_scale is not None:
            number = check_scale(untracked_value(new_scale), "update: new_scale")
            self._set(np.full((), number, np.float32), untracked_value(self._tracker))
        elif not self._visits:
            raise GraphError("update: no optimizer was stepped or unscaled since the last update.\n  Call step first.")
        else:
            scale = untracked_value(self._scale)
            flags = [move(visit.finite, spec_of(scale).device) for visit in self._visits.values()]
            finite = functools.reduce(pointwise.logical_and, flags)
            advance = ScaleSettings.advance if spec_of(scale).device == "cpu" else _compiled_advance
            self._set(*advance(self._settings, scale, untracked_value(self._tracker), finite))
        for visit in self._visits.values():
            visit.release()
        self._visits = {}

    def get_scale(self) -> float:
        """The scale as a number; 1 if it is not enabled. On a GPU this waits for it."""
        return float(untracked_value(self._scale)) if self._enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume: arrays and scalars, which `pb.save` takes; empty if it is not enabled."""
        if not self._enabled:
            return {}
        now = {"scale": self._scale, "growth_tracker": self._tracker}
        return {**{name: untracked_value(x).copy() for name, x in now.items()}, **self._settings._asdict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned."""
        if not self._enabled:
            return
        if not isinstance(saved, Mapping) or not {"scale", "growth_tracker"} <= set(saved):
            raise ArgumentError("load_state_dict: wants the state_dict of a GradScaler that is enabled.")
        known = {n: saved[n] for n in ScaleSettings._fields if n in saved}
        settings = self._settings._replace(**known).check("load_state_dict")
        scale = check_scale(untracked_value(saved["scale"]), "load_state_dict: scale")
        name = "load_state_dict: growth_tracker"
        row = check_count(as_integer(untracked_value(saved["growth_tracker"]), name), name, 0)
        self._settings = settings
        self._set(np.full((), scale, np.float32), np.full((), row, np.int32))

    def _set(self, scale: Any, tracker: Any) -> None:
        with no_grad():
            for old, new in ((self._scale, scale), (self._tracker, tracker)):
                value = move(untracked_value(new), old.spec.device)
                old.rebind(wrap(value, spec_of(value)), "update")

    def _follow(self, device: str) -> None:
        """Move the scale to the device of a loss."""
        if self._scale.spec.device != device:
            with no_grad():
                for x in (self._scale, self._tracker):
                    value = move(untracked_value(x), device)
                    x.rebind(wrap(value, spec_of(value)), "scale")

    def _visit(self, optimizer: Optimizer, what: str) -> _Visit:
        """The first visit of an optimizer since the last update."""
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"{what}: wants an optimizer, such as pb.optim.Adam(params), got {optimizer!r}.")
        if any(group.unscales for group in optimizer.groups):
            raise ArgumentError(
                f"{what}: the rule of this optimizer undoes a loss scale itself, which would be done twice.\n"
                "  Use a GradScaler, or pb.optim.scaled with pb.optim.scale_loss."
            )
        if id(optimizer) in self._visits:
            raise GraphError(f"{what}: the gradients of this optimizer are unscaled already since the last update.")
        mine = {id(p): name for name, p in named_parameters(optimizer)}
        for other in self._visits.values():
            for name, p in named_parameters(other.optimizer):
                if id(p) in mine:
                    raise GraphError(
                        f"{what}: {mine[id(p)]} is {name} of another optimizer, whose gradient is unscaled already.\n"
                        "  Call update() and backward in between, or give all parameters to one optimizer."
                    )
        return _Visit(optimizer, True, None)

    def _unscale(self, visit: _Visit) -> None:
        """Undo the scale in the gradients of an optimizer, and find out whether they are finite."""
        groups = visit.optimizer.groups
        holders = [p for group in groups for p in group.tensors if p.grad is not None]
        if not holders:
            raise GraphError("GradScaler: no parameter of this optimizer has a gradient.\n  Call backward first.")
        found: dict[int, Any] = {}
        flags = []
        is_compiled = all(group.is_compiled for group in groups)
        for device in dict.fromkeys(p.spec.device for p in holders):
            here = [p for p in holders if p.spec.device == device]
            wanted = is_compiled or device != "cpu"  # op by op that is four launches a parameter
            divide = _compiled_unscale if wanted and not any(_is_tracked(p.grad) for p in here) else unscale_and_check
            grads = [p.grad if _is_tracked(p.grad) else gradient_value(p.grad) for p in here]
            unscaled, finite = divide(grads, move(untracked_value(self._scale), device))
            found |= {id(p): g for p, g in zip(here, unscaled, strict=True)}
            flags.append(move(untracked_value(finite), holders[0].spec.device))
        visit.finite = functools.reduce(pointwise.logical_and, flags)
        # new gradients are assigned only now, so that an error leaves all as they were
        pairs = [(p, found[id(p)]) for p in holders]
        is_wide = [g.dtype != p.spec.dtype for p, g in pairs]
        visit.assign(holders, [astype(g, p.dtype) if w else g for (p, g), w in zip(pairs, is_wide, strict=True)])
        if any(is_wide):
            visit.wide = [
                [untracked_value(found[id(p)]) if id(p) in found else None for p in g.tensors] for g in groups
            ]


def unscale_and_check(grads: list[Any], scale: Any) -> tuple[list[Any], Any]:
    """Gradients without the scale, in float32 if they are of a half type, and whether all are finite."""
    return [divide_scale(g, scale) for g in grads], all_finite(grads)


#: The same as one call, for optimizers that step by `jit` and on a GPU; and the next scale.
_compiled_unscale, _compiled_advance = jit(unscale_and_check), jit(ScaleSettings.advance, static_argnums=0)


def _is_tracked(gradient: Any) -> bool:
    """Whether a gradient is part of a graph, as `create_graph` makes it: then unscaling is recorded too."""
    return isinstance(gradient, Tensor) and gradient.node is not None and is_concrete(gradient)


def named_parameters(optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The parameters of an optimizer, each with its name for messages."""
    for group in optimizer.groups:
        yield from zip(group.names, group.tensors, strict=True)


def _refuse_mixture(visit: weakref.ref[_Visit], name: str, _: Tensor) -> None:
    if visit() is not None:
        raise GraphError(
            f"backward: the gradient of {name} was unscaled, and a scaled one would be added to it.\n"
            "  Call every backward before unscale_, and update() to begin anew; for a penalty on gradients use "
            "scaler.gradients(loss, params, create_graph=True)."
        )


explain_missing_attributes(
    GradScaler,
    "GradScaler",
    """
    get_growth_factor get_backoff_factor get_growth_interval set_growth_factor set_backoff_factor set_growth_interval
    """,
)
