"""A program in, what is wrong with it compiled out: every mode is compared with NumPy or with eager derivatives.

Where both sides may choose (ties of `max`, corners of `relu`) eager and compiled calls must choose alike. Programs of
whole numbers are exact, so there is no excuse; in others a value that rounding moves across a tie excuses what
follows, as far as noise in the last places of every line moves the eager result.
"""

import contextlib
import functools
import types
from dataclasses import dataclass

import numpy as np
from composed_programs import Program

import pullback as pb
from pullback.compile.cpu import runner
from pullback.compile.cpu.runtime import callbacks
from pullback.compile.direct_call import DirectCall
from pullback.compile.jit import jit

__all__ = ["DERIVATIVES", "MODES", "Fault", "find_fault", "poisoned"]

TOLERANCE = {"float64": 1e-9, "float32": 3e-4}
#: Byte patterns of memory that was never written: NaN, and numbers that are too large.
POISON = (0xFF, 0x7F)
filled = [0]


class _Poison(types.SimpleNamespace):
    """NumPy as the compiled code's callers see it, whose `empty` arrays are full of one byte."""

    def __getattr__(self, name):
        return getattr(np, name)


@contextlib.contextmanager
def poisoned(byte):
    """Results and arenas of compiled code start as poison, so that what no step wrote is seen."""

    def empty(shape, dtype=np.float64):
        filled[0] += 1
        a = np.ndarray(shape, dtype)  # np.empty stands for buffers where a transform runs lines like this one
        a.reshape(-1).view(np.uint8)[:] = byte
        return a

    # the native entry makes results itself: here Python does, on the general path
    directly = DirectCall.__call__
    try:
        runner.np = callbacks.np = _Poison(empty=empty)
        DirectCall.__call__ = lambda call, leaves: None
        yield
    finally:
        runner.np = callbacks.np = np
        DirectCall.__call__ = directly


@dataclass(frozen=True)
class Fault:
    """A program and a mode that disagree: what is wrong, and of which kind it is."""

    program: Program
    mode: str
    what: str
    kind: str

    def __str__(self):
        return f"program {self.program.seed}, {self.mode}: {self.what}"


def cotangents(values, seed, whole, number=0):
    rng = np.random.default_rng([seed, 99, number])
    draw = (lambda s: rng.integers(-2, 3, s)) if whole else (lambda s: rng.normal(size=s))
    return tuple(np.asarray(draw(v.shape), v.dtype) for v in values)


class Run:
    """One program with its functions and arguments, for modes to use."""

    def __init__(self, program):
        self.program = program
        self.values = [program.values()[i] for i in program.outputs]
        self.floats = [i for i, v in zip(program.outputs, self.values, strict=True) if v.dtype.kind == "f"]
        self.moving = [i for i, a in enumerate(program.inputs) if np.dtype(a.dtype).kind == "f"]
        self.args = program.arrays()

    @functools.cached_property
    def f(self):
        return self.program.function()

    @functools.cached_property
    def smooth(self):
        """The floating-point outputs as a function of the floating-point inputs."""
        return self.narrowed(self.program.function(outputs=self.floats))

    def narrowed(self, f, args=None):
        args = self.args if args is None else args

        def g(*moving):
            given = list(args)
            for i, a in zip(self.moving, moving, strict=True):
                given[i] = a
            return f(*given)

        return g

    @functools.cached_property
    def point(self):
        return tuple(self.args[i] for i in self.moving)

    def bars(self, number=0):
        values = [v for v in self.values if v.dtype.kind == "f"]
        return cotangents(values, self.program.seed, self.program.whole, number)

    @functools.cached_property
    def dots(self):
        return cotangents(self.point, self.program.seed, self.program.whole, 1)

    def is_smooth(self):
        return bool(self.floats and self.moving)


def pull_with(f, point, bars):
    return pb.vjp(f, *point)[1](bars)


def weighed(f, bars):
    """One number of all results, by fixed weights."""

    def scalar(*point):
        return functools.reduce(lambda a, b: a + b, [pb.sum(v * w) for v, w in zip(f(*point), bars, strict=True)])

    return scalar


def summed(f):
    return lambda *point: functools.reduce(lambda a, b: a + b, [pb.sum(v) for v in f(*point)])


def all_of(point):
    return tuple(range(len(point)))


# Each mode takes a run and the function to be tried, and is run twice: on `jit` and, for what is wanted, on `same`.
def same(f, **_):
    return f


def value(run, f, jit):
    compiled = jit(f)
    found = [*compiled(*run.args), *compiled(*run.program.arrays(1))]  # again, on other numbers in the same arena
    return [*found, *compiled(*run.args)]


def donated(run, f, jit):
    copies = {id(a): np.array(a) for a in run.args}
    args = [copies[id(a)] if i.same is None else np.array(a) for a, i in zip(run.args, run.program.inputs, strict=True)]
    return [np.array(x) for x in jit(f, donate_argnums=tuple(range(len(args))))(*args)]


def captured(run, f, jit):
    """Every second argument comes from a closure."""
    held = run.args[1::2]

    def g(*given):
        args = list(run.args)
        args[::2], args[1::2] = given, held
        return f(*args)

    return jit(g)(*run.args[::2])


def beside(run, f, jit):
    """Twice in one program, on other arguments."""
    half = len(run.args)
    return [
        x
        for part in jit(lambda *args: (f(*args[:half]), f(*args[half:])))(*run.args, *run.program.arrays(1))
        for x in part
    ]


def jit_vjp(run, f, jit):
    compiled = jit(lambda point, bars: pull_with(f, point, bars))
    return [*compiled(run.point, run.bars()), *compiled(run.point, run.bars(2))]


def vjp_jit(run, f, jit):
    value, pull = pb.vjp(jit(f), *run.point)
    return [*value, *pull(run.bars()), *pull(run.bars(2))]


def jit_grad(run, f, jit):
    return jit(pb.grad(summed(f), argnums=all_of(run.point)))(*run.point)


def grad_jit(run, f, jit):
    return pb.grad(jit(weighed(f, run.bars())), argnums=all_of(run.point))(*run.point)


def jit_value_and_grad(run, f, jit):
    value, found = jit(pb.value_and_grad(weighed(f, run.bars()), argnums=all_of(run.point)))(*run.point)
    return [value, *found]


def backward(run, f, jit):
    tensors = [pb.tensor(np.array(a), requires_grad=True) for a in run.point]
    total = weighed(jit(f), run.bars())(*tensors)
    if total.requires_grad:
        total.backward()
    return [t.grad.numpy() if t.grad is not None else np.zeros(t.shape, t.dtype) for t in tensors]


def jvp_jit(run, f, jit):
    value, found = pb.jvp(jit(f), run.point, run.dots)
    return [*value, *found]


def jit_jvp(run, f, jit):
    return jit(lambda point, dots: pb.jvp(f, point, dots)[1])(run.point, run.dots)


def batch_of(run):
    """Three arguments of each kind, stacked."""
    others = [tuple(run.program.arrays(draw)[i] for i in run.moving) for draw in range(3)]
    return [np.stack(parts) for parts in zip(*others, strict=True)]


def jit_vmap(run, f, jit):
    return jit(pb.vmap(f))(*batch_of(run))


def vmap_jit(run, f, jit):
    return pb.vmap(jit(f))(*batch_of(run))


def jit_vmap_grad(run, f, jit):
    return jit(pb.vmap(pb.grad(summed(f), argnums=all_of(run.point))))(*batch_of(run))


def jit_hvp(run, f, jit):
    scalar = weighed(f, run.bars())
    slopes = pb.grad(scalar, argnums=all_of(run.point))
    return jit(lambda point, dots: pb.jvp(slopes, point, dots)[1])(run.point, run.dots)


def nested(run, f, jit):
    """A compiled function inside of another, beside the same ops written out."""
    return [x for part in jit(lambda *args: (jit(f)(*args), f(*args)))(*run.args) for x in part]


def scan_of(f):
    """A loop whose body is the program."""
    return lambda *rows: pb.scan(lambda carry, row: (carry + 1.0, f(*row)), 0.0, rows)[1]


def scanned(run, f, jit):
    return jit(scan_of(f))(*batch_of(run))


def jit_scanned_grad(run, f, jit):
    return jit(pb.grad(summed(scan_of(f)), argnums=all_of(run.point)))(*batch_of(run))


def choice_of(f):
    """The program as one branch, and twice its results as the other."""
    return lambda flag, *point: pb.cond(flag, f, lambda *point: tuple(v * 2 for v in f(*point)), *point)


def branched(run, f, jit):
    compiled = jit(choice_of(f))
    return [*compiled(np.array(True), *run.point), *compiled(np.array(False), *run.point)]


def branched_grad_jit(run, f, jit):
    compiled = jit(choice_of(f))
    slopes = pb.grad(lambda *point: summed(compiled)(np.array(False), *point), argnums=all_of(run.point))
    return slopes(*run.point)


VALUES = {"value": value, "donated": donated, "captured": captured, "beside": beside, "nested": nested}
DERIVATIVES = {
    "jit_vjp": jit_vjp,
    "vjp_jit": vjp_jit,
    "jit_grad": jit_grad,
    "grad_jit": grad_jit,
    "jit_value_and_grad": jit_value_and_grad,
    "backward": backward,
    "jvp_jit": jvp_jit,
    "jit_jvp": jit_jvp,
    "jit_vmap": jit_vmap,
    "vmap_jit": vmap_jit,
    "jit_vmap_grad": jit_vmap_grad,
    "jit_hvp": jit_hvp,
    "scanned": scanned,
    "jit_scanned_grad": jit_scanned_grad,
    "branched": branched,
    "branched_grad_jit": branched_grad_jit,
}
MODES = {**VALUES, **DERIVATIVES, "eager": None, "differences": None}


def wanted_by(run, mode):
    """What a mode shall give: values by plain NumPy, derivatives by eager calls."""
    if mode in ("jit_vmap", "vmap_jit", "scanned"):
        plain = run.narrowed(run.program.function(True, run.floats))
        rows = [plain(*point) for point in zip(*batch_of(run), strict=True)]
        return [np.stack(parts) for parts in zip(*rows, strict=True)]
    if mode in DERIVATIVES:
        return DERIVATIVES[mode](run, run.smooth, same)
    return VALUES[mode](run, run.program.function(True), same)


def found_by(run, mode):
    with poisoned(POISON[run.program.seed % 2]):
        return MODES[mode](run, run.smooth if mode in DERIVATIVES else run.f, jit)


def find_fault(program, mode, excuses=True):
    """The fault of a program in a mode, or None."""
    with np.errstate(all="ignore"):
        run = Run(program)
        if mode in (*DERIVATIVES, "differences") and not run.is_smooth():
            return None
        if mode == "eager":
            return _eager_fault(run)
        if mode == "differences":
            return _slope_fault(run)
        try:
            wanted = [np.asarray(w) for w in wanted_by(run, mode)]
        except Exception as error:
            return Fault(
                program, mode, f"eager raises {type(error).__name__}: {_first(error)}", f"eager {type(error).__name__}"
            )
        try:
            found = [np.asarray(x) for x in found_by(run, mode)]
        except Exception as error:
            return Fault(program, mode, f"{type(error).__name__}: {_first(error)}", type(error).__name__)
        return _difference(run, mode, found, wanted, excuses)


def _first(error):
    return str(error).split("\n")[0][:200]


def _eager_fault(run):
    try:
        found = [np.asarray(x) for x in run.f(*run.args)]
    except Exception as error:
        return Fault(run.program, "eager", f"{type(error).__name__}: {_first(error)}", type(error).__name__)
    return _difference(run, "eager", found, run.values, True)


def _difference(run, mode, found, wanted, excuses):
    tolerance = _tolerance(run.program, wanted, mode)
    bad = [i for i in range(len(wanted)) if not is_close(found[i], wanted[i], tolerance)]
    if bad and excuses and not run.program.whole:
        slack = slack_of(run, mode, wanted)
        bad = [i for i in bad if not is_close(found[i], wanted[i], tolerance, slack[i])]
    if not bad:
        return None
    i = bad[0]
    what = f"result {i} of {len(wanted)} is {_short(found[i])}, wanted {_short(wanted[i])}"
    alike = (found[i].shape, found[i].dtype) == (wanted[i].shape, wanted[i].dtype)
    return Fault(run.program, mode, what, "numbers" if alike else "kind")


def _short(a):
    return f"{a.dtype}{a.shape} " + np.array2string(a.reshape(-1)[:8], precision=6, separator=", ", max_line_width=999)


def _tolerance(program, wanted, mode):
    kinds = {a.dtype for a in program.inputs} | {w.dtype.name for w in wanted}
    if "float16" in kinds and "grad" in mode:
        return 2.0**-9  # the share of each of three elements that tie is a third, rounded at each op or at the end
    single = "float32" in kinds or any("float32" in line.code for line in program.lines)
    return 3e-4 if single else 1e-9


def is_close(found, wanted, tolerance, slack=0.0):
    """Equal up to rounding, relative to the greatest element; the same shape and dtype."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return False
    if found.dtype.kind != "f":
        return bool(np.all((found == wanted) | (np.asarray(slack) > 0)))
    size = max(float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))), 1.0)
    near = np.abs(found - wanted) <= tolerance * size + 16 * slack
    return bool(np.all(near | (found == wanted) | (np.isnan(found) & np.isnan(wanted))))


def slack_of(run, mode, wanted):
    """How far the eager results move when every value moves in its last places: far near a tie or a cancellation."""
    found = [np.zeros(w.shape) for w in wanted]
    for number in range(6):
        rng = np.random.default_rng(number)
        f = run.program.function(
            wrapped="_noise({})", outputs=run.floats if mode in DERIVATIVES else None, _noise=_noise_of(rng)
        )
        try:
            other = (
                MODES[mode](run, run.narrowed(f) if mode in DERIVATIVES else f, same)
                if mode != "eager"
                else f(*run.args)
            )
        except Exception:
            continue
        for i, x in enumerate(other):
            gap = np.nan_to_num(np.abs(np.asarray(x, float) - np.asarray(wanted[i], float)), nan=np.inf)
            found[i] = np.maximum(found[i], np.where(np.asarray(x) == wanted[i], 0, gap))
    return found


def _noise_of(rng):
    def noise(x):
        spec = pb.spec_of(x)
        if spec.dtype.kind != "f":
            return x
        return x * (1 + 4 * np.finfo(spec.dtype).eps * rng.normal(size=spec.shape)).astype(spec.dtype)

    return noise


def _slope_fault(run):
    """Eager derivatives along a direction against differences of plain NumPy: of the better of three steps."""
    if "float32" in {a.dtype for a in run.program.inputs} or any("float32" in line.code for line in run.program.lines):
        return None
    plain = run.narrowed(run.program.function(True, run.floats))
    try:
        slope = [np.asarray(s) for s in pb.jvp(run.smooth, run.point, run.dots)[1]]
        pulled = pull_with(run.smooth, run.point, run.bars())
    except Exception as error:
        return Fault(
            run.program, "differences", f"eager raises {type(error).__name__}: {_first(error)}", type(error).__name__
        )
    gaps = []
    for h in (1e-5, 1e-6, 3e-7):
        ends = [plain(*(a + s * h * d for a, d in zip(run.point, run.dots, strict=True))) for s in (1, -1)]
        middle = plain(*run.point)
        gap = 0.0
        for s, up, at, down in zip(slope, ends[0], middle, ends[1], strict=True):
            if np.any(np.abs(up + down - 2 * at) > 1e-3 * h * (1 + np.abs(s))):
                return None  # a corner or a jump within the step
            gap = max(gap, float(np.max(np.abs((up - down) / (2 * h) - s) / (1 + np.abs(s)), initial=0.0)))
        gaps.append(gap)
    forth = sum(float(np.sum(b * s)) for b, s in zip(run.bars(), slope, strict=True))
    back = sum(float(np.sum(p * d)) for p, d in zip(pulled, run.dots, strict=True))
    if min(gaps) > 1e-4:
        return Fault(run.program, "differences", f"push is off by {min(gaps):.2g}", "push")
    if abs(forth - back) > 1e-8 * (1 + abs(forth)):
        return Fault(run.program, "differences", f"<u, J v> = {forth}, <J' u, v> = {back}", "pull")
    return None
