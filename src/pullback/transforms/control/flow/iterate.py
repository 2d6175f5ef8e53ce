"""`iterate`, the loop over a sequence as an op: (carry, constants, xs) in, (carry, ys) out.

Its derivatives are such loops again.

With the step (c, k, x) -> (c', y), k what the step closes over, and cotangents written with a bar:

    push    the loop of the step's push, which carries c and its tangent;
    pull    the loop over the same steps from the last to the first. It carries the cotangent of c and adds up that of
            k; each step pulls (c'bar, ybar) back through the step at (c, k, x) and returns xbar.

The backward pass needs residuals of the forward pass: they are more ys of the same loop (`add_residual_outputs`). Where
a loop was made without them it runs again with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....arrays.origin import register_round
from ....arrays.spec import Spec, make_spec, spec_of, zeros
from ....errors import ShapeError
from ....ops import basis, statics
from ....ops.dispatch import apply
from ....ops.forms import Flow
from ....ops.op import Formula, Op
from ....program.ir import Program, Symbol
from ....program.run import run
from ...custom.rules import make_custom_record
from .derive import (
    PROGRAM,
    add_batch_axes,
    check_program,
    derive,
    derive_batch,
    derive_once,
    derive_push,
    derive_split,
    ensure_batch_axis,
    float_places,
    refuse_repeating,
    stacked_spec,
)


def apply_iterate(body: Program, carry: Sequence[Any], constants: Sequence[Any], xs: Sequence[Any], length: int,
             reverse: bool) -> tuple[Any, ...]:  # fmt: skip
    """Run the loop: the last carry, then the stacked ys."""
    found: tuple[Any, ...] = apply(
        iterate, *carry, *constants, *xs, body=body, carries=len(carry), constants=len(constants), length=length,
        reverse=reverse,
    )  # fmt: skip
    return found


def add_residual_outputs(body: Program, carries: int, wanted: tuple[int, ...], barred: tuple[int, ...]) -> Program:
    """The step with its residuals as more ys; the step itself if it returns them all."""
    forward = derive_split(body, wanted, barred, carries).forward
    return forward if len(forward.outputs) > len(body.outputs) else body


def _value(xp: Any, *args: Any, body: Program, carries: int, constants: int, length: int, reverse: bool) -> Any:
    carry, held, xs = list(args[:carries]), args[carries : carries + constants], args[carries + constants :]
    ys = [xp.empty((length, *s.shape), s.dtype) for s in body.output_specs[carries:]]
    for i in range(length)[:: -1 if reverse else 1]:
        found = run(body, (*carry, *held, *(x[i] for x in xs)))
        carry = found[:carries]
        for y, value in zip(ys, found[carries:], strict=True):
            y[i] = value
    return (*(xp.array(c, s.dtype) for c, s in zip(carry, body.output_specs, strict=False)), *ys)


register_round(_value, "i", "iterate")


def _spec(*specs: Spec, body: Program, carries: int, constants: int, length: int, reverse: bool) -> tuple[Spec, ...]:
    held = carries + constants
    if held > len(specs) or carries > len(body.outputs):
        raise ShapeError(f"iterate: {carries} carried and {constants} constant values, got {len(specs)} arguments.")
    if any(s.shape[:1] != (length,) for s in specs[held:]):
        raise ShapeError(f"iterate: each sequence has {length} rows, got {', '.join(map(str, specs[held:]))}.")
    rows = [make_spec(s.shape[1:], s.dtype, s.device) for s in specs[held:]]
    results = check_program("iterate: the step", body, (*specs[:held], *rows), carries).output_specs
    return (*results[:carries], *(stacked_spec(s, length) for s in results[carries:]))


def _push(tangents: tuple[Any, ...], args: tuple[Any, ...], body: Program, carries: int, constants: int, length: int,
            reverse: bool) -> tuple[Any, ...]:  # fmt: skip
    specs = [spec_of(x) for x in args]
    carried = [i for i in float_places(specs) if i < carries]
    moving = (*carried, *(i for i, t in enumerate(tangents) if i >= carries and t is not None))
    # each floating carry has a tangent, as the body may make it move later
    step = derive_push(body, moving)
    count, held = len(args), carries + constants
    dots = {i: zeros(specs[i]) if tangents[i] is None else tangents[i] for i in moving}
    # each group is followed by its tangents: the carry, the constants, the rows
    groups = [
        [*range(carries), *(count + moving.index(i) for i in carried)],
        [*range(carries, held), *(count + k for k, i in enumerate(moving) if carries <= i < held)],
        [*range(held, count), *(count + k for k, i in enumerate(moving) if i >= held)],
    ]
    values = [*args, *(dots[i] for i in moving)]
    floats = float_places(body.output_specs)
    ends = len(body.output_specs)
    outs = [
        *range(carries), *(ends + k for k, i in enumerate(floats) if i < carries),
        *range(carries, ends), *(ends + k for k, i in enumerate(floats) if i >= carries),
    ]  # fmt: skip
    code = reorder(step, [i for group in groups for i in group], outs)
    carry, fixed, rows = ([values[i] for i in group] for group in groups)
    found = apply_iterate(code, carry, fixed, rows, length, reverse)
    at = dict(zip(outs, found, strict=True))
    number = {i: ends + k for k, i in enumerate(floats)}
    return tuple(at[number[i]] if i in number else None for i in range(ends))


def reorder(code: Program, inputs: Sequence[int], outputs: Sequence[int]) -> Program:
    """The same program with its inputs and outputs in another order."""
    return derive_once(
        code, ("order", tuple(inputs), tuple(outputs)),
        lambda: Program(
            tuple(code.inputs[i] for i in inputs), code.equations, tuple(code.outputs[i] for i in outputs)
        ),
    )  # fmt: skip


def _pull(bar: tuple[Any, ...], out: tuple[Any, ...], args: tuple[Any, ...], position: tuple[int, ...], body: Program,
            carries: int, constants: int, length: int, reverse: bool) -> tuple[Any, ...]:  # fmt: skip
    """The backward loop. Its carry is (cotangents of the carry, sums for the constants), its ys those of the xs."""
    specs = [spec_of(x) for x in args]
    held = carries + constants
    floats = float_places(specs)
    wanted = tuple(i for i in floats if i < carries or i in position)
    barred = tuple(i for i in float_places(body.output_specs) if i < carries or not isinstance(bar[i], Spec))
    forward = add_residual_outputs(body, carries, wanted, barred)
    if forward is not body:  # the forward loop saved no residuals: run it again
        refuse_repeating(body)
        out = apply_iterate(forward, args[:carries], args[carries:held], args[held:], length, reverse)
    parts = derive_split(body, wanted, barred, carries)
    sources = parts.residual_sources
    fixed = [k for k, (where, i) in enumerate(sources) if where == "argument" and i < held]
    rows = [k for k in range(len(sources)) if k not in fixed]
    zero = [not isinstance(share, Symbol) for share in parts.backward.outputs]
    carried = [i for i in wanted if i < carries]
    # constants are used in every step, so their cotangents add up; those of rows are stacked
    summed = [k for k, i in enumerate(wanted) if carries <= i < held and not zero[k]]
    streamed = [k for k, i in enumerate(wanted) if i >= held and not zero[k]]
    first, last = len(carried), len(sources) + len(carried)
    # the cotangents of the carry, the constants, and what comes a row at a time
    order = [*range(len(sources), last), *fixed, *rows, *range(last, len(parts.backward.inputs))]
    back = reorder(parts.backward, order, range(len(wanted)))

    def step(*values: Any) -> list[Any]:
        sums = values[first : first + len(summed)]
        shares = run(back, (*values[:first], *values[first + len(summed) :]))
        return [
            *(zeros(specs[i]) if zero[k] else shares[k] for k, i in enumerate(carried)),
            *(s + shares[k] for s, k in zip(sums, summed, strict=True)),
            *(shares[k] for k in streamed),
        ]

    shapes = (*back.input_specs[:first], *(specs[wanted[k]] for k in summed), *back.input_specs[first:])
    code = derive(back, ("loop", constants), step, *shapes)
    start = [zeros(bar[i]) if isinstance(bar[i], Spec) else bar[i] for i in carried]
    residuals = [args[i] if where == "argument" else out[i] for where, i in sources]
    found = apply_iterate(
        code, [*start, *(zeros(specs[wanted[k]]) for k in summed)], [residuals[k] for k in fixed],
        [*(residuals[k] for k in rows), *(bar[i] for i in barred if i >= carries)], length, not reverse,
    )  # fmt: skip
    shares: list[Any] = [None] * len(args)
    places = [*carried, *(wanted[k] for k in summed), *(wanted[k] for k in streamed)]
    for i, share in zip(places, found, strict=True):
        shares[i] = share
    return tuple(shares)


def _batch(size: int, axes: tuple[int | None, ...], *args: Any, body: Program, carries: int, constants: int,
             length: int, reverse: bool) -> Any:  # fmt: skip
    held = carries + constants
    has = [a is not None for a in axes]
    while True:  # a carry that the step makes differ by element differs from the start
        code, out = derive_batch(body, tuple(has), size)
        more = [i for i in range(carries) if out[i] and not has[i]]
        if not more:
            break
        for i in more:
            has[i] = True
    code = add_batch_axes(code, out, [o or (i < carries and has[i]) for i, o in enumerate(out)], size)
    fronts = []
    for i, (x, a) in enumerate(zip(args, axes, strict=True)):
        if i >= held:
            fronts.append(x if a is None else basis.moveaxis(x, a, 1))
        else:
            fronts.append(ensure_batch_axis(basis.moveaxis(x, a, 0) if a else x, a is not None, has[i], size))
    found = apply_iterate(code, fronts[:carries], fronts[carries:held], fronts[held:], length, reverse)
    ends = [(0 if has[i] else None) if i < carries else (1 if out[i] else None) for i in range(len(found))]
    return found, tuple(ends)


_STATIC_NAMES = ("body", "carries", "constants", "length", "reverse")
iterate: Op = replace(make_custom_record(
    "iterate", ("*args",), _value, Formula(_pull, ("bar", "out", "args", "position", *_STATIC_NAMES)),
    Formula(_push, ("tangents", "args", *_STATIC_NAMES)), _batch, _spec,
), form=Flow("iterate"), statics={
    "body": PROGRAM, "carries": statics.integer(0, 1 << 20), "constants": statics.integer(0, 1 << 20),
    "length": statics.integer(0), "reverse": statics.flag,
})  # fmt: skip
