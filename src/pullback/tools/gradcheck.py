"""`gradcheck` and `gradgradcheck`: derivatives against finite differences, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from ..arrays.value import Value
from ..errors import ArgumentTypeError, DtypeError, ShapeError
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions
from ..settings import enable_grad
from ..tape.backward import gradients


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found: whether all elements agree, and the worst of them.

    `worst` is (input, index, analytic, numeric); `error` its distance in units of the tolerance.
    """

    ok: bool
    checked: int
    error: float
    worst: tuple[int, tuple[int, ...], complex, complex] | None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = "agree" if self.ok else "DISAGREE"
        if self.worst is None:
            return f"derivatives {verdict}: nothing to compare"
        place, index, analytic, numeric = self.worst
        return (
            f"derivatives {verdict}: {self.checked} elements; worst is input {place} at {list(index)}: "
            f"rule {analytic:.10g}, differences {numeric:.10g} ({self.error:.2g} of the tolerance)"
        )

    def _repr_html_(self) -> str:
        return html_report(str(self))


@attributed_to_caller
def gradcheck(
    f: Callable[..., Any], *arrays: Any, eps: float = 1e-6, rtol: float = 1e-5, atol: float = 1e-7, seed: int = 0
) -> CheckReport:
    """Compare the gradient of f with central differences at float64 or complex128 arrays.

    f takes tensors and returns one tensor or a tuple of them; outputs of any shape are weighted at random
    (fixed by `seed`) and summed. Non-finite values on either side never agree. Integer arguments stay fixed.

    >>> import numpy as np, pullback as pb
    >>> bool(pb.gradcheck(lambda x: pb.sin(x) * x, np.array([0.5, 1.5])))
    True
    """
    check_functions("gradcheck", f)
    check_number("gradcheck: eps", eps, above=0)
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
            total = _weighted_sum(f(*tensors), weights, np.random.default_rng(seed))
        return total, [t for t in tensors if t.requires_grad]

    total, tracked = loss(inputs, track=True)
    if not tracked:
        raise DtypeError("gradcheck: no argument is float64 or complex128, so there is nothing to check.")
    found = gradients(total, tracked, allow_unused=True) if total.requires_grad else [None] * len(tracked)
    pairs = zip(tracked, found, strict=True)
    analytic = [np.zeros(t.shape, t.dtype) if g is None else np.asarray(g.numpy()) for t, g in pairs]
    moving = [i for i, a in enumerate(inputs) if is_inexact(a.dtype)]
    compared = list(zip(moving, analytic, strict=True))
    return _compare_elements(lambda values: loss(values, False)[0].item(), inputs, compared, eps, rtol, atol)


@attributed_to_caller
def gradgradcheck(
    f: Callable[..., Any], *arrays: Any, eps: float = 1e-6, rtol: float = 1e-5, atol: float = 1e-6, seed: int = 0
) -> CheckReport:
    """Compare the gradient of a random combination of f's gradient with central differences of that gradient.

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
        total = _weighted_sum(f(*full), weights, rng)
        if not total.requires_grad:
            return (total,)
        found = gradients(total, tracked, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, *arrays, eps=eps, rtol=rtol, atol=atol, seed=seed)


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


def _compare_elements(
    value: Callable[[Sequence[Any]], float], inputs: list[Any], pairs: list[Any], eps: float, rtol: float, atol: float
) -> CheckReport:
    """Each element of gradients, given as (input, gradient), against differences."""
    worst, worst_error, checked = None, -1.0, 0
    for place, gradient in pairs:
        for index in np.ndindex(inputs[place].shape):
            numeric, rule = _central_difference(value, inputs, place, index, eps), complex(gradient[index])
            error = abs(rule - numeric) / (atol + rtol * abs(numeric) or 1e-300)
            error = error if math.isfinite(error) else math.inf
            checked += 1
            if error > worst_error:
                worst_error, worst = error, (place, index, _drop_zero_imaginary(rule), _drop_zero_imaginary(numeric))
    return CheckReport(worst_error <= 1, checked, max(worst_error, 0.0), worst)


def _drop_zero_imaginary(z: complex) -> complex:
    return z.real if z.imag == 0 else z


def _central_difference(
    value: Callable[[Sequence[Any]], float], inputs: list[Any], place: int, index: Any, eps: float
) -> complex:
    """Central differences in one element; for a complex one along both axes: df/da + i df/db."""

    def along(step: complex) -> float:
        moved = [a.copy() if i == place else a for i, a in enumerate(inputs)]
        moved[place][index] += step
        high = value(moved)
        moved[place][index] -= 2 * step
        return (high - value(moved)) / (2 * eps)

    real = along(eps)
    return complex(real, along(1j * eps)) if inputs[place].dtype.kind == "c" else complex(real)
