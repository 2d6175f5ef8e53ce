"""Functions of ours as JAX sees them: calls back to the host, with pullbacks that are such functions again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec
from ..arrays.trees import unflatten
from .array_function import ArrayFunction
from .jax_arrays import as_frozen_array, import_jax, refuse_dtypes, spec_of_array


def call_tree(function: ArrayFunction, what: str, arrays: Sequence[Any]) -> Any:
    """The results of a function on arrays or traced values of JAX, as a tree."""
    jax = import_jax(what)
    given = [jax.numpy.asarray(x) for x in arrays]
    found = _border(function, what)(*given)
    return unflatten(function.stage(tuple(map(spec_of_array, given))).results, found)


def _border(function: ArrayFunction, what: str) -> Callable[..., tuple[Any, ...]]:
    """The function as a `jax.custom_vjp`, made once."""
    key = "border", what
    if key not in function.derived:
        function.derived[key] = _make_border(function, what)
    found: Callable[..., tuple[Any, ...]] = function.derived[key]
    return found


def _make_border(function: ArrayFunction, what: str) -> Callable[..., tuple[Any, ...]]:
    jax = import_jax(what)

    def call(*xs: Any) -> tuple[Any, ...]:
        specs = tuple(map(spec_of_array, xs))
        refuse_dtypes(specs, what)
        outs = [jax.ShapeDtypeStruct(s.shape, _narrow(s, what)) for s in function.stage(specs).output_specs]
        run = functools.partial(_run_on_host, function, specs, [s.dtype for s in outs])
        return tuple(jax.pure_callback(run, outs, *xs, vmap_method="expand_dims"))

    def forward(*xs: Any) -> Any:
        return border(*xs), xs

    def backward(xs: tuple[Any, ...], bars: tuple[Any, ...]) -> tuple[Any, ...]:
        wanted = tuple(i for i, x in enumerate(xs) if spec_of_array(x).inexact)
        along = [bar for bar in bars if bar.dtype != jax.dtypes.float0]
        found = _border(function.make_pullback(wanted, len(xs)), what)(*xs, *along) if along else ()
        shares = dict(zip(wanted, found, strict=False))
        return tuple(shares.get(i) for i in range(len(xs)))

    border = jax.custom_vjp(call)
    border.defvjp(forward, backward)
    made: Callable[..., tuple[Any, ...]] = border
    return made


def _narrow(spec: Spec, what: str) -> Any:
    """The dtype of a result in JAX, which rounds 64 bits to 32 by default."""
    return import_jax(what).dtypes.canonicalize_dtype(spec.dtype)


def _run_on_host(function: ArrayFunction, specs: Sequence[Spec], dtypes: Sequence[Any], *xs: Any) -> tuple[Any, ...]:
    """The results on arrays, of which each `jax.vmap` around the call has put an axis in front."""
    arrays = [as_frozen_array(x) for x in xs]
    for axis in reversed(range(max((x.ndim - len(s.shape) for x, s in zip(xs, specs, strict=True)), default=0))):
        sizes = [x.shape[axis] for x in arrays]
        # an argument that is common to the batch has an axis of one there
        size = next((n for n in sizes if n != 1), 1)
        function = function.vectorize(tuple(0 if n == size else None for n in sizes))
        arrays = [x if n == size else x.squeeze(axis) for x, n in zip(arrays, sizes, strict=True)]
    found, _ = function.run(arrays)
    return tuple(np.asarray(x, dtype) for x, dtype in zip(found, dtypes, strict=True))
