"""`Optimizer`: steps tensors in place by a rule, after `backward`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from ...arrays.tensor import Tensor
from ...arrays.trees import unflatten
from ...errors import ArgumentError, GraphError
from ...settings import enable_grad, modes, uses_native_code
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
        seen: dict[int, str] = {}
        for name, p in self._named_parameters():
            if id(p) in seen:
                raise ArgumentError(f"optimizer: {name} is {seen[id(p)]} again; a parameter is stepped once.")
            seen[id(p)] = name

    def __repr__(self) -> str:
        counts = ", ".join(f"{g.rule.name} of {len(g.tensors)} tensors" for g in self.groups)
        return f"<optimizer: {counts}>"

    def _named_parameters(self) -> list[tuple[str, Tensor]]:
        """Each parameter with its name for messages."""
        return [(name, p) for group in self.groups for name, p in zip(group.names, group.tensors, strict=True)]

    def zero_grad(self) -> None:
        """Clear the gradients of all parameters."""
        watched = modes().instruments is not None
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

    def apply_gradients(self, pairs: Iterable[tuple[Tensor, Any]], **extra: Any) -> None:
        """Step by given gradients: a pair (parameter, gradient) for each parameter, in any order.

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
            if id(pair[0]) not in known:
                raise ArgumentError(
                    f"apply_gradients: a {type(pair[0]).__name__} is no parameter of this optimizer.\n"
                    "  Pairs are (parameter, gradient)"
                    + (", not the other way round." if id(pair[1]) in known else ".")
                )
            if id(pair[0]) in given:
                name = next(n for n, p in self._named_parameters() if p is pair[0])
                raise ArgumentError(f"apply_gradients: {name} is given twice.\n  Add its gradients up.")
            given[id(pair[0])] = pair[1]
        missing = [name for name, p in self._named_parameters() if given.get(id(p)) is None]
        if missing:
            raise ArgumentError(f"apply_gradients: no gradient for {', '.join(missing)}.")
        self._apply([[untracked_value(given[id(p)]) for p in group.tensors] for group in self.groups], extra)

    def _gradients(self, group: ParameterGroup) -> list[Any]:
        missing = [name for name, p in zip(group.names, group.tensors, strict=True) if p.grad is None]
        if missing:
            raise GraphError(
                f"step: {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} no gradient: backward has not "
                f"reached {'them' if len(missing) > 1 else 'it'}.\n"
                "  Call backward first; leave what the loss does not depend on out of the optimizer."
            )
        return [untracked_value(p.grad) for p in group.tensors]

    def _apply(self, grads: Sequence[list[Any]] | None, extra: Mapping[str, Any]) -> None:
        """Step by given gradients, or by those of the parameters. All groups are computed, or checked, before any
        tensor changes, so that an error leaves everything as it was.
        """
        may_be_native = uses_native_code() is not False and modes().tracing is None
        if may_be_native and len(self.groups) == 1:
            native = self.groups[0].native_step()
            if native is not None and native.step_alone(None if grads is None else grads[0]):
                return
        found: list[tuple[Any, Any]] = []
        for i, group in enumerate(self.groups):
            given = None if grads is None else grads[i]
            native = group.native_step() if may_be_native else None
            updates: Any = None if native is None else native.prepare(given)
            if updates is None:
                native, given = None, self._gradients(group) if given is None else given
                updates = group.compute_step(given, extra)
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
                return untracked_value(loss), unflatten(group.structure, self._gradients(group))
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
