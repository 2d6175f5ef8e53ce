"""Functions of JAX as foreign functions, differentiated and batched by `jax.vjp`, `jax.jvp` and `jax.vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays.spec import Spec
from ..arrays.trees import flatten, unflatten
from ..errors import ArgumentError, DeviceError
from .foreign_op import ForeignFunction
from .jax_arrays import as_frozen_array, as_jax_array, import_jax, refuse_dtypes, spec_of_array

_WHAT = "interop.jax.as_op"


class JaxFunction(ForeignFunction):
    """A function of arrays in a row, which returns a tuple of them; compiled by JAX if wanted."""

    def __init__(self, name: str, flat: Callable[..., tuple[Any, ...]], compiled: bool) -> None:
        self.name, self.flat, self.compiled = name, flat, compiled
        self.function = import_jax(_WHAT).jit(flat) if compiled else flat

    def compute(self, arrays: Sequence[Any]) -> Sequence[Any]:
        jax = import_jax(_WHAT)
        if not all(isinstance(x, np.ndarray) for x in arrays):
            raise DeviceError(
                f"{_WHAT}: arrays are passed on the CPU, got one of a GPU.\n  Move it to the host: x.get()."
            )
        refuse_dtypes([spec_of_array(x) for x in arrays], _WHAT)
        # where JAX takes the memory as it is, it is read before this returns
        return [as_frozen_array(x) for x in jax.block_until_ready(self.function(*map(as_jax_array, arrays)))]

    def find_specs(self, specs: Sequence[Spec]) -> Sequence[Spec]:
        jax = import_jax(_WHAT)
        refuse_dtypes(specs, _WHAT)
        return [
            spec_of_array(x)
            for x in jax.eval_shape(self.flat, *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in specs))
        ]

    def make_pullback(self, wanted: tuple[int, ...], count: int) -> JaxFunction:
        def pull(*given: Any) -> tuple[Any, ...]:
            some = partial(self.call_floating, wanted, given[:count])
            _, back = import_jax(_WHAT).vjp(some, *(given[i] for i in wanted))
            return tuple(back(tuple(given[count:])))

        return JaxFunction(f"pullback of {self.name}", pull, self.compiled)

    def make_pushforward(self, moving: tuple[int, ...], count: int) -> JaxFunction:
        def push(*given: Any) -> tuple[Any, ...]:
            some = partial(self.call_floating, moving, given[:count])
            primals = tuple(given[i] for i in moving)
            return tuple(import_jax(_WHAT).jvp(some, primals, tuple(given[count:]))[1])

        return JaxFunction(f"pushforward of {self.name}", push, self.compiled)

    def vectorize(self, axes: tuple[int | None, ...]) -> JaxFunction:
        return JaxFunction(f"batch of {self.name}", import_jax(_WHAT).vmap(self.flat, axes), self.compiled)

    def is_floating(self, array: Any) -> bool:
        numpy = import_jax(_WHAT).numpy
        return bool(numpy.issubdtype(array.dtype, numpy.floating))


def make_jax_function(f: Callable[..., Any], name: str, compiled: bool, structure: Any) -> JaxFunction:
    """A function of trees of arrays, which returns a tree of them."""
    jax = import_jax(_WHAT)

    def flat(*arrays: Any) -> tuple[Any, ...]:
        args, kwargs = unflatten(structure, arrays)
        leaves, found.structure = flatten(f(*args, **kwargs))
        if not all(isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float)) for x in leaves):
            raise ArgumentError(f"{name}: results are trees of arrays, got {[type(x).__name__ for x in leaves]}.")
        return tuple(jax.numpy.asarray(x) for x in leaves)

    found = JaxFunction(name, flat, compiled)
    return found
