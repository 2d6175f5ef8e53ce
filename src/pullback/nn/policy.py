"""`Policy`: the dtypes of a module's parameters, of what it computes, and of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..arrays.dtypes import as_dtype
from ..errors import ArgumentError
from ..ops.casting import Casting, cast_leaves
from ..settings import modes, override_modes

_DTYPES = ("float32", "bfloat16", "float16")


class _Fields(NamedTuple):
    params: str | None
    compute: str | None
    output: str | None


class Policy(_Fields):
    """The dtypes of a module: `params` its parameters are stored in, `compute` they and the inputs are cast to in each
    call, `output` the results are cast to; None leaves them as they are. Give it to a module by `module.policy =
    policy` or `pb.amp.apply(module, policy)`: the modules inside cast their inputs and parameters alike, except those
    with a policy of their own.

    Unlike `pb.autocast`, no op is decided by itself: the module computes in what its inputs and parameters promote to.
    Float64, integers and buffers (running statistics) are left alone.

    >>> import numpy as np, pullback as pb
    >>> net = pb.nn.Sequential(pb.nn.Linear(3, 4), pb.nn.ReLU())
    >>> net.policy = pb.Policy(compute="float16", output="float32")
    >>> y = net(np.ones((2, 3), "float32"))
    >>> pb.sum(y).backward()
    >>> y.dtype, net[0].weight.grad.dtype
    (dtype('float32'), dtype('float32'))
    """

    __slots__ = ()

    def __new__(cls, params: Any = "float32", compute: Any = "bfloat16", output: Any = "float32") -> Policy:
        names = (("params", params), ("compute", compute), ("output", output))
        return _Fields.__new__(cls, *(_check_dtype(given, name) for name, given in names))

    def call(self, function: Callable[..., Any], parameters: Iterable[Any], args: Any, kwargs: Any) -> Any:
        """Call a function of the parameters of a module."""
        around = modes().autocast
        if self.compute is None:
            out = function(*args, **kwargs)
        else:
            dtype = as_dtype(self.compute)
            args, kwargs = _cast_arguments(args, kwargs, dtype)
            inside = Casting(dtype, parameters=tuple(parameters), around=around)
            with override_modes(autocast=inside):
                out = function(*args, **kwargs)
            if around is None:
                inside.shared.clear()
        with override_modes(autocast=None):
            return out if self.output is None else cast_leaves(out, as_dtype(self.output))


def _check_dtype(given: Any, name: str) -> str | None:
    if given is None:
        return None
    if isinstance(given, str) and given.startswith("mixed_"):
        ours = f"pb.Policy(compute={given[6:]!r}, output=None)"
        raise ArgumentError(f"Policy: {given!r} is a name of Keras'; here it is {ours}.")
    found = as_dtype(given).name
    if found not in _DTYPES:
        raise ArgumentError(f"Policy: {name} is one of {', '.join(_DTYPES)} or None, got {found}.")
    return str(found)


def cast_inputs(around: Casting, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a module inside of one that has a policy, in the dtype that this one computes in."""
    if around.parameters is None:
        return args, kwargs
    return _cast_arguments(args, kwargs, around.low)


def _cast_arguments(args: Any, kwargs: Any, dtype: Any) -> tuple[Any, Any]:
    with override_modes(autocast=None):
        return [cast_leaves(x, dtype) for x in args], {name: cast_leaves(x, dtype) for name, x in kwargs.items()}


def policy_of(module: Any) -> Policy | None:
    """The policy that a module was given; other things of that name are its own."""
    found = vars(module).get("policy")
    return found if type(found) is Policy else None
