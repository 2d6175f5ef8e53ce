"""`repeat`, the loop while a condition holds as an op: (carry, constants) in, (carry, number of rounds) out.

The push is the loop of the step's push. The number of rounds, and so what to save for the backward pass, is unknown
beforehand. After n rounds, the backward loop walks them from the last to the first and finds each state by halving:
the states at the beginning of ever shorter stretches are saved in a fixed number of slots, and a state is reached from
the nearest one by repeating steps. That is at most log2(n) / 2 times the steps, and `SLOTS` states of memory. The
walk is a loop of this kind itself, so that derivatives of every order follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays.origin import register_round
from ....arrays.spec import Spec, make_spec, spec_of, zeros
from ....errors import DtypeError, ShapeError
from ....ops import basis, statics
from ....ops.dispatch import apply
from ....ops.elementwise import pointwise
from ....ops.forms import Flow
from ....ops.index.indexing import getitem, set_at
from ....ops.op import Formula, Op
from ....ops.reduce.reductions import any as any_of
from ....ops.shape.reshaping import astype
from ....program.ir import Program
from ....program.run import run
from ...custom.rules import make_custom_record
from .branch import apply_branch
from .derive import (
    PROGRAM,
    check_program,
    derive,
    derive_batch,
    derive_once,
    derive_pull,
    derive_push,
    ensure_batch_axis,
    float_places,
    refuse_collecting,
    stage_derived,
)

#: States that the backward loop saves: enough for 2**32 rounds.
SLOTS = 33
_COUNT_DTYPE = np.dtype(np.int64)


def apply_repeat(condition: Program, body: Program, carry: Sequence[Any], constants: Sequence[Any]) -> tuple[Any, ...]:
    """Run the loop: the last carry, then the number of rounds."""
    found: tuple[Any, ...] = apply(
        repeat, *carry, *constants, condition=condition, body=body, carries=len(carry)
    )  # fmt: skip
    return found


def _value(xp: Any, *args: Any, condition: Program, body: Program, carries: int) -> Any:
    carry, held = list(args[:carries]), args[carries:]
    rounds = 0
    while bool(run(condition, (*carry, *held))[0]):
        carry = run(body, (*carry, *held))
        rounds += 1
    return (
        *(xp.array(c, s.dtype) for c, s in zip(carry, body.output_specs, strict=True)),
        xp.asarray(rounds, _COUNT_DTYPE),
    )


register_round(_value, "rounds", "repeat")


def _spec(*specs: Spec, condition: Program, body: Program, carries: int) -> tuple[Spec, ...]:
    truth = check_program("repeat: the condition", condition, specs).output_specs
    if len(truth) != 1 or truth[0].shape or truth[0].dtype.kind != "b":
        raise DtypeError("repeat: the condition must return one boolean.")
    check_program("repeat: the step", body, specs, carries)
    if len(body.outputs) != carries or carries > len(specs):
        raise ShapeError(f"repeat: the step makes {len(body.outputs)} values, and {carries} are carried.")
    return (*body.output_specs, _count_spec(specs))


def _count_spec(specs: Sequence[Spec], shape: tuple[int, ...] = ()) -> Spec:
    """Numbers of rounds, on the device of a loop's arguments, where the device itself counts."""
    return make_spec(shape, _COUNT_DTYPE, next((s.device for s in specs if s.device != "cpu"), "cpu"))


def _push(
    tangents: tuple[Any, ...], args: tuple[Any, ...], condition: Program, body: Program, carries: int
) -> tuple[Any, ...]:
    specs = [spec_of(x) for x in args]
    carried = [i for i in float_places(specs) if i < carries]
    moving = (*carried, *(i for i, t in enumerate(tangents) if i >= carries and t is not None))
    step = derive_push(body, moving)
    dots = [zeros(specs[i]) if tangents[i] is None else tangents[i] for i in moving]
    first, count, more = len(carried), len(args), len(moving)

    def step_all(*values: Any) -> list[Any]:
        xs = [*values[:carries], *values[carries + first : count + first]]
        return run(step, (*xs, *values[carries : carries + first], *values[count + first :]))

    def is_active(*values: Any) -> list[Any]:
        return run(condition, (*values[:carries], *values[carries + first : count + first]))

    shapes = [*specs[:carries], *(specs[i] for i in carried), *specs[carries:], *(specs[i] for i in moving[first:])]
    code = derive(body, ("push", carries, moving), step_all, *shapes)
    test = derive(condition, ("push", carries, first, more), is_active, *shapes)
    found = apply_repeat(test, code, [*args[:carries], *dots[:first]], [*args[carries:], *dots[first:]])
    at = dict(zip(carried, found[carries:-1], strict=True))
    return (*(at.get(i) for i in range(carries)), None)


def _pull(
    bar: tuple[Any, ...], out: tuple[Any, ...], args: tuple[Any, ...], position: tuple[int, ...], condition: Program,
    body: Program, carries: int,
) -> tuple[Any, ...]:  # fmt: skip
    specs = [spec_of(x) for x in args]
    wanted = tuple(i for i in float_places(specs) if i < carries or i in position)
    barred = float_places(body.output_specs)
    carried = [i for i in wanted if i < carries]
    if not carried:
        return (None,) * len(args)
    pull = derive_pull(body, wanted, barred)
    summed = [i for i in wanted if i >= carries]
    starts = [zeros(bar[i]) if isinstance(bar[i], Spec) else bar[i] for i in carried]
    sums = [zeros(specs[i]) for i in summed]
    state, held = list(args[:carries]), list(args[carries:])

    def share(now: Sequence[Any], bars: Sequence[Any], sums: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
        found = run(pull, (*now, *constants, *bars))
        return [*found[: len(bars)], *(a + b for a, b in zip(sums, found[len(bars) :], strict=True))]

    # slots hold the states at the beginnings of stretches; the first one holds the start
    walk = _make_backward_loop(body, carries, specs, len(carried), share, [specs[i] for i in wanted], (wanted, barred))
    slots = [basis.broadcast_to(x, (SLOTS, *spec_of(x).shape)) for x in state]
    begins, top = zeros(_count_spec(specs, (SLOTS,))), zeros(_count_spec(specs))
    found = apply_repeat(*walk, [*slots, begins, top, out[-1], *starts, *sums], held)
    shares: list[Any] = [None] * len(args)
    for i, x in zip(wanted, found[carries + 3 : -1], strict=True):
        shares[i] = x
    return tuple(shares)


def _make_backward_loop(
    body: Program, carries: int, specs: Sequence[Spec], barred: int, share: Any, sums: Sequence[Spec], key: Any
) -> tuple[Program, Program]:
    """Condition and step of the backward loop over (slots, their beginnings, the top slot, rounds left, cotangents)."""
    integer = _count_spec(specs)

    # a round either pulls the last step of the top stretch back, or halves it: the middle state becomes a new slot
    def step(*values: Any) -> list[Any]:
        slots, (begins, top, left), rest = values[:carries], values[carries : carries + 3], values[carries + 3 :]
        shares, constants = rest[: len(sums)], rest[len(sums) :]
        now = [getitem(s, top) for s in slots]
        begin = getitem(begins, top)
        is_last = pointwise.equal(begin, left - 1)
        middle = pointwise.where(is_last, begin, (begin + left) // 2)
        reached = run_counted(body, middle - begin, now, constants)
        ways = [
            lambda *xs: list(xs[carries:][: len(sums)]),
            lambda *xs: _call_share(share, xs, carries, barred, len(sums)),
        ]
        after = apply_branch(ways, is_last, [*now, *shares, *constants])
        # halving pushes the middle state onto the slots, pulling pops the top one when its stretch is empty
        onto = pointwise.where(is_last, top, top + 1)
        stored = [set_at(s, onto, x) for s, x in zip(slots, reached, strict=True)]
        begins = set_at(begins, onto, middle)
        last = astype(is_last, _COUNT_DTYPE)
        return [*stored, begins, pointwise.maximum(onto - last, 0), left - last, *after]

    def is_active(*values: Any) -> list[Any]:
        return [pointwise.greater(values[carries + 2], 0)]

    def make() -> tuple[Program, Program]:
        shapes = [
            *(make_spec((SLOTS, *s.shape), s.dtype, s.device) for s in specs[:carries]),
            _count_spec(specs, (SLOTS,)),
            integer, integer, *sums, *specs[carries:],
        ]  # fmt: skip
        return stage_derived(is_active, *shapes), stage_derived(step, *shapes)

    return derive_once(body, ("walk", carries, key), make)


def _call_share(share: Any, xs: Sequence[Any], carries: int, barred: int, sums: int) -> list[Any]:
    now, bars, rest = xs[:carries], xs[carries : carries + barred], xs[carries + barred :]
    found: list[Any] = share(now, bars, rest[: sums - barred], rest[sums - barred :])
    return found


def run_counted(body: Program, rounds: Any, carry: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
    """The carry after so many rounds."""
    specs = [spec_of(x) for x in (*carry, *constants)]
    integer = _count_spec([spec_of(rounds), *specs])

    def step(i: Any, *values: Any) -> list[Any]:
        (rounds, *now), held = values[: len(carry) + 1], values[len(carry) + 1 :]
        return [i + 1, rounds, *run(body, (*now, *held))]

    def is_active(i: Any, rounds: Any, *values: Any) -> list[Any]:
        return [pointwise.less(i, rounds)]

    shapes = [integer, integer, *specs]
    code = derive(body, ("counted", len(carry)), step, *shapes)
    test = derive(body, ("count", len(carry)), is_active, *shapes)
    return list(apply_repeat(test, code, [zeros(integer), rounds, *carry], constants)[2:-1])


def _batch(size: int, axes: tuple[int | None, ...], *args: Any, condition: Program, body: Program, carries: int) -> Any:
    """Where the condition differs by element, a finished element keeps its carry, and the loop continues while some
    element is active.
    """
    has = [a is not None for a in axes]
    while True:
        test, (differs,) = derive_batch(condition, tuple(has), size)
        code, out = derive_batch(body, tuple(has), size)
        # a carry that differs by element after a step must be batched from the start
        more = [i for i in range(carries) if (out[i] or differs) and not has[i]]
        if not more:
            break
        for i in more:
            has[i] = True
    if differs:
        refuse_collecting(condition, body)
    fronts = [
        ensure_batch_axis(basis.moveaxis(x, a, 0) if a else x, a is not None, h, size)
        for x, a, h in zip(args, axes, has, strict=True)
    ]

    def step_all(*values: Any) -> list[Any]:
        (rounds, *now), held = values[: carries + 1], values[carries + 1 :]
        found = [ensure_batch_axis(x, o, h, size) for x, o, h in zip(run(code, (*now, *held)), out, has, strict=False)]
        if not differs:
            return [rounds + 1, *found]
        goes = run(test, (*now, *held))[0]
        chosen = [pointwise.where(_broadcast_mask(goes, new), new, old) for new, old in zip(found, now, strict=True)]
        return [rounds + astype(goes, _COUNT_DTYPE), *chosen]

    def is_active(*values: Any) -> list[Any]:
        found = run(test, values[1:])[0]
        return [any_of(found) if differs else found]

    # where elements stop at different rounds, each counts its own: the backward loop needs the number
    rounds = zeros(_count_spec([spec_of(x) for x in args], (size,) if differs else ()))
    shapes = list(map(spec_of, (rounds, *fronts)))
    key = ("batched", carries, tuple(has), size)
    step = derive(body, key, step_all, *shapes)
    goes = derive(condition, key, is_active, *shapes)
    found = apply_repeat(goes, step, [rounds, *fronts[:carries]], fronts[carries:])
    ends = (*(0 if h else None for h in has[:carries]), 0 if differs else None)
    return (*found[1:-1], found[0]), ends


def _broadcast_mask(mask: Any, x: Any) -> Any:
    """A mask of the elements, with axes for those of a value."""
    return basis.reshape(mask, (*spec_of(mask).shape, *(1,) * (spec_of(x).ndim - 1)))


_STATIC_NAMES = ("condition", "body", "carries")
repeat: Op = replace(make_custom_record(
    "repeat", ("*args",), _value, Formula(_pull, ("bar", "out", "args", "position", *_STATIC_NAMES)),
    Formula(_push, ("tangents", "args", *_STATIC_NAMES)), _batch, _spec,
), form=Flow("repeat"), statics={
    "condition": PROGRAM, "body": PROGRAM, "carries": statics.integer(0, 1 << 20),
})  # fmt: skip
