"""`gradcheck` and `gradgradcheck`: derivatives against finite differences, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.argument_checks import check_functions, check_number
from ..arrays.backends import as_array, is_array, move_array
from ..arrays.call_site import attributed_to_caller
from ..arrays.exchange import to_numpy
from ..arrays.html_text import html_report
from ..arrays.spec import is_inexact, spec_of
from ..arrays.tensor import Tensor, tensor
from ..arrays.trees import map_tree
from ..arrays.value import Value
from ..errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions
from ..ops.user_calls import call_function
from ..settings import enable_grad
from ..tape.backward import gradients


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found: whether all elements agree, and the worst of them.

    `worst` is (input, index, analytic, numeric), for a check along directions without an index; `error` its distance
    in units of the tolerance. `estimate` says how far off its difference may be itself: by roundoff, and for points
    beyond two by as much as the formula of two points fewer is away from it.
    """

    ok: bool
    checked: int
    error: float
    worst: tuple[int, tuple[int, ...], complex, complex] | None
    estimate: float = 0.0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = "agree" if self.ok else "DISAGREE"
        if self.worst is None:
            return f"derivatives {verdict}: nothing to compare"
        place, index, analytic, numeric = self.worst
        return (
            f"derivatives {verdict}: {self.checked} elements; worst is input {place} at {list(index)}: "
            f"rule {analytic:.10g}, differences {numeric:.10g} +- {self.estimate:.1g} "
            f"({self.error:.2g} of the tolerance)"
            + "\n  The function is not finite next to the point: give a smaller eps, or another point."
            * (np.isfinite(analytic) and not np.isfinite(numeric))
        )

    def _repr_html_(self) -> str:
        return html_report(str(self))


@attributed_to_caller
def gradcheck(
    f: Callable[..., Any],
    *arrays: Any,
    eps: float | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    seed: int = 0,
    points: int = 2,
    fast: bool = False,
) -> CheckReport:
    """Compare the gradient of f with central differences at float64 or complex128 arrays.

    f takes tensors and returns one tensor or a tuple of them; outputs of any shape are weighted at random
    (fixed by `seed`) and summed. Non-finite values on either side never agree. Integer arguments stay fixed.
    Differences of 4 or 6 `points` have more correct digits, so that tolerances may be smaller; `eps` is their step, by
    default one that fits. With `fast` each argument is moved along one random direction, not each of its elements.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.gradcheck(lambda x: pb.sin(x) * x, np.array([0.5, 1.5])))
    True
    """
    check_functions("gradcheck", f)
    stencil = _make_stencil(points, eps)
    check_number("gradcheck: rtol", rtol, least=0)
    check_number("gradcheck: atol", atol, least=0)
    inputs = [_as_double_array(a, i) for i, a in enumerate(arrays)]
    places = [spec_of(a).device if isinstance(a, Tensor) or is_array(a) else "cpu" for a in arrays]
    weights: list[np.ndarray[Any, Any]] = []

    def loss(values: Sequence[Any], track: bool) -> tuple[Tensor, list[Tensor]]:
        tensors = [
            tensor(v, requires_grad=track and is_inexact(np.asarray(v).dtype), device=place)
            for v, place in zip(values, places, strict=True)
        ]
        with enable_grad():
            outs = call_function(f, tensors, {})
            # of numbers alone, what f makes by NumPy are arrays
            total = _weighted_sum(outs if track else map_tree(_as_tensor, outs), weights, np.random.default_rng(seed))
        return total, [t for t in tensors if t.requires_grad]

    total, tracked = loss(inputs, track=True)
    if not tracked:
        raise DtypeError("gradcheck: no argument is float64 or complex128, so there is nothing to check.")
    found = gradients(total, tracked, allow_unused=True) if total.requires_grad else [None] * len(tracked)
    pairs = zip(tracked, found, strict=True)
    analytic = [np.zeros(t.shape, t.dtype) if g is None else np.asarray(g.numpy()) for t, g in pairs]
    moving = [i for i, a in enumerate(inputs) if is_inexact(a.dtype)]
    compared = list(zip(moving, analytic, strict=True))
    value = lambda values: loss(values, False)[0].item()  # noqa: E731
    steps = _random_steps(np.random.default_rng(seed + 2)) if fast else _unit_steps
    return _compare(value, inputs, compared, steps, stencil, rtol, atol)


@attributed_to_caller
def gradgradcheck(
    f: Callable[..., Any],
    *arrays: Any,
    eps: float | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    seed: int = 0,
    points: int = 2,
    fast: bool = False,
) -> CheckReport:
    """Compare the gradient of a random combination of f's gradient with central differences of that gradient; the
    options are those of `gradcheck`.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.gradgradcheck(lambda x: pb.exp(x) * x, np.array([0.5, 1.5])))
    True
    """
    check_functions("gradgradcheck", f)

    weights: list[Any] = []

    def first(*tensors: Tensor) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed + 1)
        tracked = [t if t.requires_grad else tensor(t, requires_grad=True) for t in tensors if is_inexact(t.dtype)]
        swap = iter(tracked)
        full = [next(swap) if is_inexact(t.dtype) else t for t in tensors]
        total = _weighted_sum(call_function(f, full, {}), weights, rng)
        if not total.requires_grad:
            return (total,)
        found = gradients(total, tracked, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, *arrays, eps=eps, rtol=rtol, atol=atol, seed=seed, points=points, fast=fast)


def _as_double_array(array: Any, i: int) -> np.ndarray[Any, Any]:
    """A bare copy of an argument. A tuple of arrays is refused: converted, it would call another function."""
    if isinstance(array, (tuple, dict)) or (isinstance(array, list) and any(map(_is_array_like, array))):
        raise ArgumentTypeError(
            f"gradcheck: argument {i} is a {type(array).__name__} of arrays.\n"
            "  Pass the arrays one after the other: pb.gradcheck(f, x, y)."
        )
    value = np.array(to_numpy(array if isinstance(array, Tensor) else as_array(array), "gradcheck"))
    if is_inexact(value.dtype) and value.dtype not in (np.float64, np.complex128):
        raise DtypeError(f"gradcheck: argument {i} is {value.dtype}; differences need float64 or complex128.")
    return value


def _is_array_like(x: Any) -> bool:
    return isinstance(x, (Value, tuple)) or is_array(x)


def _as_tensor(x: Any) -> Any:
    return tensor(x) if is_array(x) or isinstance(x, np.generic) else x


def _weighted_sum(outputs: Any, weights: list[Any], rng: np.random.Generator) -> Tensor:
    """One real number from all outputs, by fixed random weights; shapes must not change between calls."""
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    first = not weights
    total: Any = None
    for i, out in enumerate(outputs):
        if not isinstance(out, Tensor) or not out.spec.inexact:
            continue
        if first:
            imaginary = 1j * rng.normal(size=out.shape) if out.dtype.kind == "c" else 0
            weights.append((i, rng.normal(size=out.shape) + imaginary))
        weight = next((w for j, w in weights if j == i), None)
        if weight is None or weight.shape != out.shape:
            raise ShapeError(
                f"gradcheck: output {i} changed its shape to {out.shape} when an input was moved a little."
            )
        term = reductions.sum(pointwise.real(pointwise.multiply(out, move_array(np.conj(weight), out.device))))
        total = term if total is None else total + term
    if total is None:
        raise DtypeError("gradcheck: f returned no floating-point tensor.")
    result: Tensor = total
    return result


#: The weights of f(x + k h) - f(x - k h) for k = 1, 2, 3, whose sum over h is the derivative up to h^2, h^4, h^6; and
#: a step for which what is left out is about as large as roundoff.
_WEIGHTS = {2: (1 / 2,), 4: (2 / 3, -1 / 12), 6: (3 / 4, -3 / 20, 1 / 60)}
_STEPS = {2: 1e-6, 4: 1e-3, 6: 5e-3}


@dataclass(frozen=True, slots=True)
class _Stencil:
    points: int
    eps: float

    def slope(self, f: Callable[[float], float]) -> tuple[float, float]:
        """The derivative of f at 0, and how far off it may be."""
        sides = [(f(k * self.eps), f(-k * self.eps)) for k in range(1, self.points // 2 + 1)]
        found, fewer = (
            sum(w * (a - b) for w, (a, b) in zip(_WEIGHTS.get(n, ()), sides, strict=False)) / self.eps
            for n in (self.points, self.points - 2)
        )
        roundoff = np.finfo(float).eps * max(abs(x) for pair in sides for x in pair) / self.eps
        return found, float(roundoff + (abs(found - fewer) if self.points > 2 else 0.0))


def _make_stencil(points: Any, eps: float | None) -> _Stencil:
    if type(points) is not int or points not in _WEIGHTS:
        raise ArgumentError(f"gradcheck: points is 2, 4 or 6, got {points!r}.")
    return _Stencil(points, _STEPS[points] if eps is None else check_number("gradcheck: eps", eps, above=0))


def _unit_steps(like: Any) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    """For each element its index and the directions to move it in: along both axes if it is complex."""
    for index in np.ndindex(like.shape):
        unit = np.zeros_like(like)
        unit[index] = 1
        yield index, [unit, 1j * unit] if like.dtype.kind == "c" else [unit]


def _random_steps(rng: np.random.Generator) -> Callable[[Any], Iterator[tuple[tuple[int, ...], list[Any]]]]:
    def steps(like: Any) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
        if like.size:
            step = rng.normal(size=like.shape) + (1j * rng.normal(size=like.shape) if like.dtype.kind == "c" else 0)
            yield (), [step / np.linalg.norm(step)]

    return steps


def _compare(
    value: Callable[[Sequence[Any]], float], inputs: list[Any], pairs: list[Any], steps: Any, stencil: _Stencil,
    rtol: float, atol: float,
) -> CheckReport:  # fmt: skip
    """Gradients, given as (input, gradient), against differences along steps of each input. For z = a + b i they are
    df/da + i df/db, so that a step of z changes f by the real part of its product with the conjugate.
    """
    worst, worst_error, worst_estimate, checked = None, -1.0, 0.0, 0
    for place, gradient in pairs:
        for index, directions in steps(inputs[place]):
            slopes = [stencil.slope(_along(value, inputs, place, d)) for d in directions]
            rules = [float(np.sum(np.real(np.conj(gradient[d != 0]) * d[d != 0]))) for d in directions]
            numeric, rule = (complex(*row) for row in ([x for x, _ in slopes], rules))
            error = abs(rule - numeric) / (atol + rtol * abs(numeric) or 1e-300)
            error = error if math.isfinite(error) else math.inf
            checked += 1
            if error > worst_error:
                worst_error, worst_estimate = error, max(e for _, e in slopes)
                worst = (place, index, _drop_zero_imaginary(rule), _drop_zero_imaginary(numeric))
    return CheckReport(worst_error <= 1, checked, max(worst_error, 0.0), worst, worst_estimate)


def _along(
    value: Callable[[Sequence[Any]], float], inputs: list[Any], place: int, direction: Any
) -> Callable[[float], float]:
    return lambda t: value([a + t * direction if i == place else a for i, a in enumerate(inputs)])


def _drop_zero_imaginary(z: complex) -> complex:
    return z.real if z.imag == 0 else z
