"""`Optimizer`: steps tensors in place by a rule, after `backward`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from ...arrays.argument_checks import short_repr
from ...arrays.spec import spec_of, zeros
from ...arrays.tensor import Tensor
from ...arrays.timing import OPTIMIZER, span
from ...arrays.trees import unflatten
from ...errors import ArgumentError, GraphError
from ...ops.concrete import is_concrete
from ...ops.placement import move
from ...public_names import explain_missing_attributes
from ...settings import enable_grad, looks_at_values, modes, override_modes, uses_native_code
from ...tape.row_sparse import RowSparse
from ..leaves import keep_autocast
from ..rule import Rule
from .parameter_groups import ParameterGroup, make_groups, untracked_value


@final
class Optimizer:
    """A rule applied to tensors. `rule` is a rule, or a function of settings that returns one, such as `pb.optim.adam`;
    `params` a tree of tensors (a module, a list, a dict), or a list of groups: dicts with `params` and settings of
    their own. `pb.optim.Adam(params, lr=...)` is short for `Optimizer(pb.optim.adam, params, lr=...)`.

    Where the compiler is installed, a group of float32 and float64 parameters steps natively and in place by every rule
    that treats a parameter as a row of numbers. `jit=False` runs the rule op by op; `jit=True` compiles it for these
    very shapes, whatever the rule.

    >>> import pullback as pb
    >>> w = pb.tensor([3.0, 4.0], requires_grad=True)
    >>> opt = pb.optim.Optimizer(pb.optim.sgd, [w], lr=0.25)
    >>> pb.sum(w * w).backward()
    >>> opt.step()
    >>> w
    tensor([1.5, 2. ], dtype=float64, requires_grad=True)
    >>> opt.zero_grad()
    >>> w.grad is None
    True
    """

    def __init__(
        self, rule: Rule | Callable[..., Rule], params: Any, /, *, jit: bool | None = None, **settings: Any
    ) -> None:
        self.groups: list[ParameterGroup] = make_groups(rule, params, settings, jit)
        self._make_group = functools.partial(make_groups, rule, settings=dict(settings), compiled=jit)
        _refuse_repeated(self.groups)

    def __repr__(self) -> str:
        counts = ", ".join(f"{g.rule.name} of {len(g.tensors)} tensors" for g in self.groups)
        return f"<optimizer: {counts}>"

    def _named_parameters(self) -> list[tuple[str, Tensor]]:
        """Each parameter with its name for messages."""
        return [(name, p) for group in self.groups for name, p in zip(group.names, group.tensors, strict=True)]

    @property
    def param_groups(self) -> list[ParameterGroup]:
        """The groups, as PyTorch calls them: `opt.param_groups[0]["lr"] = 0.01` changes a setting.

        >>> import pullback as pb
        >>> opt = pb.optim.Adam([pb.tensor([1.0], requires_grad=True)])
        >>> opt.param_groups[0]["lr"], opt.param_groups[0]["betas"]
        (0.001, (0.9, 0.999))
        """
        return self.groups

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Step more tensors: a dict with `params` and settings of their own, else those of the constructor.

        >>> import pullback as pb
        >>> opt = pb.optim.SGD([pb.tensor([1.0], requires_grad=True)], lr=0.1)
        >>> opt.add_param_group({"params": [pb.tensor([2.0], requires_grad=True)], "lr": 0.01})
        >>> opt.get_last_lr()
        [0.1, 0.01]
        """
        if not isinstance(group, Mapping) or "params" not in group:
            raise ArgumentError("add_param_group: wants a dict with params, and settings.")
        (added,) = self._make_group([dict(group)], first=len(self.groups))
        _refuse_repeated([*self.groups, added])
        self.groups.append(added)

    def get_last_lr(self) -> list[Any]:
        """The learning rate of each group in its next step; of a schedule, what it returns for that step.

        >>> import pullback as pb
        >>> opt = pb.optim.SGD([pb.tensor([1.0], requires_grad=True)], lr=pb.optim.schedules.exponential(0.1, 0.5))
        >>> opt.get_last_lr()
        [0.1]
        """
        return [group.current_rate() for group in self.groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters; or, unless `set_to_none`, make them zeros."""
        if not set_to_none:
            for _, p in self._named_parameters():
                p.grad = None if p.grad is None else zeros(p.spec)
            return
        watched = looks_at_values(modes())
        for group in self.groups:
            for p in group.tensors:
                if watched:
                    p.grad = None
                else:
                    p._grad = None

    def step(self, closure: Callable[[], Any] | None = None, **extra: Any) -> Any:
        """Step every parameter by its `.grad`. A closure computes the loss, with `zero_grad` and `backward`, and is
        called first, or, by rules with a line search, several times; its loss is returned.
        """
        if closure is None:
            self._apply(None, extra)
            return None
        loss = closure()
        if len(self.groups) == 1:
            extra.setdefault("value_and_grad", self._closure_as_function(self.groups[0], closure))
        extra.setdefault("value", untracked_value(loss))
        self._apply(None, extra)
        return loss

    def step_if(self, accept: Any, gradients: Sequence[list[Any]] | None = None, **extra: Any) -> None:
        """Step as `step` does where `accept` holds, a bool on the device of the parameters; else nothing changes,
        counts of steps included. On a GPU that is decided there, without waiting. `gradients` has a list for each group
        in place of `.grad`.

        >>> import pullback as pb
        >>> w = pb.tensor([1.0], requires_grad=True)
        >>> opt = pb.optim.SGD([w], lr=0.5)
        >>> pb.sum(w * w).backward()
        >>> opt.step_if(pb.isfinite(w.grad).all())
        >>> w.tolist()
        [0.0]
        """
        accept = untracked_value(accept)
        if not is_concrete(accept) or spec_of(accept).device != "cpu":
            self._apply(gradients, extra, accept)
        elif bool(accept):
            self._apply(gradients, extra)

    def apply_gradients(self, pairs: Iterable[tuple[Tensor, Any]], **extra: Any) -> None:
        """Step by given gradients: a pair (parameter, gradient), or (gradient, parameter) as in TensorFlow, for each
        parameter that is not frozen, in any order.

        >>> import pullback as pb
        >>> w = pb.tensor([1.0], requires_grad=True)
        >>> pb.optim.SGD([w], lr=0.5).apply_gradients([(w, [1.0])])
        >>> w.tolist()
        [0.5]
        """
        given: dict[int, Any] = {}
        known = {id(p) for _, p in self._named_parameters()}
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ArgumentError(f"apply_gradients: wants pairs of (parameter, gradient), got {pair!r}.")
            p, gradient = pair if id(pair[0]) in known else pair[::-1]
            if id(p) not in known:
                raise ArgumentError(
                    f"apply_gradients: {short_repr(pair[0])} is no parameter of this optimizer.\n"
                    "  Pairs are (parameter, gradient), with the very tensors that the optimizer was given."
                )
            if id(p) in given:
                raise ArgumentError(f"apply_gradients: {short_repr(p)} is given twice.")
            given[id(p)] = gradient
        missing = [n for n, p in self._named_parameters() if given.get(id(p)) is None and p.requires_grad]
        if missing:
            raise ArgumentError(f"apply_gradients: no gradient for {', '.join(missing)}.")
        self._apply([[gradient_value(given.get(id(p))) for p in group.tensors] for group in self.groups], extra)

    def _gradients(self, group: ParameterGroup) -> list[Any]:
        """The gradients of a group's parameters, None for those that are frozen."""
        pairs = zip(group.names, group.tensors, strict=True)
        missing = [name for name, p in pairs if p.grad is None and p.requires_grad]
        if missing:
            raise GraphError(
                f"step: {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} no gradient: backward has not "
                f"reached {'them' if len(missing) > 1 else 'it'}.\n"
                "  Call backward first; leave what the loss does not depend on out of the optimizer."
            )
        return [gradient_value(p.grad) for p in group.tensors]

    def _apply(self, grads: Sequence[list[Any]] | None, extra: Mapping[str, Any], accept: Any = None) -> None:
        """Step by given gradients, or by those of the parameters; where `accept` holds, if it is given. All groups are
        computed, or checked, before any tensor changes, so that an error leaves everything as it was.
        """
        if modes().instruments is not None:
            with span(OPTIMIZER, type(self).__name__):
                self._step_all(grads, extra, accept)
        else:
            self._step_all(grads, extra, accept)

    def _step_all(self, grads: Sequence[list[Any]] | None, extra: Mapping[str, Any], accept: Any) -> None:
        if modes().autocast is not None:
            extra = keep_autocast(extra)
            with override_modes(autocast=None):
                self._step_all(grads, extra, accept)
            return
        may_be_native = uses_native_code() is not False and modes().tracing is None
        if grads is not None:
            for group, listed in zip(self.groups, grads, strict=True):
                group.freeze([number for number, g in enumerate(listed) if g is None])
        if may_be_native and len(self.groups) == 1:
            native = self.groups[0].native_step()
            if native is not None and native.step_alone(None if grads is None else grads[0], accept):
                return
        found: list[tuple[Any, Any]] = []
        for i, group in enumerate(self.groups):
            given = None if grads is None else grads[i]
            accept = None if accept is None else move(accept, group.tensors[0].spec.device)
            native = group.native_step() if may_be_native else None
            updates: Any = None if native is None else native.prepare(given, accept)
            if updates is None:
                given = self._gradients(group) if given is None else given
                # a parameter was frozen since the last step: native code leaves it out from now on
                is_new = group.freeze([number for number, g in enumerate(given) if g is None])
                native = group.native_step() if may_be_native and is_new else None
                updates = None if native is None else native.prepare(given, accept)
            if updates is None:
                native, updates = None, group.compute_step(given or [], extra, accept)
            found.append((native, updates))
        for group, (native, updates) in zip(self.groups, found, strict=True):
            if native is not None:
                native.run(updates)
            else:
                new, group.state = updates
                group.assign_values(new)

    def _closure_as_function(
        self, group: ParameterGroup, closure: Callable[[], Any]
    ) -> Callable[[Any], tuple[Any, Any]]:
        """The closure as a function of parameters, which are restored afterwards."""

        def function(values: Any) -> tuple[Any, Any]:
            before = [p.value for p in group.tensors]
            try:
                group.assign_values(values)
                with enable_grad():
                    loss = closure()
                return untracked_value(loss), unflatten(group.structure, group.fill_frozen(self._gradients(group)))
            finally:
                group.assign_values(before)

        return function

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume: a tree of arrays and scalars, copied."""
        return {"groups": [group.state_dict() for group in self.groups]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned, for an optimizer constructed in the same way.

        >>> import pullback as pb
        >>> w = pb.tensor([1.0], requires_grad=True)
        >>> one, other = pb.optim.Adam([w], lr=0.5), pb.optim.Adam([w], lr=0.1)
        >>> other.load_state_dict(one.state_dict())
        >>> other.groups[0].settings["lr"]
        0.5
        """
        groups = saved.get("groups") if isinstance(saved, Mapping) else None
        if not isinstance(groups, (list, tuple)) or len(groups) != len(self.groups):
            raise ArgumentError(f"load_state_dict: wants the state of an optimizer with {len(self.groups)} groups.")
        loaded = [group.validate_saved(state) for group, state in zip(self.groups, groups, strict=True)]
        for group, (settings, state) in zip(self.groups, loaded, strict=True):
            group.settings.update(settings)
            group.state = state


def _refuse_repeated(groups: Sequence[ParameterGroup]) -> None:
    seen: dict[int, str] = {}
    for group in groups:
        for name, p in zip(group.names, group.tensors, strict=True):
            if id(p) in seen:
                raise ArgumentError(f"optimizer: {name} is {seen[id(p)]} again; a parameter is stepped once.")
            seen[id(p)] = name


def gradient_value(gradient: Any) -> Any:
    """The dense numbers of a gradient."""
    if type(gradient) is RowSparse:  # rules of all parameters step by every row
        return gradient.todense()
    return None if gradient is None else untracked_value(gradient)


explain_missing_attributes(
    Optimizer,
    "Optimizer",
    """
    defaults state register_step_post_hook init update learning_rate minimize variables get_weights
    """,
)
