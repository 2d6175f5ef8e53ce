"""A failing program in, a smaller one that fails in the same mode out, and its text as a few lines of Python."""

import re
from dataclasses import replace

import numpy as np
from composed_modes import DERIVATIVES, find_fault
from composed_programs import Input, Line, Program

__all__ = ["reproduction", "shrink"]


def shrink(fault, tries=400):
    """The smallest fault of the same mode and kind that was found in so many tries."""
    best, left = fault, tries
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in candidates(best.program):
            left -= 1
            found = attempt(candidate, best)
            if found is not None:
                best, smaller = found, True
                break
            if left <= 0:
                break
    return best


def attempt(program, fault):
    """The fault of a candidate, if it is a program at all and fails alike."""
    try:
        if weight(program) >= weight(fault.program) or not all(np.all(np.isfinite(v)) for v in program.values()):
            return None
    except Exception:
        return None
    found = find_fault(program, fault.mode)
    return found if found is not None and found.kind == fault.kind else None


def weight(program):
    """What is to become less: lines first, then outputs and inputs, then sizes, layouts and text."""
    text = sum(len(line.code) for line in program.lines)
    elements = sum(sum(i.shape) + len(i.shape) for i in program.inputs)
    odd = sum((i.layout != "c") + (i.dtype == "float32") + (i.same is not None) for i in program.inputs)
    return len(program.lines), len(program.outputs), len(program.inputs), elements, odd, text


def candidates(program):
    """Programs that are smaller in one respect, the boldest first."""
    yield from _outputs_left_out(program)
    yield from _cut_off(program)
    yield from _lines_left_out(program)
    yield from _operands_replaced(program)
    yield from _sizes(program)
    for i, argument in enumerate(program.inputs):
        for plainer in (
            replace(argument, layout="c"),
            replace(argument, dtype="float64"),
            replace(argument, same=None),
        ):
            if plainer != argument:
                yield replace(program, inputs=(*program.inputs[:i], plainer, *program.inputs[i + 1 :]))


def pruned(program):
    """Without the lines and inputs that no output depends on."""
    count, needed = len(program.inputs), set(program.outputs)
    for i in reversed(range(len(program.lines))):
        if count + i in needed:
            needed.update(program.lines[i].operands)
    inputs = {i for i in range(count) if i in needed}
    inputs |= {program.inputs[i].same for i in inputs} - {None}
    numbers = [*sorted(inputs), *(count + i for i in range(len(program.lines)) if count + i in needed)]
    new = {old: at for at, old in enumerate(numbers)}
    arguments = [program.inputs[i] for i in sorted(inputs)]
    arguments = [a if a.same is None else replace(a, same=new[a.same]) for a in arguments]
    lines = [program.lines[i - count] for i in numbers if i >= count]
    lines = [replace(line, operands=tuple(new[o] for o in line.operands)) for line in lines]
    return Program(tuple(arguments), tuple(lines), tuple(new[o] for o in program.outputs), program.seed, program.whole)


def _outputs_left_out(program):
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield pruned(replace(program, outputs=(output,)))
        for output in program.outputs:
            yield pruned(replace(program, outputs=tuple(o for o in program.outputs if o != output)))
    for i in range(len(program.lines)):  # a value between as the only output
        yield pruned(replace(program, outputs=(len(program.inputs) + i,)))


def _cut_off(program):
    """A line becomes an input of the same kind."""
    values, count = program.values(), len(program.inputs)
    for i in reversed(range(len(program.lines))):
        value = values[count + i]
        if value.dtype.name in ("float64", "float32", "int64", "bool"):
            moved = [*range(count), *(count + 1 + j if j != i else count for j in range(len(program.lines)))]
            lines = [replace(line, operands=tuple(moved[o] for o in line.operands)) for line in program.lines]
            identity = Line("view", "$0", "$0", (count,))
            lines[i] = identity
            cut = replace(
                program,
                inputs=(*program.inputs, Input(value.shape, value.dtype.name)),
                lines=tuple(lines),
                outputs=tuple(moved[o] for o in program.outputs),
            )
            # the identity itself goes: its readers read the input
            yield pruned(_replaced(cut, count + 1 + i, count))


def _replaced(program, old, new):
    lines = [replace(line, operands=tuple(new if o == old else o for o in line.operands)) for line in program.lines]
    outputs = tuple(dict.fromkeys(new if o == old else o for o in program.outputs))
    return replace(program, lines=tuple(lines), outputs=outputs)


def _lines_left_out(program):
    count = len(program.inputs)
    for i in reversed(range(len(program.lines))):
        for operand in dict.fromkeys(program.lines[i].operands):
            yield pruned(_replaced(program, count + i, operand))


def _operands_replaced(program):
    for i, line in enumerate(program.lines):
        for j, operand in enumerate(line.operands):
            for other in range(min(operand, len(program.inputs))):
                operands = (*line.operands[:j], other, *line.operands[j + 1 :])
                lines = (*program.lines[:i], replace(line, operands=operands), *program.lines[i + 1 :])
                yield pruned(replace(program, lines=lines))


def _resized(line, n, m):
    code, plain = (re.sub(rf"\b{n}\b", str(m), text) for text in (line.code, line.plain))
    return replace(line, code=code, plain=plain)


def _sizes(program):
    """A size becomes another wherever it occurs, in shapes and in the text; or along one axis alone."""
    for n in sorted({n for a in program.inputs for n in a.shape}, reverse=True):
        for m in [m for m in (1, 2, 3, 4) if m < n]:
            inputs = tuple(replace(a, shape=tuple(m if s == n else s for s in a.shape)) for a in program.inputs)
            yield replace(program, inputs=inputs)
            yield replace(program, inputs=inputs, lines=tuple(_resized(line, n, m) for line in program.lines))
    for i, argument in enumerate(program.inputs):
        for axis, n in enumerate(argument.shape):
            for m in [m for m in (1, 2, 3) if m < n]:
                shape = (*argument.shape[:axis], m, *argument.shape[axis + 1 :])
                yield replace(
                    program, inputs=(*program.inputs[:i], replace(argument, shape=shape), *program.inputs[i + 1 :])
                )


_CALLS = {
    "value": "print(f({args}), pb.jit(f)({args}))",
    "donated": "print(f({args}), pb.jit(f, donate_argnums={numbers})({copies}))",
    "jvp_jit": "print(pb.jvp(f, {point}, {ones}), pb.jvp(pb.jit(f), {point}, {ones}))",
    "jit_jvp": "print(pb.jvp(f, {point}, {ones}), pb.jit(lambda *p: pb.jvp(f, p, {ones}))({args}))",
    "jit_vmap": "print(pb.vmap(f)({stacked}), pb.jit(pb.vmap(f))({stacked}))",
    "vmap_jit": "print(pb.vmap(f)({stacked}), pb.vmap(pb.jit(f))({stacked}))",
    "grad_jit": "print(pb.grad(g, {numbers})({args}), pb.grad(pb.jit(g), {numbers})({args}))",
    "vjp_jit": "print(pb.grad(g, {numbers})({args}), pb.grad(lambda *p: total(pb.jit(f)(*p)), {numbers})({args}))",
    "backward": "print(pb.grad(g, {numbers})({args}), pb.grad(lambda *p: total(pb.jit(f)(*p)), {numbers})({args}))",
}


def reproduction(fault):
    """The program as runnable Python: its arguments, its function, and both results."""
    program = fault.program
    names = program.parameters
    rows = ["import numpy as np", "import pullback as pb", ""]
    for name, argument in zip(names, program.inputs, strict=True):
        rows.append(f"{name} = {_made(argument, names, program.whole)}")
    rows += ["", program.source()]
    moving = [i for i, a in enumerate(program.inputs) if a.dtype.startswith("float")]
    words = {
        "args": ", ".join(names),
        "copies": ", ".join(f"{n}.copy()" for n in names),
        "numbers": tuple(moving),
        "point": f"({', '.join(names)},)",
        "ones": f"({', '.join(f'np.ones_like({n})' for n in names)},)",
        "stacked": ", ".join(f"np.stack([{n}, {n}])" for n in names),
    }
    mode = fault.mode
    if mode in DERIVATIVES and mode not in ("jvp_jit", "jit_jvp", "jit_vmap", "vmap_jit"):
        rows += [
            "total = lambda vs: sum(pb.sum(v * np.arange(1.0, 1 + pb.spec_of(v).size).reshape(v.shape)) for v in vs)"
        ]
        rows += [f"g = lambda {words['args']}: total(f({words['args']}))"]
    call = _CALLS.get(mode, "print(pb.grad(g, {numbers})({args}), pb.jit(pb.grad(g, {numbers}))({args}))")
    call = call if mode in DERIVATIVES or mode in _CALLS else _CALLS["value"]
    return "\n".join([f"# {fault}", *rows, call.format(**words), ""])


def _made(argument, names, whole):
    if argument.same is not None:
        return names[argument.same]
    drawn = f"np.random.default_rng(0).normal(size={argument.shape})"
    if whole or argument.dtype == "int64":
        drawn = f"np.random.default_rng(0).integers(-2, 3, {argument.shape}).astype(float)"
    cast = (
        "" if argument.dtype == "float64" else f".astype(np.{argument.dtype})" if argument.dtype != "bool" else " > 0"
    )
    layout = {
        "f": ".T.copy().T",
        "strided": ".repeat(2, axis=-1)[..., ::2]",
        "reversed": "[::-1].copy()[::-1]",
    }.get(argument.layout, "")
    return f"{drawn}{layout}{cast}"
