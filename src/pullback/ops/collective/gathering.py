"""Arrays of several dtypes, gathered from all ranks in one meeting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, spec_of, zeros
from .. import statics
from ..dispatch import apply, run
from ..families import general
from ..op import COLLECTIVE
from .exchange import Concatenation
from .records import OWN, RANKS, join_spec, meet_many, reduce_scatter_op


def _scatter_many(bars: Sequence[Any], specs: Sequence[Spec], ranks: int, axis: int) -> list[Any]:
    """The transpose: all ranks bring a cotangent of each float array, zeros where they have none."""
    wholes = [
        zeros(join_spec(s, ranks, axis)) if b is None or isinstance(b, Spec) else b
        for b, s in zip(bars, specs, strict=True)
    ]
    pairs = zip(wholes, specs, strict=True)
    return [apply(reduce_scatter_op, b, ranks=ranks, axis=axis) if s.inexact else None for b, s in pairs]


def _push(tangents: Sequence[Any], primals: Sequence[Any], static: dict[str, Any]) -> Any:
    pairs = zip(tangents, primals, strict=True)
    return run(gathers_op, [zeros(spec_of(x)) if t is None else t for t, x in pairs], static)


def _samples(rng: Any) -> Any:
    shapes = ((3,), (2, 2)), ((1,),)
    return [(tuple(np.asarray(rng.normal(size=s)) for s in row), {"ranks": 1, "axis": 0}) for row in shapes]


gathers_op = general(
    "gathers",
    kinds=OWN,
    statics={"ranks": RANKS, "axis": statics.axis},
    value=lambda xp, *xs, ranks, axis: tuple(meet_many(xp, "all_gather", xs, ranks, Concatenation(axis))),
    spec=lambda *xs, ranks, axis: tuple([join_spec(x, ranks, axis) for x in xs]),
    joint=lambda bar, specs, ranks, axis: _scatter_many(bar, specs, ranks, axis),
    push=lambda tangents, out, primals, static: _push(tangents, primals, static),
    samples=_samples,
    effects=COLLECTIVE,
    wide=False,
)
