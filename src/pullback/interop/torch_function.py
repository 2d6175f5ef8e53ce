"""Functions and modules of PyTorch as foreign functions, differentiated and batched by `torch.func`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from ..arrays.protect import as_immutable
from ..arrays.spec import Spec
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, ConversionError
from .foreign_op import ForeignFunction
from .torch_tensors import as_array, as_tensor, import_torch, make_empty, spec_of_tensor

_WHAT = "interop.torch.as_op"


class TorchFunction(ForeignFunction):
    """A function of tensors in a row, which returns a tuple of them. A derivative computes again what the function
    computes, and `repeats` is its name.
    """

    def __init__(
        self, name: str, flat: Callable[..., tuple[Any, ...]], vectorized: bool, repeats: str | None = None
    ) -> None:
        self.name, self.flat, self.vectorized, self.repeats = name, flat, vectorized, repeats

    def compute(self, arrays: Sequence[Any]) -> Sequence[Any]:
        torch = import_torch(_WHAT)
        with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode do not count their changes
            tensors = [as_tensor(x, _WHAT) for x in arrays]
            before = torch.random.get_rng_state() if self.repeats else None
            found = self.flat(*tensors)
            if before is not None and not before.equal(torch.random.get_rng_state()):
                self._refuse_draws(tensors)
        changed = [i for i, t in enumerate(tensors) if t._version]
        if changed:
            raise ArgumentError(
                f"{self.name}: the function modified argument {changed[0]} in place, whose memory is that of the "
                "caller's array.\n  Let it work on a copy: x.clone()."
            )
        # PyTorch may keep a result, such as a buffer of a module, and write to it
        return [as_immutable(as_array(t, _WHAT)) for t in found]

    def _refuse_draws(self, tensors: Sequence[Any]) -> None:
        """Raise if a derivative draws random numbers, which are others than those of the value that it belongs to."""
        if _draws(lambda: self.flat(*tensors)):
            raise ArgumentError(
                f"{self.repeats}: the function draws random numbers, and its derivative computes it again, with others."
                "\n  Pass what is drawn as an argument, or call net.eval() if it is a module with dropout."
            )

    def find_specs(self, specs: Sequence[Spec]) -> Sequence[Spec]:
        torch = import_torch(_WHAT)
        fake = import_module("torch._subclasses.fake_tensor")
        try:
            with fake.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                found = self.flat(*(make_empty(s, _WHAT) for s in specs))
        except (fake.DataDependentOutputException, fake.DynamicOutputShapeException) as error:
            raise ConversionError(
                f"{self.name}: the shapes of its results are asked for before there are numbers, and it decides by "
                f"numbers ({error}).\n  Call it outside of what is traced, or write it by torch.where and masks."
            ) from error
        return list(map(spec_of_tensor, found))

    def make_pullback(self, wanted: tuple[int, ...], count: int) -> TorchFunction:
        def pull(*given: Any) -> tuple[Any, ...]:
            some = partial(self.call_floating, wanted, given[:count])
            _, back = import_torch(_WHAT).func.vjp(some, *(given[i] for i in wanted))
            return tuple(back(tuple(given[count:])))

        return TorchFunction(f"pullback of {self.name}", pull, self.vectorized, self.repeats or self.name)

    def make_pushforward(self, moving: tuple[int, ...], count: int) -> TorchFunction:
        def push(*given: Any) -> tuple[Any, ...]:
            some = partial(self.call_floating, moving, given[:count])
            primals = tuple(given[i] for i in moving)
            return tuple(import_torch(_WHAT).func.jvp(some, primals, tuple(given[count:]))[1])

        return TorchFunction(f"pushforward of {self.name}", push, self.vectorized, self.repeats or self.name)

    def vectorize(self, axes: tuple[int | None, ...]) -> TorchFunction | None:
        if not self.vectorized:
            return None
        batch = import_torch(_WHAT).func.vmap(self.flat, in_dims=axes, randomness="different")
        return TorchFunction(f"batch of {self.name}", batch, True, self.repeats)

    def is_floating(self, array: Any) -> bool:
        return bool(array.is_floating_point())


def _draws(run: Callable[[], Any]) -> bool:
    """Whether a function draws random numbers; those of other threads do not count."""
    torch = import_torch(_WHAT)
    found = False

    class Look(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal found
            found = found or torch.Tag.nondeterministic_seeded in op.tags
            return op(*args, **kwargs or {})

    with Look():
        run()
    return found


def make_torch_function(f: Callable[..., Any], name: str, vectorized: bool, structure: Any) -> TorchFunction:
    """A function of trees of tensors, which returns a tree of them."""
    torch = import_torch(_WHAT)

    def flat(*tensors: Any) -> tuple[Any, ...]:
        args, kwargs = unflatten(structure, tensors)
        leaves, found.structure = flatten(f(*args, **kwargs))
        if not all(isinstance(x, (torch.Tensor, bool, int, float)) for x in leaves):
            raise ArgumentError(f"{name}: results are trees of tensors, got {[type(x).__name__ for x in leaves]}.")
        return tuple(torch.as_tensor(x) for x in leaves)

    found = TorchFunction(name, flat, vectorized)
    return found


def copy_parameters(module: Any) -> dict[str, Any]:
    """The parameters of a module by name, copied."""
    return {name: np.array(as_array(p, _WHAT)) for name, p in module.named_parameters()}
