"""Parameter groups: tensors that share settings, with a rule and a state of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from ...arrays.node import depends_on_running_call
from ...arrays.spec import spec_of, zeros
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, leaf_paths, map_tree, unflatten
from ...compile.jit import jit
from ...errors import ArgumentError, DtypeError, GraphError, ShapeError
from ...graph.builder_lines import GraphValue
from ...ops.dispatch import as_value
from ...ops.placement import move
from ...settings import no_grad
from ..leaves import check_setting
from ..rule import Rule, State, apply_updates, find_loss_scales
from ..transformations.conditional import select_tree
from .native_step import NativeStep, make_native_step


def make_groups(
    rule: Rule | Callable[..., Rule], params: Any, settings: dict[str, Any], compiled: bool | None, first: int = 0
) -> list[ParameterGroup]:
    """The groups of an optimizer, counted from `first`."""
    is_list = isinstance(params, (list, tuple)) and len(params) > 0
    if not is_list or not all(isinstance(p, dict) and "params" in p for p in params):
        return [ParameterGroup(rule, params if _is_tree(params) else list(params), settings, "params", compiled)]
    found = []
    for i, given in enumerate(params, first):
        own = {**settings, **{name: value for name, value in given.items() if name != "params"}}
        tree = given["params"] if _is_tree(given["params"]) else list(given["params"])
        found.append(ParameterGroup(rule, tree, own, f"groups[{i}].params", compiled))
    return found


def _is_tree(params: Any) -> bool:
    """Whether leaves are found in it as it is; a generator of tensors is not a tree."""
    return not (hasattr(params, "__next__") or type(params).__name__ in ("dict_values", "map", "filter", "zip"))


def untracked_value(x: Any) -> Any:
    """The value of a gradient, without a tape."""
    while isinstance(x, Tensor):
        x = x.value
    return as_value(x)


@final
class ParameterGroup:
    """Tensors that share settings. These may be changed between steps: `opt.groups[0].settings["lr"] = 0.01`, or, as in
    PyTorch, `opt.param_groups[0]["lr"] = 0.01`.
    """

    def __init__(
        self, rule: Rule | Callable[..., Rule], params: Any, settings: dict[str, Any], name: str, compiled: bool | None
    ) -> None:
        self.rule_factory = rule
        self.settings = settings
        self.tensors, self.structure = flatten(params)
        self.names = [name + path for path in leaf_paths(self.structure)]
        self._check()
        self._cached_rule: tuple[dict[str, Any], Rule] | None = None
        self._cached_step: tuple[dict[str, Any], Any] | None = None
        self._is_compiled = compiled
        self._native: NativeStep | None = None
        #: The rule that native code cannot run.
        self._refused: Rule | None = None
        #: The numbers of the parameters that are skipped, since they do not require gradients and have none.
        self._frozen: list[int] = []
        self._state = self.rule.init(self._values())
        #: Whether its rule undoes a loss scale, as `pb.optim.scaled` does.
        self.unscales = bool(find_loss_scales(self._state))
        self._devices = [p.spec.device for p in self.tensors]

    def keys(self) -> list[str]:
        """The names of the settings, and "params"."""
        return ["params", *self._all_settings()]

    def _all_settings(self) -> dict[str, Any]:
        """The settings, and the defaults of those that were not given."""
        if isinstance(self.rule_factory, Rule):
            return self.settings
        parameters = inspect.signature(self.rule_factory).parameters.values()
        return {**{p.name: p.default for p in parameters if p.default is not p.empty}, **self.settings}

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return list(self.tensors)
        if name not in self.keys():
            raise ArgumentError(f"{self.rule.name}: there is no setting {name!r}; there are {self._known()}.")
        return self._all_settings()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "params" or name not in self.keys():
            raise ArgumentError(f"{self.rule.name}: {name!r} cannot be set; there are {self._known()}.")
        self.settings[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def _known(self) -> str:
        return ", ".join(n for n in self.keys() if n != "params") or "none, its rule has them already"

    def current_rate(self) -> Any:
        """The learning rate of the next step."""
        if "lr" not in self:
            raise ArgumentError(f"get_last_lr: {self.rule.name} has no setting lr.")
        rate = self["lr"]
        if not callable(rate):
            return rate
        state = self._state if self._native is None else self._native.release_state()
        return float(untracked_value(rate(_step_count(state))))

    def freeze(self, numbers: list[int]) -> bool:
        """Skip these parameters from now on; whether they are other ones than before."""
        if numbers == self._frozen:
            return False
        self._state, self._native, self._refused = self.state, None, None
        self._frozen = numbers
        return True

    @property
    def is_compiled(self) -> bool:
        """Whether the group was asked to step by `jit`."""
        return bool(self._is_compiled)

    def _is_frozen(self, number: int) -> bool:
        p = self.tensors[number]
        return p.node is None and p.grad is None

    def fill_frozen(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients, zeros for those of parameters that are skipped."""
        return [zeros(spec_of(p)) if g is None else g for g, p in zip(grads, self.tensors, strict=True)]

    def _check(self) -> None:
        if not isinstance(self.rule_factory, Rule) and not callable(self.rule_factory):
            raise ArgumentError(f"optimizer: wants a rule, such as pb.optim.adam(1e-3), got {self.rule_factory!r}.")
        if isinstance(self.rule_factory, Rule) and self.settings:
            raise ArgumentError(
                f"optimizer: {self.rule_factory.name} has its settings already, got {', '.join(self.settings)} too.\n"
                "  Give the function that makes the rule, such as pb.optim.adam."
            )
        if not self.tensors:
            raise ArgumentError("optimizer: there are no parameters.")
        for name, p in zip(self.names, self.tensors, strict=True):
            if isinstance(p, GraphValue):
                raise ArgumentError(f"optimizer: {name} is a variable of a graph.\n  Use rule.updates([(w, dw)]).")
            if not isinstance(p, Tensor):
                raise ArgumentError(
                    f"optimizer: {name} is a {type(p).__name__}, and only tensors can be stepped in place.\n"
                    "  Make it one, pb.tensor(x, requires_grad=True), or use the rule itself on arrays."
                )
            if p.node is not None and not p.is_leaf:
                raise GraphError(
                    f"optimizer: {name} was computed from other tensors; only leaves can be stepped.\n"
                    f"  made at {p.node.where()}\n"
                    "  Pass what it was computed from; a write to a parameter goes under `with pb.no_grad():`."
                )

    @property
    def rule(self) -> Rule:
        """The rule of the settings as they are now."""
        if isinstance(self.rule_factory, Rule):
            return self.rule_factory
        if self._cached_rule is None or any(self.settings.get(n) is not v for n, v in self._cached_rule[0].items()):
            for name, x in self.settings.items():
                if isinstance(x, Tensor) and x.node is not None and depends_on_running_call(x.node):
                    raise GraphError(
                        f"optimizer: the setting {name} has a derivative that a running grad or vjp asks for; steps "
                        f"in place record none.\n  Use the rule as a function, pb.optim.sgd(lr) and the like, or "
                        f"{name}.detach()."
                    )
            rule = self.rule_factory(**self.settings)
            if not isinstance(rule, Rule):
                raise ArgumentError(f"optimizer: {self.rule_factory!r} returned a {type(rule).__name__}, not a rule.")
            self._cached_rule = (dict(self.settings), rule)
        return self._cached_rule[1]

    @property
    def state(self) -> Any:
        """The state of the rule: a tree of arrays, which later steps do not write to."""
        if self._native is not None:
            self._state, self._native = self._native.release_state(), None
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state, self._native = state, None

    def __getstate__(self) -> dict[str, Any]:
        """Copies have tables of their own."""
        return {**vars(self), "_state": self.state, "_native": None, "_cached_step": None}

    def native_step(self) -> NativeStep | None:
        """The native step of the settings as they are now; None if the group steps op by op or by `jit`."""
        native = self._native
        if self._frozen and not all(map(self._is_frozen, self._frozen)):
            self.freeze([i for i in self._frozen if self._is_frozen(i)])
            native = None
        if native is not None:
            if native.is_current(self.settings):
                return native
            if self.rule is not None and native.change_settings(self.settings):  # the rule checks its settings
                return native
        rule = self.rule
        if self._is_compiled is not None or rule is self._refused or len(self._frozen) == len(self.tensors):
            return None
        self._move_state(self._values())
        native = make_native_step(
            self.rule_factory, rule, self.settings, self.tensors, self._values(), self.state, self._frozen
        )
        self._native, self._refused = native, rule if native is None else None
        return native

    def _values(self) -> Any:
        return unflatten(self.structure, [p.value for p in self.tensors])

    def compute_step(
        self, grads: Sequence[Any], extra: Mapping[str, Any], accept: Any = None
    ) -> tuple[list[Any], Any]:  # fmt: skip
        """The parameters and the state after a step; as they are where `accept`, if given, does not hold. Nothing has
        changed yet.
        """
        if len(self._frozen) == len(self.tensors):
            return [p.value for p in self.tensors], self.state
        values, given = self._values(), unflatten(self.structure, self.fill_frozen(grads))
        self._move_state(values)
        if self._is_compiled and not extra:
            rate = {n: v for n, v in self.settings.items() if n == "lr" and isinstance(v, float)}
            check_setting(rate.get("lr", 0), f"{self.rule.name}: lr")
            rates = {n: np.array(v) for n, v in rate.items()}
            new, state = self._compile_step(rate)(values, self.state, given, rates, accept)
        else:
            with no_grad():
                new, state = _step_tree(self.rule, values, self.state, given, extra, accept)
        found = [untracked_value(x) for x in flatten(new)[0]]
        if self._frozen:
            state = self._keep_frozen_state(values, state)
            for i in self._frozen:
                found[i] = self.tensors[i].value
        return found, state

    def _move_state(self, values: Any) -> None:
        """The state follows parameters that moved to another device, as `module.to(device)` moves them."""
        devices = [p.spec.device for p in self.tensors]
        if devices != self._devices:
            new, structure = flatten(self.rule.init(values))
            pairs = zip(flatten(self.state)[0], new, strict=True)
            self.state = unflatten(structure, [move(x, spec_of(there).device) for x, there in pairs])
            self._devices = devices

    def _keep_frozen_state(self, values: Any, new: Any) -> Any:
        """The new state with the old arrays of parameters that are skipped, where the rule can tell which these are."""
        if self.rule.split is None:
            return new
        owners: dict[int, list[int]] = {}
        for i, (_, own) in enumerate(self.rule.split(values, self.state)):
            for x in flatten(own)[0]:
                owners.setdefault(id(x), []).append(i)
        old, (leaves, structure) = flatten(self.state)[0], flatten(new)
        is_kept = [id(x) in owners and all(i in self._frozen for i in owners[id(x)]) for x in old]
        return unflatten(structure, [a if k else b for a, b, k in zip(old, leaves, is_kept, strict=True)])

    def _compile_step(self, rate: Mapping[str, Any]) -> Any:
        """A step as one native call. A constant rate is an argument, so that changing it does not recompile."""
        fixed = {n: v for n, v in self.settings.items() if n not in rate}
        known = self._cached_step
        if known is None or known[0].keys() != fixed.keys() or any(known[0][n] is not fixed[n] for n in fixed):
            maker = self.rule_factory

            def step(values: Any, state: Any, grads: Any, rate: Any, accept: Any) -> tuple[Any, Any]:
                rule = maker if isinstance(maker, Rule) else maker(**fixed, **rate)
                return _step_tree(rule, values, state, grads, {}, accept)

            known = self._cached_step = (fixed, jit(step))
        return known[1]

    def assign_values(self, values: Any) -> None:
        """Give the tensors new values; they stay leaves."""
        leaves = values if isinstance(values, list) and len(values) == len(self.tensors) else flatten(values)[0]
        with no_grad():
            for p, x in zip(self.tensors, leaves, strict=True):
                p.rebind(wrap(x, spec_of(x)), "step")

    def state_dict(self) -> dict[str, Any]:
        """The settings that are plain scalars, and a copy of the state."""
        plain = {n: v for n, v in self.settings.items() if _is_plain(v)}
        return {"settings": plain, "state": map_tree(lambda x: x.copy(), self.state)}

    def validate_saved(self, saved: Any) -> tuple[dict[str, Any], Any]:
        """The settings and the state that were saved, if they fit."""
        if not isinstance(saved, Mapping) or not {"settings", "state"} <= set(saved):
            raise ArgumentError("load_state_dict: a group has settings and a state.")
        mine, structure = flatten(self.state)
        given = flatten(saved["state"])[0]
        if len(given) != len(mine):
            raise ArgumentError(
                f"load_state_dict: the state has {len(given)} arrays, that of {self.rule.name} has {len(mine)} here."
            )
        for path, old, new in zip(leaf_paths(structure), mine, given, strict=True):
            was, found = spec_of(old), spec_of(as_value(new))
            if was.shape != found.shape:
                raise ShapeError(f"load_state_dict: state{path} has shape {found.shape}, {was.shape} here.")
            if was.dtype != found.dtype:
                raise DtypeError(f"load_state_dict: state{path} is {found.dtype}, {was.dtype} here.")
        pairs = zip(given, mine, strict=True)
        return dict(saved["settings"]), unflatten(
            structure, [move(as_value(x), spec_of(old).device).copy() for x, old in pairs]
        )


def _step_tree(
    rule: Rule, values: Any, state: Any, grads: Any, extra: Mapping[str, Any], accept: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Parameters and state after a step of a rule, where `accept` holds if it is given."""
    updates, after = rule.update(grads, state, values, **extra)
    new = apply_updates(values, updates)
    return (new, after) if accept is None else select_tree(accept, (new, after), (values, state))


def _step_count(state: Any) -> Any:
    """The number of steps taken, as the rule of the learning rate counts it."""
    waiting = [state]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, State):
            if not isinstance(thing.steps, tuple):
                return thing.steps
        elif isinstance(thing, (tuple, list)):
            waiting += thing
    return 0


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))
