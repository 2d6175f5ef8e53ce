"""Program in, one that first agrees with those of other ranks out: which collectives it will call, and in what order.

Each collective is compared anyway when ranks meet there. Compared beforehand, a program that differs on one rank raises
before it has done anything: no donated argument is overwritten, no other collective has run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from ..arrays.spec import spec_of
from ..ops.collective.agreement import barrier_op
from .ir import Equation, Program, Symbol

#: How many collectives are named where programs differ.
_NAMED = 6


def agree_first(program: Program, name: str) -> Program:
    """The program, with a meeting of all ranks in front if it has collectives."""
    calls = list(_collective_calls(program))
    ranks = next((n for _, n in calls if n > 1), 1)
    if ranks == 1:
        return program
    texts = [text for text, _ in calls]
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    text = f"compiled {name}, which calls {', '.join(texts[:_NAMED])}{more} (digest {digest})"
    spec = barrier_op.spec_of((), {"ranks": ranks, "text": text})
    result = Symbol(spec, program.equations[0].results[0].scope, [], None)
    return dataclasses.replace(
        program,
        equations=(Equation((result,), barrier_op, (), {"ranks": ranks, "text": text}), *program.equations),
    )


def _collective_calls(program: Program) -> Iterator[tuple[str, int]]:
    """What each collective of a program is called with, and on how many ranks; those of inner programs too."""
    for e in program.equations:
        if e.effects.alone:
            continue
        inner = [p for v in e.static.values() for p in (v if type(v) is tuple else (v,)) if isinstance(p, Program)]
        if inner:
            for body in inner:
                yield from _collective_calls(body)
            continue
        specs = ", ".join(f"{s.dtype.name}{list(s.shape)}" for s in map(spec_of, e.args))
        more = "".join(f", {k}={v}" for k, v in sorted(e.static.items()) if k != "ranks")
        yield f"{e.op.name} of {specs}{more}", e.static.get("ranks", 1)
