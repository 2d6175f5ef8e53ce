"""Sums of many arrays in one meeting: `totals` and its transpose `shares`; and, for programs, `totals` in two ops, one
that starts it and one that waits for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...errors import WorldError
from .. import statics
from ..dispatch import run
from ..families import general
from ..forms import Expand
from ..op import COLLECTIVE, OPS
from .batching import batch_behind
from .checks import check_finite
from .exchange import Concatenation, FiniteSums, Sum
from .records import RANKS, TO_COMMON, TO_OWN, as_native, meet, meet_many, world_of
from .timed_start import start_in_time
from .world import Started, make_call


def _meet_in_totals(
    xp: Any, xs: Sequence[Any], ranks: int, names: tuple[str, ...], outs: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    totals = meet_many(xp, "total", xs, ranks, Sum(), outs)
    check_totals(xp, xs, totals, ranks, names)
    return tuple(totals)


def _fill_totals(xp: Any, outs: Sequence[Any], xs: Sequence[Any], ranks: int, names: tuple[str, ...]) -> None:
    for out, total in zip(outs, _meet_in_totals(xp, xs, ranks, names, outs), strict=True):
        if total is not out:  # not every engine takes memory
            out[...] = total


def check_totals(xp: Any, xs: Sequence[Any], totals: Sequence[Any], ranks: int, names: tuple[str, ...]) -> None:
    """Raise if a total that has a name is not finite."""
    if names and not isinstance(totals, FiniteSums):
        check_finite(xp, names, xs, totals, lambda flags: meet(np, "finite", flags, ranks, Concatenation(0)))


def _samples_of_many(**more: Any) -> Any:
    shapes = ((3,), (2, 2)), ((),)
    return lambda rng: [(tuple(np.asarray(rng.normal(size=s)) for s in row), {"ranks": 1, **more}) for row in shapes]


def _apply_many(op: str, xs: Sequence[Any], specs: Sequence[Spec], ranks: int, more: dict[str, Any]) -> Any:
    """All ranks bring all values, zeros for those that are missing: another rank may have them."""
    return run(
        OPS[op],
        [zeros(s) if x is None or isinstance(x, Spec) else x for x, s in zip(xs, specs, strict=True)],
        {"ranks": ranks, **more},
    )


NAMES = statics.Static(
    "a tuple of names", lambda v, specs, static: isinstance(v, tuple) and all(isinstance(n, str) for n in v)
)
_UNNAMED: dict[str, Any] = {"names": ()}

totals_op = general(
    "totals",
    kinds=TO_COMMON,
    statics={"ranks": RANKS, "names": NAMES},
    value=lambda xp, *xs, ranks, names: _meet_in_totals(xp, xs, ranks, names),
    into=lambda xp, outs, *xs, ranks, names: _fill_totals(xp, outs, xs, ranks, names),
    spec=lambda *xs, ranks, names: tuple(xs),
    joint=lambda bar, specs, ranks: _apply_many("shares", bar, specs, ranks, {}),
    push=lambda tangents, out, primals, static: _apply_many(
        "totals", tangents, [spec_of(x) for x in primals], static["ranks"], _UNNAMED
    ),
    samples=_samples_of_many(**_UNNAMED),
    effects=COLLECTIVE,
    wide=False,
)
shares_op = general(
    "shares",
    kinds=TO_OWN,
    statics={"ranks": RANKS},
    value=lambda xp, *xs, ranks: tuple([xp.asarray(x) for x in xs]),
    spec=lambda *xs, ranks: tuple(xs),
    joint=lambda bar, specs, ranks: _apply_many("totals", bar, specs, ranks, _UNNAMED),
    push=lambda tangents, out, primals, static: _apply_many(
        "shares", tangents, [spec_of(x) for x in primals], static["ranks"], {}
    ),
    samples=_samples_of_many(),
    form=Expand(lambda *xs, ranks: xs),
    wide=False,
)
#: Sums under way in programs, by the number of their ticket.
_started: dict[int, Started] = {}
_tickets = itertools.count(1)


def _start_totals(xp: Any, xs: Sequence[Any], ranks: int) -> Any:
    arrays = [as_native(xp.asarray(x)) for x in xs]
    world = world_of("total", ranks)
    if world.size == 1:
        return np.array(0)
    call = make_call("total", Sum(), tuple([(x.dtype, x.shape) for x in arrays]), " (started)")
    number = next(_tickets)
    _started[number] = start_in_time(world, call, xp, arrays, Sum())
    return np.array(number)


def _finish_totals(xp: Any, ticket: Any, xs: Sequence[Any], ranks: int, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not int(ticket):  # nothing was started
        return _meet_in_totals(xp, xs, ranks, names)
    started = _started.pop(int(ticket), None)
    if started is None:
        raise WorldError(f"finish_totals: no sum was started with ticket {int(ticket)}, or it was waited for already.")
    totals = started.wait()
    check_totals(xp, xs, totals, ranks, names)
    return tuple(totals)


#: `totals` in two: what is computed between them runs beside. Programs have them in place of `totals`
#: (`program/overlap.py`); derivatives are taken of that.
start_totals_op = general(
    "start_totals",
    statics={"ranks": RANKS},
    value=lambda xp, *xs, ranks: _start_totals(xp, xs, ranks),
    spec=lambda *xs, ranks: make_spec((), np.dtype(np.int64), "cpu"),
    batch=batch_behind(0, True),
    samples=_samples_of_many(),
    effects=COLLECTIVE,
    wide=False,
)
finish_totals_op = general(
    "finish_totals",
    statics={"ranks": RANKS, "names": NAMES},
    value=lambda xp, ticket, *xs, ranks, names: _finish_totals(xp, ticket, xs, ranks, names),
    spec=lambda ticket, *xs, ranks, names: tuple(xs),
    batch=batch_behind(1, False),
    samples=lambda rng: [((np.array(0), rng.normal(size=3), rng.normal(size=2)), {"ranks": 1, **_UNNAMED})],
    effects=COLLECTIVE,
    wide=False,
)
