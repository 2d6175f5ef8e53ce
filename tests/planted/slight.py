"""Slight mistakes in every rule of every op, a factor of 1 + 1e-6, and which role sees them.

`PYTHONPATH=src python tests/planted/slight.py [op…]` prints what none sees.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mutations import INERT, Mutation, each, in_the_plane, moving, planted, still, wrong_pull, wrong_push

import pullback as pb
from pullback.ops import Op, load_all_ops
from pullback.tools.certify.cases import Case, cases_of, flat_vector
from pullback.tools.certify.report import Outcome
from pullback.tools.certify.roles import ROLES
from pullback.tools.certify.run import op_outcomes

#: Roles by which mistakes in the derivatives and in the batching of an op are found, without mpmath's help.
CHEAP = tuple(role for role in ROLES if role.name in ("value", "transpose", "differences", "second", "third", "batch"))
COMPILED = tuple(role for role in ROLES if role.name == "compiled")

#: What cannot be seen, with the reason. Nothing else is excused.
UNSEEN: dict[tuple[str, str], str] = {
    ("positive", "kernel"): "the identity is taken out before there is a kernel",
    ("logaddexp2", "kernel"): "compiled programs leave it to NumPy",
    ("imag", "kernel"): "compiled programs leave complex numbers to NumPy",
    ("clip", "pull of upper, one element"): "no sample is limited at that element, so its cotangent is zero",
    ("barrier", "batch"): "it takes no arrays, so there is never a batch of them",
    ("window_put", "push, one element"): "no sample puts anything at that element, so its tangent is zero",
}


def scale_by(size: float) -> Callable[[Any], Any]:
    return lambda x: pb.multiply(x, 1.0 + size)


def scale_one(size: float) -> Callable[[Any], Any]:
    """One element off by a factor, in the middle."""

    def change(x: Any) -> Any:
        factors = np.ones(x.shape)
        if factors.size:
            factors.flat[factors.size // 2] += size
        return pb.multiply(x, factors)

    return change


def bend_by(size: float) -> Callable[[Any], Any]:
    """The number itself is right, and everything that is derived from it off by a factor."""
    return lambda x: pb.add(x, pb.multiply(pb.subtract(x, still(x)), size))


def wrong_both(change: Callable[[Any], Any]) -> Callable[[Op], dict[str, Any]]:
    """All formulas of an op off alike, so that both modes agree with each other."""

    def fields(op: Op) -> dict[str, Any]:
        found = wrong_push(change)(op)
        if op.joint is not None:
            return {**found, **wrong_pull(None, change)(op)}
        pulls = {a: wrong_pull(a, change)(op)["pulls"][a] for a, rule in op.pulls.items() if rule is not None}
        return {**found, "pulls": {**op.pulls, **pulls}}

    return fields


def of_floats(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Whole numbers and truths off by one in one place, floats by a factor."""

    def changed(x: Any) -> Any:
        kind = getattr(getattr(x, "dtype", None), "kind", "")
        if kind in ("f", "c"):
            return change(x)
        if not isinstance(x, np.ndarray) or not x.size:
            return x
        moved = x.copy()
        moved.flat[-1] = not moved.flat[-1] if kind == "b" else moved.flat[-1] + 1
        return moved

    return changed


def wrong_value(size: float, one: bool) -> Callable[[Op], dict[str, Any]]:
    def change(x: Any) -> Any:
        factors = np.ones(np.shape(x))
        factors.flat[-1 if one else slice(None)] += size
        return np.asarray((x * factors).astype(x.dtype)) if factors.size else x

    def fields(op: Op) -> dict[str, Any]:
        value = op.value
        return {"value": lambda xp, *arrays, **static: each(value(xp, *arrays, **static), of_floats(change))}

    return fields


def wrong_batch(change: Callable[[Any], Any]) -> Callable[[Op], dict[str, Any]]:
    def fields(op: Op) -> dict[str, Any]:
        rule = op.batch

        def batch(*given: Any) -> Any:
            out, axis = rule(*given)
            return each(out, of_floats(change)), axis

        return {"batch": batch}

    return fields


def wrong_kernel(size: float) -> Callable[[Op], dict[str, Any]]:
    def fields(op: Op) -> dict[str, Any]:
        kernel = op.kernel
        return {"kernel": lambda k, *scalars: k.multiply(kernel(k, *scalars), k.constant(1.0 + size))}

    return fields


def slight(op: Op, size: float = 1e-6) -> Iterator[Mutation]:
    """A mistake of a relative size in each of an op's rules."""
    yield Mutation(op.name, "value", wrong_value(size, one=False))
    yield Mutation(op.name, "value, one element", wrong_value(size, one=True))
    yield Mutation(op.name, "batch", wrong_batch(scale_by(size)))
    if not op.differentiable or op.name in INERT:
        return
    some = moving(op)
    pulled = [a for a in op.args if op.pulls.get(a) is not None and a in some] if op.joint is None else ["all"]
    if not pulled:
        return
    for kind, change in (("", scale_by(size)), (", one element", scale_one(size))):
        for a in pulled:
            yield Mutation(op.name, f"pull of {a}{kind}", wrong_pull(a, change))
        yield Mutation(op.name, f"push{kind}", wrong_push(change))
        yield Mutation(op.name, f"both{kind}", wrong_both(change))
    if is_curved(op):
        for a in pulled:
            yield Mutation(op.name, f"curvature of pull of {a}", wrong_pull(a, bend_by(size)))
        yield Mutation(op.name, "curvature of push", wrong_push(bend_by(size)))
        yield Mutation(op.name, "curvature of both", wrong_both(bend_by(size)))


def is_curved(op: Op) -> bool:
    """Whether some sample has a second derivative, so that it can be wrong."""
    return any(np.any(flat_vector(second_along(case))) for case in cases_of(op, "fc") if case.moving)


def second_along(case: Case) -> Any:
    v = [np.asarray(d).astype(np.asarray(x).dtype) for d, x in zip(case.direction(1), case.floats, strict=True)]
    with np.errstate(all="ignore"):
        return pb.jvp(lambda *ys: pb.jvp(case.function, ys, v)[1], case.floats, v)[1]


def kernels(op: Op, size: float = 1e-6) -> Iterator[Mutation]:
    """A mistake in compiled code alone."""
    if op.kernel is not None and op.differentiable and op.name not in INERT:
        yield Mutation(op.name, "kernel", wrong_kernel(size))


def seen(mutation: Mutation) -> Outcome | None:
    """The first role that fails with the mistake in place."""
    with planted(mutation) as op:
        roles = COMPILED if mutation.kind == "kernel" else CHEAP
        return next((outcome for outcome in op_outcomes(op, mutation.dtypes, roles) if not outcome.ok), None)


def unseen(mutations: list[Mutation]) -> list[Mutation]:
    """The mistakes that no role sees and no reason excuses."""
    return [m for m in mutations if (m.op, m.kind) not in UNSEEN and seen(m) is None]


def every_slight(size: float = 1e-6) -> list[Mutation]:
    found = [m for op in list(load_all_ops().values()) for m in (*slight(op, size), *kernels(op, size))]
    return [in_the_plane(m) for m in found]


if __name__ == "__main__":
    start, wanted = time.perf_counter(), set(sys.argv[1:])
    chosen = [m for m in every_slight() if (not wanted or m.op in wanted) and (m.op, m.kind) not in UNSEEN]
    found = {m: seen(m) for m in chosen}
    by_role = Counter("none" if outcome is None else outcome.role for outcome in found.values())
    missed = [m for m, outcome in found.items() if outcome is None]
    print(*missed, sep="\n")
    print(", ".join(f"{role}: {count}" for role, count in by_role.most_common()))
    print(f"{len(chosen)} planted, {len(missed)} not seen, {time.perf_counter() - start:.0f} s")
