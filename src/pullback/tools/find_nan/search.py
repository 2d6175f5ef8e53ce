"""`find_nan`: a function run once, with every op that computes in sight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...arrays.argument_checks import check_functions
from ...arrays.backends import is_array
from ...arrays.picklable import describe_function
from ...arrays.spec import is_inexact, spec_of
from ...arrays.tensor import tensor
from ...arrays.trees import flatten, leaf_paths, map_tree, unflatten
from ...arrays.value import unwrap_array
from ...compile.jit import Jitted, trace_located
from ...errors import ArgumentError
from ...ops.user_calls import call_function
from ...settings import override_modes
from ...transforms.reverse import vjp
from .classify import is_finite, kind_of
from .compiled import search_program
from .records import Fault, Source
from .report import NanReport
from .watch import NanWatch


def find_nan(
    f: Callable[..., Any],
    *args: Any,
    backward: bool = False,
    every: bool = False,
    as_tensors: bool = True,
    **kwargs: Any,
) -> NanReport:
    """Run `f(*args, **kwargs)` once and name the first op, and the line, that made a NaN or an infinity which reached a
    result: in the forward pass, in the rule of a derivative (`f` may call `grad`, `jvp`, `vmap`, `backward`), or in a
    compiled function, whose equations are then looked at in a checked build. `backward=True` also pulls ones back from
    the results of f to all its floating arguments. An infinity that an argument or a constant brought is no fault; a
    NaN that an op made of it is. With `every`, the report lists the ops that passed such numbers on, too. Arrays are
    passed as tensors, unless f is compiled or `as_tensors=False`: NumPy's arithmetic on bare arrays is not seen.

    >>> import numpy as np, pullback as pb
    >>> def loss(w):
    ...     return pb.sum(pb.log(w))
    >>> report = pb.tools.find_nan(loss, np.array([1.0, -1.0]))
    >>> report.first.op, report.first.kind, report.first.index, report.first.given
    ('log', 'nan', (1,), 'x = -1')
    >>> bool(pb.tools.find_nan(loss, np.array([1.0, 2.0])))
    True
    """
    check_functions("find_nan", f)
    watch = NanWatch(search_program)
    if as_tensors and not isinstance(f, Jitted):
        args, kwargs = map_tree(_as_tensor, (args, kwargs))
    arguments = _note_arguments(watch, args, kwargs)
    what = describe_function(f)
    results: dict[str, tuple[str, Source | Fault]] = {}
    error = None
    try:
        with trace_located(), override_modes(watch), np.errstate(all="ignore"):
            found = _run(f, args, kwargs, backward)
            results = _trace_results(watch, found)
    except Exception as raised:
        if not watch.faults:
            raise
        error = raised
    led = watch.faults if error is not None else list(_faults_behind(source for _, source in results.values()))
    passed = [(name, "" if origin is None else origin.line) for name, origin in watch.passed]
    return NanReport(
        min(led, key=lambda fault: fault.number, default=None), results, arguments, tuple(watch.faults),
        tuple(passed) if every else (), error, what,
    )  # fmt: skip


def _as_tensor(x: Any) -> Any:
    return tensor(x) if is_array(x) else x


def _note_arguments(watch: NanWatch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """The arguments that are not finite, by their paths; the watch knows them."""
    leaves, structure = flatten((args, kwargs))
    found = {}
    for leaf, path in zip(leaves, leaf_paths(structure), strict=True):
        array = unwrap_array(leaf)
        if is_array(array) and not is_finite(array):
            name = path[3:]  # that of ([0]) positional or ([1]) keyword arguments
            found[name] = kind_of(array)
            watch.note(array, Source("argument", f"argument {name}"))
    return found


def _run(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], backward: bool) -> dict[str, Any]:
    """The results by what they are, those of the backward pass too."""
    if not backward:
        return {"result": call_function(f, args, kwargs)}
    leaves, structure = flatten((args, kwargs))
    moving = [i for i, x in enumerate(leaves) if _is_floating(x)]
    if not moving:
        raise ArgumentError("find_nan: backward=True wants an argument of a floating dtype, got none.")

    def of_floats(*floats: Any) -> Any:
        every = list(leaves)
        for i, x in zip(moving, floats, strict=True):
            every[i] = x
        again, named = unflatten(structure, every)
        return f(*again, **named)

    out, pull = vjp(of_floats, *(leaves[i] for i in moving))
    outs, shape = flatten(out)
    bars = unflatten(shape, [np.ones(spec_of(x).shape, spec_of(x).dtype) for x in outs])
    paths = leaf_paths(structure)
    pulled = pull(bars)
    return {"result": out} | {f"gradient {paths[i][3:]}": x for i, x in zip(moving, pulled, strict=True)}


def _is_floating(x: Any) -> bool:
    array = unwrap_array(x)
    return (is_array(array) and is_inexact(array.dtype)) or isinstance(x, (float, complex))


def _trace_results(watch: NanWatch, found: dict[str, Any]) -> dict[str, tuple[str, Source | Fault]]:
    """The results that are not finite, by their paths."""
    traced = {}
    for name, tree in found.items():
        leaves, structure = flatten(tree)
        for leaf, path in zip(leaves, leaf_paths(structure), strict=True):
            array = unwrap_array(leaf)
            if is_array(array) and not is_finite(array):
                traced[f"{name}{path}"] = kind_of(array), watch.source_of(array)
    return traced


def _faults_behind(sources: Iterable[Source | Fault]) -> Iterable[Fault]:
    """The faults among sources, and among what led to them."""
    for source in sources:
        if isinstance(source, Fault):
            yield source
            yield from _faults_behind(source.causes)
