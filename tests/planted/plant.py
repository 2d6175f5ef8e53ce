"""Wrong rules in, those that certification did not notice out: `PYTHONPATH=src python tests/planted/plant.py [op…]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from mutations import Mutation, every_mutation, planted

from pullback.tools.certify.report import Outcome
from pullback.tools.certify.roles import ROLES
from pullback.tools.certify.run import op_outcomes

#: All but the slow ones: wrong rules must be caught without mpmath's digits, and compiled code repeats the rule.
QUICK = tuple(role for role in ROLES if role.name not in ("digits", "compiled"))


def caught(mutation: Mutation) -> Outcome | None:
    """The first role that fails with the mistake in place; None: nobody noticed."""
    with planted(mutation) as op:
        return next((outcome for outcome in op_outcomes(op, mutation.dtypes, QUICK) if not outcome.ok), None)


def sweep(mutations: Sequence[Mutation]) -> list[Mutation]:
    """The mistakes that are not caught."""
    return [mutation for mutation in mutations if caught(mutation) is None]


if __name__ == "__main__":
    start, wanted = time.perf_counter(), set(sys.argv[1:])
    chosen = [m for m in every_mutation() if not wanted or m.op in wanted]
    missed = sweep(chosen)
    print(*missed, sep="\n")
    print(f"{len(chosen)} planted, {len(missed)} not caught, {time.perf_counter() - start:.0f} s")
    sys.exit(bool(missed))
