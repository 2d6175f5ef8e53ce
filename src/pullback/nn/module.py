"""`Module`: a network that is also a pytree, for the tape, transforms and jit."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.backends import is_array
from ..arrays.node import Handle, Hooks
from ..arrays.origin import Trail, register_reader
from ..arrays.scope import current_scope
from ..arrays.spec import spec_of, zeros
from ..arrays.tensor import Tensor, value_of
from ..arrays.text import join_path
from ..arrays.timing import MODULE, span
from ..arrays.trees import LEAF, flatten, flatten_one_level, map_tree, name_children, register_tree, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.dispatch import as_value
from ..ops.placement import move
from ..ops.shape.reshaping import astype
from ..public_names import explain_missing_attributes
from ..settings import PLAIN, installed, modes, no_grad
from .attribute_guard import DRY_RUNS, LEVEL, foreign_scope, unwrap_attribute
from .backward_hooks import call_with_backward_hooks
from .module_template import (
    ContainerTemplate,
    collect_children,
    fill_template,
    iter_children,
    map_children,
    slot_names,
    split_children,
)
from .parameter import as_state, convert_tensor, make_conversion
from .policy import cast_inputs, policy_of
from .summary import module_repr, summary_html, summary_table

#: Where an instance rebuilt by a transform keeps its template, so that it is flattened as it was built, whatever its
#: slots hold (the booleans of a mask, axes).
_SHAPE = "_shape"
_HOOKS = "_hooks"
#: On an error, the innermost module that it was raised in, and the note that says so.
_RAISED_IN = "_raised_in_module"
_HIDDEN = frozenset((_SHAPE, LEVEL))


if TYPE_CHECKING:
    from typing import ParamSpec, Protocol, TypeVar

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class HasForward(Protocol[P, R_co]):
        """What `forward` looks like in a subclass."""

        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class ForwardCall:
        """Calling a module, to type checkers: calling its `forward`."""

        def __get__(self, instance: HasForward[P, R_co], owner: Any = None) -> Callable[P, R_co]: ...

        # pyright looks for this one where a module is passed on as a function
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class LoadReport(NamedTuple):
    """What `load_state_dict` found: names that the state lacks, and names that it has and the module lacks."""

    missing: list[str]
    unexpected: list[str]


@dataclass_transform(eq_default=False)
class Module:
    """A network: subclass it, put parameters (tensors, arrays) and other modules in its attributes, write `forward`.

    Annotated fields make a constructor, as in a dataclass, unless the class says `init=False` or inherits one that is
    written out (pyright wants `init=False` there too). A module is a tree of its arrays, so `pb.grad`, `pb.jit` and
    `pb.optim` take it as it is, those in lists, dicts and other registered trees (sparse arrays, distributions) too;
    settings (scalars, strings, functions) are part of its structure. Arrays that are state and not to be trained are
    named in `buffers`.

    >>> import numpy as np, pullback as pb
    >>> class Line(pb.nn.Module):
    ...     slope: pb.Tensor
    ...     def forward(self, x):
    ...         return self.slope * x
    >>> line = Line(pb.tensor(2.0, requires_grad=True))
    >>> line(3.0).backward(); line.slope.grad
    tensor(3., dtype=float64)
    >>> pb.jit(pb.grad(lambda line, x: line(x)))(line.arrays(), 3.0).slope
    array(3.)
    """

    training: bool = True
    #: Names of attributes whose arrays are state and no parameters, such as running statistics.
    buffers: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, init: bool = True) -> None:
        plain = cls.__init__ is object.__init__ or dataclasses.is_dataclass(cls)
        if init and plain and "__init__" not in vars(cls) and _has_annotations(cls):
            dataclasses.dataclass(eq=False, repr=False)(cls)
        register_tree(cls, _flatten_module, functools.partial(_unflatten_module, cls))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the network computes; each subclass writes its own."""
        raise ArgumentError(f"{type(self).__name__} has no forward.\n  Write what it computes: def forward(self, x).")

    if TYPE_CHECKING:
        __call__ = ForwardCall()  # what a module is called with and returns is what its `forward` says
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if "policy" in vars(self) and (policy := policy_of(self)) is not None:
                owned = (x for _, x, trained in _iter_arrays(self, "", follow_policy=True) if trained)
                return policy.call(self._run_in_span, owned, args, kwargs)
            if (mode := modes()) is not PLAIN:
                if mode.autocast is not None:
                    args, kwargs = cast_inputs(mode.autocast, args, kwargs)
                return self._run_in_span(*args, **kwargs)
            return self._run_forward(*args, **kwargs)

        def _run_in_span(self, *args: Any, **kwargs: Any) -> Any:
            with span(MODULE, self):
                return self._run_forward(*args, **kwargs)

        def _run_forward(self, *args: Any, **kwargs: Any) -> Any:
            hooks = vars(self).get(_HOOKS)
            try:
                if hooks is None or not hooks.entries:
                    return self.forward(*args, **kwargs)
                entries = list(hooks.entries.values())
                for kind, hook in entries:
                    if kind == "pre" and (changed := hook(self, args)) is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
                if any(kind in ("backward", "backward_pre") for kind, _ in entries):
                    run = functools.partial(self._forward_and_hooks, hooks, kwargs)
                    return call_with_backward_hooks(self, entries, args, run)
                return self._forward_and_hooks(hooks, kwargs, *args)
            except Exception as error:
                _note_place(error, self)
                raise

        def _forward_and_hooks(self, hooks: Hooks, kwargs: dict[str, Any], *args: Any) -> Any:
            out = self.forward(*args, **kwargs)
            for kind, hook in list(hooks.entries.values()):
                if kind == "post" and (changed := hook(self, args, out)) is not None:
                    out = changed
            return out

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Value) and (scope := foreign_scope(self, value)) is not None:
            if scope.name in DRY_RUNS:
                return
            value = unwrap_attribute(self, name, value, scope)
        installed().sets_attribute(self, name)
        object.__setattr__(self, name, value)
        vars(self).pop(_SHAPE, None)

    def __delattr__(self, name: str) -> None:
        installed().sets_attribute(self, name)
        object.__delattr__(self, name)
        vars(self).pop(_SHAPE, None)

    # Contents

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, with the path to it."""
        seen: set[int] = set()
        waiting: list[tuple[str, Module]] = [(prefix, self)]
        while waiting:
            path, module = waiting.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                children = _iter_parts(module)
                waiting += [(join_path(path, n), x) for n, x in children if isinstance(x, Module)][::-1]

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly in this one, each once, with their names; those in lists and dicts count.

        >>> import pullback as pb
        >>> [name for name, _ in pb.nn.Sequential(pb.nn.Linear(2, 3), pb.nn.ReLU()).named_children()]
        ['0', '1']
        """
        seen: set[int] = set()
        for name, child in _iter_parts(self):
            if isinstance(child, Module) and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules directly in this one, each once."""
        return (child for _, child in self.named_children())

    def get_submodule(self, path: str) -> Module:
        """The module below this one at a path such as "body.0".

        >>> import pullback as pb
        >>> pb.nn.Sequential(pb.nn.ReLU()).get_submodule("0")
        ReLU()
        """
        found = dict(self.named_modules())
        if path not in found:
            known = ", ".join(map(repr, filter(None, found)))
            raise ArgumentError(f"get_submodule: there is no module {path!r}; there are {known or 'none'}.")
        return found[path]

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call `function(module)` for all modules below and for this one, the inner ones first, as to initialize them.

        >>> import pullback as pb
        >>> net = pb.nn.Sequential(pb.nn.Linear(2, 1), pb.nn.ReLU())
        >>> _ = net.apply(lambda m: m.bias.fill_(0) if isinstance(m, pb.nn.Linear) else None)
        """
        check_functions("apply", function)
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def register_buffer(self, name: str, array: Any, persistent: bool = True) -> None:
        """Hold an array that is state and not trained; a class lists such names in `buffers`.

        >>> import numpy as np, pullback as pb
        >>> net = pb.nn.Linear(2, 1)
        >>> net.register_buffer("scale", np.ones(1))
        >>> net.scale, [name for name, _ in net.named_parameters()]
        (array([1.]), ['weight', 'bias'])
        """
        if not persistent:
            raise ArgumentError("register_buffer: buffers are part of the state; keep others outside of the module.")
        if name not in self.buffers:
            setattr(self, "buffers", (*self.buffers, name))  # noqa: B010 - a class variable, here of one instance
        setattr(self, name, as_state(array, "register_buffer"))

    def named_arrays(self) -> Iterator[tuple[str, Any, bool]]:
        """Each array with the path to it and whether it is a parameter; one that is in two places comes twice."""
        yield from _iter_arrays(self, "")

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Each parameter once, with the path to it.

        >>> import pullback as pb
        >>> [name for name, _ in pb.nn.Sequential(pb.nn.Linear(2, 3), pb.relu).named_parameters()]
        ['0.weight', '0.bias']
        """
        seen: set[int] = set()
        for path, array, trained in self.named_arrays():
            if trained and id(array) not in seen:
                seen.add(id(array))
                yield path, array

    def parameters(self) -> list[Any]:
        """The parameters, each once: what an optimizer is given."""
        return [array for _, array in self.named_parameters()]

    # Modes and splitting

    def train(self, mode: bool = True) -> Self:
        """Behave as in training (dropout, statistics of the batch), here and in all modules below."""
        for _, module in self.named_modules():
            if module.training != mode:
                module.training = mode
        return self

    def eval(self) -> Self:
        """Behave as in inference."""
        return self.train(False)

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Whether the parameters ask for gradients on the tape."""
        for array in self._parameter_tensors():
            array.requires_grad_(wanted)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters; or, unless `set_to_none`, make them zeros."""
        for array in self._parameter_tensors():
            array.grad = None if set_to_none or array.grad is None else zeros(array.spec)

    def to(self, *args: Any, dtype: Any = None, device: Any = None) -> Self:
        """Give the floating-point arrays another dtype, or move all arrays to a device, in place.

        >>> import pullback as pb
        >>> pb.nn.Linear(2, 1).to(pb.float64).weight.dtype
        dtype('float64')
        """
        _convert_arrays(self, make_conversion(args, dtype, device))
        return self

    def cpu(self) -> Self:
        """Move all arrays to the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Self:
        """Move all arrays to a GPU: the current one, or that of a number or a name."""
        return self.to(device="cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def double(self) -> Self:
        """Make all floating-point arrays float64."""
        return self.to(dtype="float64")

    def _parameter_tensors(self) -> list[Tensor]:
        return [array for array in self.parameters() if isinstance(array, Tensor)]

    def arrays(self) -> Self:
        """The same module with bare arrays for tensors: the best form for transforms and compiled steps.

        >>> import pullback as pb
        >>> type(pb.nn.Linear(1, 1).arrays().weight).__name__
        'ndarray'
        """
        found: Self = map_tree(lambda x: value_of(x) if isinstance(x, Tensor) and is_array(x.value) else x, self)
        return found

    def split(self) -> tuple[Self, Self]:
        """Two modules of the same form: one with the parameters, one with the buffers, and None for the others. An
        optimizer is given the first; `merge` rebuilds the whole.

        >>> import pullback as pb
        >>> trained, state = pb.nn.BatchNorm(2).arrays().split()
        >>> trained.mean is None, state.weight is None, trained.merge(state).mean
        (True, True, array([0., 0.], dtype=float32))
        """
        leaves, structure = flatten(self)
        pairs = list(zip(leaves, (trained for _, _, trained in self.named_arrays()), strict=True))
        parameters = unflatten(structure, [x if trained else None for x, trained in pairs])
        return parameters, unflatten(structure, [None if trained else x for x, trained in pairs])

    def merge(self, other: Self) -> Self:
        """This module with the other one's arrays where this one has None."""
        merged: Self = _merge(self, other)
        return merged

    @explains_arguments("register_forward_pre_hook")
    def register_forward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> Handle:
        """Call `hook(module, args)` before each forward; what it returns, unless None, replaces the arguments."""
        return self._hook("pre", hook)

    @explains_arguments("register_forward_hook")
    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> Handle:
        """Call `hook(module, args, out)` after each forward; what it returns, unless None, replaces the result.

        >>> import numpy as np, pullback as pb
        >>> layer = pb.nn.Linear(2, 1)
        >>> with layer.register_forward_hook(lambda module, args, out: out * 0 + 1):
        ...     layer(np.ones(2)).tolist()
        [1.0]
        """
        return self._hook("post", hook)

    @explains_arguments("register_full_backward_hook")
    def register_full_backward_hook(self, hook: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]) -> Handle:
        """Call `hook(module, grad_input, grad_output)` in each backward pass, once the gradients of the arguments are
        known; what it returns, unless None, replaces them. Both are tuples with an entry for each array among the
        positional arguments and the results, None for those without a gradient. Where no argument has one, the hook is
        called when those of the results are known.

        >>> import numpy as np, pullback as pb
        >>> layer = pb.nn.Linear(2, 1)
        >>> x = pb.tensor(np.ones(2, np.float32), requires_grad=True)
        >>> with layer.register_full_backward_hook(lambda module, given, wanted: tuple(g * 0 + 1 for g in given)):
        ...     layer(x).sum().backward()
        >>> x.grad.tolist()
        [1.0, 1.0]
        """
        return self._hook("backward", hook)

    @explains_arguments("register_full_backward_pre_hook")
    def register_full_backward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> Handle:
        """Call `hook(module, grad_output)` in each backward pass before the gradients of the module are computed; what
        it returns, unless None, replaces those of the results.
        """
        return self._hook("backward_pre", hook)

    def _hook(self, kind: str, hook: Callable[..., Any]) -> Handle:
        if _HOOKS not in vars(self):
            setattr(self, _HOOKS, Hooks())
        return Handle(getattr(self, _HOOKS), kind, hook)

    # State and text

    def state_dict(self) -> dict[str, Any]:
        """Every parameter and buffer as an array, by its path; `pb.save` writes it, `load_state_dict` takes it.

        >>> import pullback as pb
        >>> {name: x.shape for name, x in pb.nn.Linear(2, 3).state_dict().items()}
        {'weight': (3, 2), 'bias': (3,)}
        """
        return {path: _snapshot_array(x) for path, x, _ in self.named_arrays()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Take parameters and buffers from a state. Nothing is changed unless every shape fits; unless `strict`, names
        that only one side has are skipped, and reported.

        >>> import pullback as pb
        >>> a, b = pb.nn.Linear(2, 3), pb.nn.Linear(2, 3)
        >>> a.load_state_dict(b.state_dict())
        LoadReport(missing=[], unexpected=[])
        """
        mine = {path: array for path, array, _ in self.named_arrays()}
        report = LoadReport([n for n in mine if n not in state], [n for n in state if n not in mine])
        fitting = {n: _convert_entry(n, state[n], mine[n]) for n in mine if n in state}
        wrong = [fault for fault in fitting.values() if isinstance(fault, str)]
        if strict:
            wrong += [f"missing: {n}" for n in report.missing] + [f"unexpected: {n}" for n in report.unexpected]
        if wrong:
            kind = ArgumentError if strict and any(report) else ShapeError
            raise kind("load_state_dict: the state is not that of this module.\n  " + "\n  ".join(wrong))
        _assign_arrays(self, "", fitting)
        return report

    def summary(self) -> str:
        """A table of the modules and their parameters, with counts and bytes.

        >>> import pullback as pb
        >>> print(pb.nn.Sequential(pb.nn.Linear(2, 3), pb.relu).summary())
        name      kind        shape   parameters
                  Sequential                   9
        0         Linear                       9
        0.weight  float32     (3, 2)           6
        0.bias    float32     (3,)             3
        9 parameters, 36 B; 9 of them trained
        """
        return summary_table(self)

    def __repr__(self) -> str:
        return module_repr(self)

    def float(self) -> Self:
        """Make all floating-point arrays float32."""
        return self.to(dtype="float32")

    def _repr_html_(self) -> str:
        return summary_html(self)


def _has_annotations(cls: type) -> bool:
    """Whether a class annotates fields of its own. From Python 3.14 on its dictionary does not say."""
    try:
        return bool(inspect.get_annotations(cls))
    except NameError:  # there are some, and one names what is not defined yet
        return True


explain_missing_attributes(
    Module,
    "Module",
    """
    add_module compile extra_repr half named_buffers parameters_and_buffers register_backward_hook
    register_module register_parameter trainable_variables trainable_weights weights variables fit build init
    """,
)


def _note_place(error: Exception, module: Module) -> None:
    """Note on an error which layer of a module it was raised in; each module on the way out has a longer path to it."""
    inner, note = vars(error).get(_RAISED_IN, (module, None))
    path = next((path for path, m in module.named_modules() if m is inner), "")
    if path:
        if note in (notes := getattr(error, "__notes__", [])):
            notes.remove(note)
        note = f"  in {type(module).__name__} at {path!r}, a {type(inner).__name__}"
        error.add_note(note)
    vars(error)[_RAISED_IN] = inner, note


def _read_module(trail: Trail, local: Mapping[str, Any]) -> None:
    """A module that runs: its class, and the path from it to the innermost one."""
    module = local["self"]
    inner = module if trail.module is None else trail.module[0]
    path = next((path for path, m in module.named_modules() if m is inner), "")
    if path:
        trail.module = inner, f"{type(module).__name__} at {path!r}, a {type(inner).__name__}"
    else:
        trail.module = trail.module or (module, type(module).__name__)


register_reader(Module._run_forward, _read_module)  # type: ignore[attr-defined]


def _visible_attributes(module: Module) -> dict[str, Any]:
    return {name: x for name, x in vars(module).items() if name not in _HIDDEN}


def _iter_parts(module: Module) -> Iterator[tuple[str, Any]]:
    """Each array and each module right in this one, with the path to it; those in other registered trees count."""
    for name, child in iter_children(_visible_attributes(module)):
        yield from _iter_parts_of(child, name)


def _iter_parts_of(child: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(child, (Module, Value)) or is_array(child):
        yield path, child
        return
    for name, part in name_children(child)[0]:
        yield from _iter_parts_of(part, join_path(path, name))


def _change_parts(module: Module, change: Callable[[str, Any], Any]) -> None:
    """Put something else in the place of each array and each module right in this one."""

    def change_in(path: str, child: Any) -> Any:
        if isinstance(child, (Module, Value)) or is_array(child):
            return change(path, child)
        pairs, rebuild = name_children(child)
        changed = [change_in(join_path(path, name), part) for name, part in pairs]
        return child if all(x is y for x, (_, y) in zip(changed, pairs, strict=True)) else rebuild(changed)

    for name, value in map_children(_visible_attributes(module), change_in).items():
        if value is not vars(module)[name]:
            setattr(module, name, value)


def _iter_arrays(module: Module, prefix: str, follow_policy: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Each array with its path and whether it is a parameter; with `follow_policy`, but those of modules inside that
    have a policy of their own.
    """
    for name, child in _iter_parts(module):
        path = join_path(prefix, name)
        if not isinstance(child, Module):
            is_buffer = name.partition(".")[0] in module.buffers
            yield path, child, not is_buffer and spec_of(child).inexact
        elif not follow_policy or policy_of(child) is None:
            yield from _iter_arrays(child, path, follow_policy)


def _snapshot_array(x: Any) -> Any:
    """An immutable value or a copy of an array; inside a transform, the transform's own value."""
    return value_of(x) if isinstance(x, Tensor) else x if isinstance(x, Value) else x.copy()


def trainable_mask(tree: Any) -> list[bool]:
    """For each leaf of a tree whether it is to be trained: all but the buffers of modules."""
    if isinstance(tree, Module):
        children, _, names = _flatten_module(tree)
        is_buffer = [name.partition(".")[0] in tree.buffers for name in names]
        return [f and not b for x, b in zip(children, is_buffer, strict=True) for f in trainable_mask(x)]
    if flatten(tree)[1] is LEAF:
        return [True]
    return [f for child in flatten_one_level(tree)[0] for f in trainable_mask(child)]


def _merge(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if type(one) is not type(other):
        raise ArgumentError(f"merge: a {type(one).__name__} and a {type(other).__name__} are not parts of one module.")
    if isinstance(one, Module):
        shape, found = vars(one).get(_SHAPE), vars(other).get(_SHAPE)
        mine = None if shape is None else collect_children(shape, _visible_attributes(one))
        theirs = None if shape is None or shape != found else collect_children(shape, _visible_attributes(other))
        if shape is None or mine is None or theirs is None:
            raise ArgumentError(f"merge: these two {type(one).__name__} do not come from one split().")
        return _unflatten_module(type(one), shape, [_merge(a, b) for a, b in zip(mine, theirs, strict=True)])
    raise ArgumentError("merge: both modules have an array in the same place; merge the two parts of one split().")


def _convert_entry(name: str, given: Any, mine: Any) -> Any:
    """What a state has for an array, as an array of its dtype; or a string that describes the mismatch."""
    given = as_state(given, f"load_state_dict: {name}")
    array = as_value(given.detach() if hasattr(given, "detach") else given)
    array = value_of(array) if isinstance(array, Tensor) else array
    spec, found = spec_of(mine), spec_of(array)
    if found.shape != spec.shape:
        return f"{name}: the state has shape {found.shape}, the module {spec.shape}"
    if not np.can_cast(found.dtype, spec.dtype, "same_kind"):
        raise DtypeError(f"load_state_dict: {name} is {found.dtype} in the state and {spec.dtype} in the module.")
    is_bare = isinstance(array, np.ndarray | bool | int | float | complex)
    return move(np.array(array, spec.dtype) if is_bare else astype(array, spec.dtype), spec.device)


def _assign_arrays(module: Module, prefix: str, state: Mapping[str, Any]) -> None:
    """Put arrays in their places: a tensor keeps its identity, since an optimizer may hold it."""

    def change(name: str, child: Any) -> Any:
        path = join_path(prefix, name)
        if isinstance(child, Module):
            _assign_arrays(child, path, state)
        elif path in state:
            if not isinstance(child, Tensor):
                return state[path]
            with no_grad():
                child.rebind(state[path], "load_state_dict")
        return child

    _change_parts(module, change)


def convert_parameters(module: Module, dtype: Any) -> None:
    """Give the parameters of a module, and of those inside that follow its policy, a dtype; buffers stay."""
    _convert_arrays(module, make_conversion((), dtype, None), follow_policy=True)


def _convert_arrays(module: Module, convert: Callable[[Any], Any], follow_policy: bool = False) -> None:
    """Put converted arrays in their places, in all modules below too; a tensor keeps its identity."""

    def change(name: str, child: Any) -> Any:
        if isinstance(child, Module):
            if not follow_policy or policy_of(child) is None:
                _convert_arrays(child, convert, follow_policy)
        elif follow_policy and name.partition(".")[0] in module.buffers:
            return child
        elif isinstance(child, Tensor) and is_array(child.value) and child.is_leaf:
            convert_tensor(child, convert)
        else:
            return convert(child)
        return child

    _change_parts(module, change)


def _flatten_module(module: Module) -> tuple[list[Any], ContainerTemplate, list[str]]:
    """Children, shape, and the names of children, as `register_tree` wants them."""
    known: ContainerTemplate | None = None if _HOOKS in vars(module) else vars(module).get(_SHAPE)
    found = None if known is None else collect_children(known, _visible_attributes(module))
    if known is None or found is None:
        children, names, shape = split_children(_visible_attributes(module))
        return children, shape, names
    return found, known, slot_names(known)


def _unflatten_module(kind: type[Module], shape: ContainerTemplate, children: Iterable[Any]) -> Module:
    module = object.__new__(kind)
    vars(module).update(fill_template(shape, iter(children)))
    vars(module)[_SHAPE] = shape
    if (scope := current_scope()) is not None:
        vars(module)[LEVEL] = scope.level
    return module
