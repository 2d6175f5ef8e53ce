"""PyTorch: functions of ours as functions of its tensors, and its functions and modules as ops of ours."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.picklable import picklable
from ..errors import ArgumentError
from .array_function import TreeFunction
from .foreign_op import TreeOp
from .torch_border import call_tree
from .torch_function import copy_parameters, make_torch_function
from .torch_tensors import import_torch

__all__ = ["as_op", "parameters", "wrap"]


@picklable
def wrap(f: Callable[..., Any], *, jit: bool = True) -> Callable[..., Any]:
    """A function of ours as a function of PyTorch's tensors, in trees, which returns such tensors. PyTorch's autograd
    differentiates it by the derivatives here, to any order, and so do `torch.func.grad`, `jvp` and `vmap`.

    Memory is shared both ways, on the CPU and, by CuPy, on a GPU. Leaves of the arguments that are no tensors are
    settings. `jit=False` leaves f uncompiled, as where it looks at numbers.

    >>> import pullback as pb
    >>> f = pb.interop.torch.wrap(lambda x: pb.sum(pb.sin(x) ** 2))
    >>> x = torch.ones(3, requires_grad=True)  # doctest: +SKIP
    >>> f(x).backward(); x.grad  # doctest: +SKIP
    tensor([0.9093, 0.9093, 0.9093])
    """
    what = "interop.torch.wrap"
    check_functions(what, f)
    trees = TreeFunction(f, jit, what)

    def run(*args: Any, **kwargs: Any) -> Any:
        torch = import_torch(what)
        function, tensors = trees.split(args, kwargs, lambda x: isinstance(x, torch.Tensor), "a torch.Tensor")
        return call_tree(function, what, tensors)

    opaque: Callable[..., Any] | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal opaque
        # torch.compile must not look inside; its compiler, whose import takes seconds, is there if it compiles
        if opaque is None and "torch._dynamo" in sys.modules:
            opaque = sys.modules["torch._dynamo"].disable(run)
        return (opaque or run)(*args, **kwargs)

    return functools.update_wrapper(call, f) if hasattr(f, "__name__") else call


@picklable
def as_op(f: Any, *, functional: bool = False, pure: bool = False, vectorized: bool = True) -> Callable[..., Any]:
    """A function of PyTorch's tensors, in trees, or a module, as an op of ours: of arrays or tensors of ours, with
    derivatives of every order by `torch.func`, batches, and a place in compiled programs, which call back for it.

    Arguments are read where they lie, results are copied once. What f closes over, such as the parameters of a module,
    is constant; with `functional=True` the parameters of a module are the first argument, a dict by name
    (`pb.interop.torch.parameters`). A backward pass computes f again. `pure=True` says that f only computes its result,
    so that compiled programs may run it early and budgets again; `vectorized=False`, that it cannot be traced by
    `torch.func.vmap`, so that batches go element by element.

    >>> import pullback as pb
    >>> softplus = pb.interop.torch.as_op(torch.nn.functional.softplus)  # doctest: +SKIP
    >>> pb.grad(lambda x: pb.sum(softplus(x)))(np.zeros(2))  # doctest: +SKIP
    array([0.5, 0.5])
    """
    what = "interop.torch.as_op"
    torch = import_torch(what)
    check_functions(what, f)
    name = getattr(f, "__name__", type(f).__name__)
    if functional and not isinstance(f, torch.nn.Module):
        raise ArgumentError(f"{what}: functional=True is for modules, which have parameters, got a {type(f).__name__}.")

    def call_with(values: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(f, values, args, kwargs)

    made = functools.partial(make_torch_function, call_with if functional else f, name, vectorized)
    return TreeOp(made, pure, what, lambda x: torch.tensor(x).numpy())


def parameters(module: Any) -> dict[str, Any]:
    """The parameters of a module of PyTorch as arrays of ours by name: the first argument of `as_op(module,
    functional=True)`. They are copies.

    >>> import pullback as pb
    >>> pb.interop.torch.parameters(torch.nn.Linear(2, 1)).keys()  # doctest: +SKIP
    dict_keys(['weight', 'bias'])
    """
    torch = import_torch("interop.torch.parameters")
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"interop.torch.parameters: wants a torch.nn.Module, got a {type(module).__name__}.")
    return copy_parameters(module)
