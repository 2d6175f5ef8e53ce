"""Program in, one whose sums over ranks begin as soon as their terms are there out: each bucket of terms is started by
one op and waited for by another, so that what is computed between them runs beside the communication.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..ops.collective.buckets import BUCKET_MB, make_buckets
from ..ops.collective.many import finish_totals_op, start_totals_op, totals_op
from .ir import Equation, Program, Symbol


def start_sums_early(program: Program, bucket_mb: float = BUCKET_MB) -> Program:
    """The program with sums of many values split into buckets, where there is more than one."""
    made = {id(s): k for k, e in enumerate(program.equations) for s in e.results}
    behind: dict[int, list[Equation]] = {}
    instead: dict[int, list[Equation]] = {}
    for k, e in enumerate(program.equations):
        if e.op is totals_op and all(isinstance(a, Symbol) for a in e.args):
            _split(e, k, made, bucket_mb, behind, instead)
    if not instead:
        return program
    equations: list[Equation] = list(behind.get(-1, ()))
    for k, e in enumerate(program.equations):
        equations += [*instead.get(k, (e,)), *behind.get(k, ())]
    return dataclasses.replace(program, equations=tuple(equations))


def _split(
    e: Equation, k: int, made: dict[int, int], bucket_mb: float,
    behind: dict[int, list[Equation]], instead: dict[int, list[Equation]],
) -> None:  # fmt: skip
    """Plan the starts of a sum's buckets, each behind the equation that makes its last term."""
    ready = [made.get(id(a), -1) for a in e.args]
    order = sorted(range(len(ready)), key=lambda i: ready[i])
    buckets = make_buckets([a.spec.nbytes for a in e.args], order, bucket_mb)
    if len(buckets) == 1:
        return
    instead[k] = []
    for bucket in buckets:
        terms = tuple(e.args[i] for i in bucket)
        start, finish = _pair(e, terms, bucket)
        behind.setdefault(max(ready[i] for i in bucket), []).append(start)
        instead[k].append(finish)


def _pair(e: Equation, terms: Sequence[Symbol], bucket: Sequence[int]) -> tuple[Equation, Equation]:
    ranks, names = e.static["ranks"], e.static["names"]
    spec = start_totals_op.spec_of([t.spec for t in terms], {"ranks": ranks})
    ticket = Symbol(spec, e.results[0].scope, [], None)
    own = {"ranks": ranks, "names": tuple(names[i] for i in bucket) if names else ()}
    start = Equation((ticket,), start_totals_op, tuple(terms), {"ranks": ranks})
    return start, Equation(tuple(e.results[i] for i in bucket), finish_totals_op, (ticket, *terms), own)
