"""Features by pairs: what a feature is, how two of them make one program, and the reference that program is held to.

A program takes one array of `SHAPE` and returns one of the same shape, so any two features can be put into each other.
There are three kinds of features.

- A `Body` is something a program does (a dropout, a loop, an equation). It comes with a second program in plain
  NumPy that uses nothing of the package but draws of random numbers.
- A `Wrap` runs a program in another manner (compiled, checkpointed, batched) and must not change what it computes.
- A `Taker` differentiates a program: its result is the gradient of `<WEIGHTS, f>` or the derivative along `ALONG`.

Derivatives of references are by complex step, and by differences of eighth order where derivatives nest.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pullback as pb

SHAPE = (3, 3)
X = np.array([[0.9, -0.35, 0.6], [0.2, 0.75, -0.5], [-0.15, 0.4, 1.1]])
WEIGHTS = np.array([[1.0, -0.4, 0.3], [0.7, 0.2, -1.1], [0.5, 0.9, -0.6]])
ALONG = np.array([[0.3, 0.8, -0.5], [-1.0, 0.4, 0.6], [0.2, -0.7, 0.9]])
MATRIX = np.array([[0.5, -0.3, 0.2], [0.4, 0.6, -0.1], [-0.2, 0.3, 0.7]])

MODES = ("value", "grad", "tape", "forward", "second")
#: Of which order the derivative is that a mode asks for.
ORDER = {"value": 0, "grad": 1, "tape": 1, "forward": 1, "second": 2}
#: How much a result may differ from its reference, relative to the largest entry, by the order of the derivative.
TOLERANCE = (1e-9, 1e-7, 1e-6, 1e-5, 1e-4)

Program = Callable[[Any], Any]
#: NumPy's own generator: one object for the whole matrix, as a user's global is.
GENERATOR = np.random.default_rng(5)


class World:
    """What one evaluation leaves behind besides its result: where random streams stand, and state of modules."""

    def __init__(self, mode: str = "value", cell: Cell | None = None) -> None:
        self.mode, self.cell = mode, cell
        self.once = cell is not None and cell.once
        self.state: dict[str, Any] = {}
        self.forget()

    def forget(self) -> None:
        self.seen: dict[str, Callable[[], Any]] = {}
        self.checks: list[Callable[[], None]] = []

    def name(self, name: str) -> str:
        """A name of this world's own: the same feature may be in a program twice."""
        return f"{name} {len(self.state) + len(self.seen)}"

    def watch(self, name: str, read: Callable[[], Any]) -> None:
        """Something that is compared with the reference's state of the same name after the evaluation."""
        self.seen[self.name(name)] = read

    def snapshot(self) -> tuple[Any, dict[str, Any]]:
        return (streams() if self.once else None), dict(self.state)

    def rewind(self, before: tuple[Any, dict[str, Any]]) -> None:
        if before[0] is not None:
            restore(before[0])
        self.state.update(before[1])


def streams() -> tuple[Any, ...]:
    """Where every random stream stands."""
    return (pb.random.state(), np.random.get_state(), random.getstate(), GENERATOR.bit_generator.state)


def restore(before: tuple[Any, ...]) -> None:
    pb.random.restore(before[0])
    np.random.set_state(before[1])
    random.setstate(before[2])
    GENERATOR.bit_generator.state = before[3]


def seed() -> None:
    """All streams at their start."""
    pb.random.seed(5)
    np.random.seed(5)
    random.seed(5)
    if "cupy" in sys.modules:
        sys.modules["cupy"].random.seed(5)
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state


def places() -> dict[str, Any]:
    """Where every stream stands, to be compared."""
    ours, numpys, pythons, generators = streams()
    texts = repr(ours), (numpys[1].tobytes(), *numpys[2:]), pythons, repr(generators)
    return dict(zip(("pb.random", "np.random", "random", "Generator"), texts, strict=True))


@dataclass(frozen=True)
class Body:
    """A program around another one, with its reference: both take the inner program and the world."""

    name: str
    build: Callable[[Program, World], Program]
    reference: Callable[[Program, World], Program]
    #: Two runs are not alike: it draws from a stream or has state.
    once: bool = False
    #: Public names that this feature stands for.
    covers: tuple[str, ...] = ()
    #: The feature that stands for it: two variants meet in the sweep alone.
    like: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Wrap:
    """Another manner to run a program. `around` runs a whole evaluation, backward pass included, if it is outermost."""

    name: str
    wrap: Callable[[Program, World], Program]
    around: Callable[[Callable[[], Any], str], Any] | None = None
    modes: tuple[str, ...] = MODES
    #: The modes that are left where it is inside of another feature; by default the same.
    inside: tuple[str, ...] = ()
    compiled: bool = False
    covers: tuple[str, ...] = ()
    #: The feature that stands for it: two variants meet in the sweep alone.
    like: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Taker:
    """A derivative as a program: `kind` is reverse (gradient of `<WEIGHTS, f>`), forward (along `ALONG`) or second."""

    name: str
    take: Callable[[Program, World], Program]
    kind: str
    #: "value" alone if the result is a constant.
    modes: tuple[str, ...] = MODES
    #: f runs more than once, so that random streams go on further.
    reruns: bool = False
    compiled: bool = False
    covers: tuple[str, ...] = ()
    #: The feature that stands for it: two variants meet in the sweep alone.
    like: str = ""
    needs: str = ""


Feature = Body | Wrap | Taker


def core(x: Any) -> Any:
    """The program inside of everything."""
    return pb.tanh(x @ MATRIX) * 0.8 + 0.3 * pb.sin(x)


def core_reference(z: Any) -> Any:
    return np.tanh(z @ MATRIX) * 0.8 + 0.3 * np.sin(z)


def core_reverse(z: Any) -> Any:
    return (0.8 * WEIGHTS * (1 - np.tanh(z @ MATRIX) ** 2)) @ MATRIX.T + 0.3 * np.cos(z) * WEIGHTS


def core_forward(z: Any) -> Any:
    return 0.8 * (1 - np.tanh(z @ MATRIX) ** 2) * (ALONG @ MATRIX) + 0.3 * np.cos(z) * ALONG


#: Central differences of eighth order: weights of f(x + k h) - f(x - k h), over h.
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
STEP = 0.0015  # short enough that no maximum or mask changes on the way


def rewound(f: Program, world: World) -> Program:
    """f, repeatable: it starts where it stood when this was made, however often it runs."""
    before = world.snapshot()

    def again(z: Any) -> Any:
        world.rewind(before)
        return f(z)

    return again


def differences(f: Program, z: Any, direction: Any) -> Any:
    total = 0.0
    for k, weight in STENCIL:
        total = total + weight * (f(z + k * STEP * direction) - f(z - k * STEP * direction))
    return total / STEP


def units() -> Iterator[tuple[tuple[int, ...], Any]]:
    for place in np.ndindex(*SHAPE):
        unit = np.zeros(SHAPE)
        unit[place] = 1.0
        yield place, unit


def reverse_reference(f: Program, world: World) -> Program:
    if f is core_reference:
        return core_reverse

    def gradient(z: Any) -> Any:
        again, found = rewound(f, world), np.zeros(SHAPE, z.dtype)
        for place, unit in units():
            found[place] = np.sum(WEIGHTS * differences(again, z, unit))
        return found

    return gradient


def forward_reference(f: Program, world: World) -> Program:
    if f is core_reference:
        return core_forward
    return lambda z: differences(rewound(f, world), z, ALONG)


def second_reference(f: Program, world: World) -> Program:
    """The Hessian of `<WEIGHTS, f>` times `ALONG`."""
    return lambda z: differences(rewound(reverse_reference(f, world), world), z, ALONG)


def gauss_newton_reference(f: Program, world: World) -> Program:
    """J^T J times `ALONG`."""

    def program(z: Any) -> Any:
        again, found = rewound(f, world), np.zeros(SHAPE, z.dtype)
        pushed = differences(again, z, ALONG)
        for place, unit in units():
            found[place] = np.sum(pushed * differences(again, z, unit))
        return found

    return program


def curve_reference(f: Program, world: World) -> Program:
    """The second derivative along a line."""
    return lambda z: differences(rewound(forward_reference(f, world), world), z, ALONG)


def diagonal_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        again, found = rewound(f, world), np.zeros(SHAPE, z.dtype)
        for place, unit in units():
            found[place] = differences(again, z, unit)[place]
        return found

    return program


#: The same for second derivatives: the weight of f(x) itself, and of f(x + k h) + f(x - k h), over h^2.
MIDDLE, SECOND = -205 / 72, ((1, 8 / 5), (2, -1 / 5), (3, 8 / 315), (4, -1 / 560))


def second_diagonal_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        again, found = rewound(f, world), np.zeros(SHAPE, z.dtype)
        middle = MIDDLE * again(z)
        for place, unit in units():
            sides = sum(w * (again(z + k * STEP * unit) + again(z - k * STEP * unit)) for k, w in SECOND)
            found[place] = np.sum(WEIGHTS * (middle + sides)) / STEP**2
        return found

    return program


def spread(reference: Callable[[Program, World], Program]) -> Callable[[Program, World], Program]:
    """The sum of a diagonal, times the weights."""
    return lambda f, world: lambda z: np.sum(reference(f, world)(z)) * WEIGHTS


#: For each kind of derivative how the reference takes it, and of which order it is.
REFERENCES = {
    "reverse": (reverse_reference, 1),
    "forward": (forward_reference, 1),
    "second": (second_reference, 2),
    "gauss_newton": (gauss_newton_reference, 2),
    "curve": (curve_reference, 2),
    "diagonal": (diagonal_reference, 1),
    "divergence": (spread(diagonal_reference), 1),
    "second_diagonal": (second_diagonal_reference, 2),
    "laplacian": (spread(second_diagonal_reference), 2),
}


@dataclass(frozen=True)
class Cell:
    """One feature around another one. Either may stand alone (None)."""

    outer: Feature
    inner: Feature | None

    @property
    def key(self) -> tuple[str, str]:
        return self.outer.name, self.inner.name if self.inner else "-"

    def program(self, world: World, whole: bool = True) -> Program:
        """The program of the cell; without the outermost feature where that runs around the whole evaluation."""
        inner = built(self.inner, core, world) if self.inner else core
        return built(self.outer, inner, world) if whole else inner

    def reference(self, world: World) -> Program:
        inner = referred(self.inner, core_reference, world) if self.inner else core_reference
        return referred(self.outer, inner, world)

    @property
    def modes(self) -> tuple[str, ...]:
        """What is asked: what both features have, and derivatives up to the third order, in bodies the second."""
        asked = [m for m in MODES if m in self.outer_modes and m in self.inner_modes]
        orders = self.orders
        most = 2 if any(isinstance(f, Body) for f in self.features) else 3
        return tuple(m for m in asked if ORDER[m] + orders <= max(most, orders))

    @property
    def orders(self) -> int:
        """How often the program is differentiated before it is asked."""
        return sum(REFERENCES[f.kind][1] for f in self.features if isinstance(f, Taker))

    @property
    def is_cut(self) -> bool:
        """Whether the inner feature ends the tape, so that a derivative around it may be zero instead."""
        return isinstance(self.outer, Taker) and bool(getattr(self.inner, "inside", ()))

    @property
    def outer_modes(self) -> tuple[str, ...]:
        return getattr(self.outer, "modes", MODES)

    @property
    def inner_modes(self) -> tuple[str, ...]:
        return getattr(self.inner, "inside", ()) or getattr(self.inner, "modes", MODES)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (self.outer, self.inner) if self.inner else (self.outer,)

    @property
    def compiled(self) -> bool:
        return any(getattr(f, "compiled", False) for f in self.features)

    @property
    def once(self) -> bool:
        return any(getattr(f, "once", False) for f in self.features)

    @property
    def reruns(self) -> bool:
        return any(getattr(f, "reruns", False) for f in self.features)


def built(feature: Feature, inner: Program, world: World) -> Program:
    if isinstance(feature, Body):
        return feature.build(inner, world)
    return feature.wrap(inner, world) if isinstance(feature, Wrap) else feature.take(inner, world)


def referred(feature: Feature, inner: Program, world: World) -> Program:
    if isinstance(feature, Body):
        return feature.reference(inner, world)
    return (
        inner if isinstance(feature, Wrap) else leaving_one_run(REFERENCES[feature.kind][0](inner, world), inner, world)
    )


def leaving_one_run(derivative: Program, f: Program, world: World) -> Program:
    """Differences run f at many places; what counts as left behind is one run of it, at the place itself."""

    def program(z: Any) -> Any:
        before = world.snapshot()
        found = derivative(z)
        if world.state:
            world.rewind(before)
            f(z)
        return found

    return derivative if f is core_reference else program


def plain(x: Any) -> Any:
    """A result as a NumPy array."""
    x = x.detach().numpy() if isinstance(x, pb.Tensor) else x
    return np.asarray(x)


def loss_of(f: Program) -> Program:
    return lambda x: pb.sum(WEIGHTS * f(x))


def by_grad(f: Program) -> Any:
    def loss(x: Any) -> Any:
        y = f(x)
        return pb.sum(WEIGHTS * y), y

    (_, y), gradient = pb.value_and_grad(loss, has_aux=True)(X.copy())
    return plain(y), plain(gradient)


def by_tape(f: Program) -> Any:
    x = pb.tensor(X, requires_grad=True)
    y = f(x)
    pb.sum(WEIGHTS * y).backward()
    return plain(y), plain(x.grad)


def twice(f: Program) -> Any:
    """Two calls on other numbers: what is compiled or planned in the first must serve the second."""
    return plain(f(X.copy())), plain(f(0.9 * X))


#: The ways in which a program is asked: for two values, and for the value with a derivative.
ASK: dict[str, Callable[[Program], Any]] = {
    "value": twice,
    "grad": by_grad,
    "tape": by_tape,
    "forward": lambda f: tuple(plain(y) for y in pb.jvp(f, (X.copy(),), (ALONG,))),
    "second": lambda f: (plain(pb.grad(lambda x: pb.sum(ALONG * pb.grad(loss_of(f))(x)))(X.copy())),),
}


@dataclass
class Outcome:
    """What a cell said in one mode: nothing if it was right, else what was wrong or raised."""

    wrong: str = ""
    error: BaseException | None = None
    notes: list[str] = field(default_factory=list)


def evaluate(cell: Cell, mode: str) -> Outcome:
    """Run a cell in one mode and hold it to its reference: value, streams, state of modules, own checks."""
    wanted, states, stand = expected(cell, mode)
    world = World(mode, cell)
    seed()
    try:
        found = asked(cell, mode, world)
    except Exception as error:
        return Outcome(described(error), error)
    now = places()
    return Outcome(difference(cell, mode, found, wanted) or moved(cell, now, stand) or left(world, states))


def asked(cell: Cell, mode: str, world: World) -> Any:
    around = getattr(cell.outer, "around", None)
    if around is None:
        return ASK[mode](cell.program(world))

    def run() -> Any:
        world.forget()
        return ASK[mode](cell.program(world, whole=False))

    return around(run, mode)


def described(error: BaseException) -> str:
    return f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def left(world: World, states: dict[str, Any]) -> str:
    """What is wrong with what the evaluation left behind: statistics, and what features check themselves. Reading them
    may raise, which is no refusal: the call itself has returned."""
    try:
        for check in world.checks:
            check()
        return changed({name: plain(read()) for name, read in world.seen.items()}, states)
    except Exception as error:
        return f"afterwards: {described(error)}"


def difference(cell: Cell, mode: str, found: tuple[Any, ...], wanted: tuple[Any, ...]) -> str:
    """How far a result is from its reference, if too far: the derivative first, which comes last."""
    for name, a, b in zip((mode, "value"), reversed(found), reversed(wanted), strict=False):
        if a.shape != b.shape:
            return f"{name} of shape {a.shape}, wanted {b.shape}"
        error = np.max(np.abs(a - b)) / max(1.0, float(np.max(np.abs(b))))
        if not error <= TOLERANCE[ORDER[name] + cell.orders] and not (cell.is_cut and not np.any(a)):
            return f"{name} is off by {error:.2g}"
    return ""


def moved(cell: Cell, now: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Streams that stand elsewhere than after one run of the reference."""
    other = [] if cell.reruns else [name for name in now if now[name] != wanted[name]]
    return f"stream {', '.join(other)} stands elsewhere than after one plain run" if other else ""


def changed(seen: dict[str, Any], states: dict[str, Any]) -> str:
    """State of modules that is not what one run of the reference makes of it."""
    for name, value in states.items():
        if name not in seen:
            return f"{name}: nobody looked"
        if np.shape(seen[name]) != np.shape(value) or not np.allclose(seen[name], value, rtol=1e-6):
            return f"{name} is {seen[name]}, wanted {value}"
    return ""


_EXPECTED: dict[tuple[Any, ...], tuple[Any, dict[str, Any], dict[str, Any]]] = {}


def expected(cell: Cell, mode: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The reference's result, and what it leaves behind. Wraps change nothing, so their cells share references."""
    parts = (f.name if isinstance(f, Body) else getattr(f, "kind", "") for f in cell.features)
    mode = "grad" if mode == "tape" else mode
    key = (*(p for p in parts if p), mode)
    if key not in _EXPECTED:
        _EXPECTED[key] = _expected(cell, mode)
    return _EXPECTED[key]


def _expected(cell: Cell, mode: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    world = World(mode, cell)
    seed()
    f = cell.reference(world)
    values = (f(X.copy()), f(0.9 * X)) if mode == "value" else (f(X.copy()),)
    states, stand = {k: np.real(v) for k, v in world.state.items()}, places()
    derived = () if mode == "value" else (_derivative(cell, mode),)
    return ((*values, *derived) if mode != "second" else derived), states, stand


def _derivative(cell: Cell, mode: str) -> Any:
    def fresh(z: Any) -> Any:
        if cell.once:
            seed()
        return cell.reference(World(mode, cell))(z)

    tiny = 1e-30
    along = {"forward": lambda: fresh(X + 1j * tiny * ALONG).imag / tiny}
    if mode in along:
        return along[mode]()
    found = np.zeros(SHAPE)
    for place, unit in units():
        found[place] = np.sum(WEIGHTS * _pushed(fresh, mode, unit, tiny))
    return found


def _pushed(fresh: Program, mode: str, unit: Any, tiny: float) -> Any:
    """The derivative of the reference along a unit, or for the second order that of its derivative along `ALONG`."""
    by_step = lambda z: fresh(z + 1j * tiny * unit).imag / tiny  # noqa: E731
    return by_step(X) if mode != "second" else differences(by_step, X, ALONG)


@contextlib.contextmanager
def threads_of_one() -> Iterator[None]:
    """Compiled code on one thread: the matrix is about meaning, not speed."""
    before = pb.get_num_threads()
    pb.set_num_threads(1)
    try:
        yield
    finally:
        pb.set_num_threads(before)
