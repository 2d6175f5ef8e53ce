"""`flatten` by NumPy's functions, and `const_graph` as a staged program."""

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb

from ..trees import leaves, tree_map


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """One vector with every number of the tree, and the way back."""
    parts = [np.reshape(leaf, (-1,)) for leaf in leaves(value)]
    numbered = tree_map(lambda leaf: [leaf], value)
    boxes = list(_boxes(numbered))
    order = {id(box): i for i, box in enumerate(boxes)}
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + part.shape[0])

    def rebuild(vector: Any, form: Any) -> Any:
        if isinstance(form, list) and id(form) in order:
            i = order[id(form)]
            return np.reshape(vector[starts[i] : starts[i + 1]], np.shape(form[0]))[()]
        if isinstance(form, dict):
            return {key: rebuild(vector, part) for key, part in form.items()}
        return type(form)([rebuild(vector, part) for part in form])

    return (np.concatenate(parts) if parts else np.zeros(0)), lambda vector: rebuild(vector, numbered)


def _boxes(form: Any) -> Any:
    """The one-element lists that stand for leaves, in the order of `leaves`."""
    if isinstance(form, dict):
        for key in sorted(form):
            yield from _boxes(form[key])
    elif isinstance(form, list) and len(form) == 1 and not isinstance(form[0], (list, tuple, dict)):
        yield form
    else:
        for part in form:
            yield from _boxes(part)


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function with the arguments given, staged at its first call and replayed from then on."""
    found: list[Any] = []

    def call(*more: Any) -> Any:
        if not found:
            found.append(pb.stage(lambda *xs: fun(*args, *xs, **kwargs))(*map(np.asarray, more)))
        return found[0].run(*map(np.asarray, more))

    return call
