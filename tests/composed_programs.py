"""Programs as data: inputs, lines and outputs; drawn at random or enumerated, run by the package or by plain NumPy."""

import itertools
import math
from dataclasses import dataclass

import composed_reference as ref
import numpy as np
from composed_forms import FORMS, LARGEST, moves

import pullback as pb

__all__ = ["Input", "Line", "Program", "chains", "drawn", "drawn_chain"]

#: Vector widths and their neighbours, squares, one and two: sizes at which different axes look alike.
SIZES = (1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 8, 9, 15, 16, 17)
#: Sizes at which kernels are cut into blocks, rows are walked in pieces and products are made of tiles.
LARGE = (2, 3, 33, 64, 65, 128, 256, 257)
#: Two axes of the largest size fit; a third would only take seconds.
LARGEST_INPUT = 70_000
SHAPES = (
    (2, 2),
    (3, 3),
    (8, 3),
    (1, 4),
    (4, 1),
    (2, 2, 2),
    (4, 1, 4),
    (2, 3, 3),
    (4,),
    (1,),
    (),
    (16,),
    (3, 8),
    (17, 2),
    (1, 1),
)
LAYOUTS = ("c", "c", "c", "f", "strided", "reversed", "broadcast", "readonly", "inside")
#: Names of inputs; the lambdas of the forms use others.
NAMES = "xyzwabdefghjkmnopqstu"
#: Numbers beyond this make differences a matter of rounding.
GREATEST = 1e3


@dataclass(frozen=True)
class Input:
    """An argument: its shape, dtype and layout in memory; `same` is the number of an earlier one that it is the very
    array of."""

    shape: tuple
    dtype: str = "float64"
    layout: str = "c"
    same: int | None = None


@dataclass(frozen=True)
class Line:
    """One op: the text for the package, the text for NumPy, and the numbers of the values it reads."""

    form: str
    code: str
    plain: str
    operands: tuple


@dataclass(frozen=True)
class Program:
    """Values are numbered: inputs first, then lines. `whole`: the inputs are whole numbers and every op is exact."""

    inputs: tuple
    lines: tuple
    outputs: tuple
    seed: int
    whole: bool = False

    def name(self, number):
        return NAMES[number] if number < len(self.inputs) else f"v{number - len(self.inputs)}"

    @property
    def parameters(self):
        return [self.name(i) for i in range(len(self.inputs))]

    def source(self, plain=False, outputs=None, wrapped="{}"):
        """The program as a Python function of its arrays; each right-hand side is put into `wrapped`."""
        rows = [f"def f({', '.join(self.parameters)}):"]
        for i, line in enumerate(self.lines):
            text = line.plain if plain else line.code
            for j, operand in enumerate(line.operands):
                text = text.replace(f"${j}", self.name(operand))
            rows.append(f"    v{i} = {wrapped.format(text)}")
        names = [self.name(i) for i in (self.outputs if outputs is None else outputs)]
        return "\n".join([*rows, f"    return {', '.join(names)}{',' * (len(names) == 1)}", ""])

    def function(self, plain=False, outputs=None, wrapped="{}", **names):
        """The program as a function; of `pb`, or of plain NumPy."""
        space = {"np": np, "ref": ref, **({} if plain else {"pb": pb}), **names}
        exec(compile(self.source(plain, outputs, wrapped), f"<program {self.seed}>", "exec"), space)
        return space["f"]

    def arrays(self, draw=0):
        """Arguments: the same for the same seed and number of the draw."""
        made = []
        for i, argument in enumerate(self.inputs):
            rng = np.random.default_rng([self.seed, draw, i])
            made.append(made[argument.same] if argument.same is not None else array_of(argument, rng, self.whole))
        return made

    def values(self, draw=0):
        """All values by plain NumPy."""
        with np.errstate(all="ignore"):
            return [
                np.asarray(v)
                for v in self.function(True, range(len(self.inputs) + len(self.lines)))(*self.arrays(draw))
            ]


def array_of(argument, rng, whole):
    shape, dtype = argument.shape, np.dtype(argument.dtype)
    if dtype.kind == "b":
        a = rng.random(shape) < 0.5
    elif dtype.kind == "i" or whole:
        a = rng.integers(-2, 3, shape).astype(dtype)
    else:
        a = rng.normal(size=shape).astype(dtype)
    return laid_out(np.asarray(a), argument.layout)


def laid_out(a, layout):
    """The same numbers (those of the first row for "broadcast") in another order in memory."""
    if not a.ndim or layout == "c":
        return a
    if layout == "f":
        return np.asfortranarray(a)
    if layout == "strided":
        return np.repeat(a, 2, axis=-1)[..., ::2]
    if layout == "reversed":
        return a[::-1].copy()[::-1]
    if layout == "broadcast":
        return np.broadcast_to(a[:1], a.shape)
    if layout == "inside":
        room = np.full(tuple(n + 2 for n in a.shape), 777).astype(a.dtype)
        room[tuple(slice(1, -1) for _ in a.shape)] = a
        return room[tuple(slice(1, -1) for _ in a.shape)]
    a.flags.writeable = False
    return a


def is_tame(value, most):
    """Whether a value has at most so many elements, and moderate numbers."""
    if value.size > most or value.ndim > 4:
        return False
    with np.errstate(all="ignore"):
        return value.dtype.kind == "b" or bool(np.all(np.abs(value) <= GREATEST))  # False for NaN


def computed(line_or_move, *operands, most=LARGEST):
    """One line by plain NumPy, or None where it cannot be computed or gives numbers that say nothing."""
    text = line_or_move.plain
    for j in range(len(operands)):
        text = text.replace(f"${j}", f"_{j}")
    names = {f"_{j}": o for j, o in enumerate(operands)}
    with np.errstate(all="ignore"):
        value = np.asarray(eval(text, {"np": np, "ref": ref, **names}))
    return value if is_tame(value, most) else None


class Growing:
    """A program while lines are added to it."""

    def __init__(self, inputs, seed, whole=False):
        self.start = Program(tuple(inputs), (), (), seed, whole)
        self.values = self.start.values()
        self.lines = []
        self.most = max([LARGEST, *(2 * v.size for v in self.values)])

    def add(self, move, *operands):
        value = computed(move, *(self.values[o] for o in operands), most=self.most)
        if value is None:
            return False
        self.lines.append(Line(move.form, move.code, move.plain, operands))
        self.values.append(value)
        return True

    def program(self, outputs):
        return Program(self.start.inputs, tuple(self.lines), tuple(outputs), self.start.seed, self.start.whole)


def drawn_inputs(rng, large):
    """One to four arguments whose sizes coincide: all axes are of one or two sizes, or one."""
    palette = [int(n) for n in rng.choice(LARGE if large else SIZES, size=rng.integers(1, 3))]
    if rng.random() < 0.03:
        palette.append(0)
    single = rng.random() < 0.25
    inputs = []
    for i in range(int(rng.integers(1, 5))):
        kind = rng.random()
        if inputs and kind < 0.1:
            inputs.append(Input(inputs[0].shape, inputs[0].dtype, inputs[0].layout, 0))
            continue
        rank = int(rng.choice(4, p=(0.1, 0.25, 0.4, 0.25)))
        shape = tuple(1 if rng.random() < 0.1 else int(rng.choice(palette)) for _ in range(rank))
        if math.prod(shape) > LARGEST_INPUT:
            shape = (2, *shape[1:])
        dtype = (
            "int64"
            if i and kind < 0.2
            else "bool"
            if i and kind < 0.27
            else "float32"
            if single and kind < 0.85
            else "float64"
        )
        inputs.append(Input(shape[:1] if dtype.startswith("int") else shape, dtype, str(rng.choice(LAYOUTS))))
    return inputs


def drawn(seed, least=4, most=12):
    """A random program: lines prefer newer values, outputs are the last values and some of those between."""
    rng = np.random.default_rng([7, seed])
    whole = seed % 4 == 1
    growing = Growing(drawn_inputs(rng, seed % 9 == 4), seed, whole)
    forms = list(FORMS)
    count, tries = int(rng.integers(least, most + 1)), 0
    while len(growing.lines) < count and tries < 20 * count:
        tries += 1
        at = [_newer(rng, len(growing.values)) for _ in range(2)]
        binary = rng.random() < 0.4
        found = moves(str(rng.choice(forms)), growing.values[at[0]], growing.values[at[1]] if binary else None)
        if whole:
            found = [m for m in found if m.exact]
        if found:
            move = found[rng.integers(len(found))]
            growing.add(move, *at[: move.arity])
    first, end = len(growing.start.inputs), len(growing.values)
    read = {o for line in growing.lines for o in line.operands}
    ends = [i for i in range(first, end) if i not in read]
    others = [i for i in range(first, end) if i in read and rng.random() < 0.2]
    return growing.program(ends[-4:] + others[:2] or [0])


def _newer(rng, count):
    return int(count - 1 - min(rng.geometric(0.3) - 1, count - 1))


def second_operands(growing, chain):
    """What the other operand of an op in a chain may be: the first input, another input, the value before."""
    return dict.fromkeys(o for o in (0, 1, *chain[-2:]) if o < len(growing.values))


def chain_moves(growing, chain, form):
    """All that a form can do with the newest value of a chain: moves and their operands."""
    newest = chain[-1]
    for move in moves(form, growing.values[newest]):
        yield move, (newest,)
    for other in second_operands(growing, chain):
        for move in moves(form, growing.values[newest], growing.values[other]):
            yield move, (newest, other)


def chain_inputs(shape, dtype="float64"):
    """The value that a chain starts from, and one beside it of the same shape."""
    return [Input(shape, dtype), Input(shape, dtype)]


def drawn_chain(seed):
    """One of the chains of two or three forms over all shapes and variants."""
    rng = np.random.default_rng([11, seed])
    inputs = chain_inputs(
        SHAPES[rng.integers(len(SHAPES))], ("float64", "float64", "float64", "float32")[rng.integers(4)]
    )
    whole = seed % 4 == 1
    growing, chain = Growing(inputs, seed, whole), [0]
    for form in rng.choice(list(FORMS), size=rng.integers(2, 4)):
        found = [(m, at) for m, at in chain_moves(growing, chain, str(form)) if m.exact or not whole]
        if found:
            move, at = found[rng.integers(len(found))]
            if growing.add(move, *at):
                chain.append(len(growing.values) - 1)
    return growing.program(chain[-1:] if rng.integers(2) or len(chain) == 1 else chain[1:])


def chains(shape, length, brief, forms=tuple(FORMS), dtype="float64"):
    """All chains of so many forms from a shape; each with its last value as the output, and with all of them."""
    yield from _continued(Growing(chain_inputs(shape, dtype), 0), [0], length, brief, forms)


def _continued(growing, chain, length, brief, forms):
    if not length:
        yield growing.program(chain[-1:])
        if len(chain) > 2:
            yield growing.program(chain[1:])
        return
    options = [o for form in forms for o in chain_moves(growing, chain, form) if o[0].brief or not brief]
    for move, at in options:
        if growing.add(move, *at):
            yield from _continued(growing, [*chain, len(growing.values) - 1], length - 1, brief, forms)
            growing.lines.pop()
            growing.values.pop()


def count_chains(shape, length, brief, forms=tuple(FORMS)):
    return sum(1 for _ in chains(shape, length, brief, forms))


def sample(programs, step, first=0):
    """Every `step`-th of them."""
    return itertools.islice(programs, first, None, step)
