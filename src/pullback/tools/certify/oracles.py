"""A case in, its value computed elsewhere out: by mpmath at 40 digits, NumPy or SciPy, looked up by the op's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .cases import Case
from .digits import elementwise, scalar_function

__all__ = ["oracle_of"]

Oracle = Callable[[], Any]

#: NumPy's functions whose parameters are called otherwise, or that take them in another form.
_WORDED: dict[str, Callable[..., Any]] = {
    "clip": lambda x, lower, upper: np.clip(x, lower, upper),
    "concat": lambda *xs, axis: np.concatenate(xs, axis),
    "einsum": lambda *xs, labels, result: np.einsum(f"{','.join(labels)}->{result}", *xs),
    "split": lambda x, cuts, axis: np.split(x, cuts, axis),
    "permute_dims": np.transpose,
    "cumulative_sum": np.cumsum,
    "cumulative_prod": np.cumprod,
    "astype": lambda x, dtype: (x if np.dtype(dtype).kind == "c" else np.real(x)).astype(dtype),
    "matvec": lambda x, y: np.einsum("...ij,...j->...i", x, y),
    "solve": np.linalg.solve,
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": lambda x: tuple(np.linalg.slogdet(x)),
    "fft": lambda x, axes, inverse, norm: (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm),
    "rfft": np.fft.rfft,
    "irfft": np.fft.irfft,
    "stop_gradient": lambda x: x,
    "name": lambda x, **static: x,
    "checked": lambda x, bad, **static: x,
    "once": lambda x, bad, **static: x,
    "straight_through_round": np.round,
    "logcumsumexp": lambda x, axis: np.logaddexp.accumulate(x, axis=axis),
    "cholesky": lambda x: np.linalg.cholesky((x + np.conj(np.swapaxes(x, -1, -2))) / 2),
    "eigh": lambda x, vectors: tuple(np.linalg.eigh((x + np.conj(np.swapaxes(x, -1, -2))) / 2)),
}
#: NumPy's functions that take the op's arguments and parameters as they stand.
_AS_IT_STANDS = {
    "all", "any", "argmax", "argmin", "broadcast_to", "convolve", "flip", "imag", "matmul", "max", "min",
    "prod", "real", "reshape", "roll", "sum", "where",
}  # fmt: skip
#: Functions whose answer is about the dtype itself.
_OF_DTYPE = frozenset(("nextafter", "spacing"))


def oracle_of(case: Case) -> Oracle | None:
    """What computes the value of a case elsewhere, in double precision; None: nobody is known to."""
    if case.op is None:
        return None
    found = _function(case)
    if found is None:
        return None
    args = case.args if case.op.name in _OF_DTYPE else [_wide(a) for a in case.args]
    return lambda: found(*args, **case.static)


def _wide(x: Any) -> Any:
    a = np.asarray(x)
    return a.astype("float64") if a.dtype.kind == "f" else a


def _function(case: Case) -> Callable[..., Any] | None:
    op = case.op
    if op is None:
        return None
    scalar = scalar_function(op.name) if op.family == "elementwise" and not case.static else None
    if scalar is not None and all(np.asarray(a).dtype.kind in "fciu" for a in case.args):
        return lambda *args: elementwise(scalar, args)
    if op.ufunc:
        return getattr(np, op.ufunc)  # type: ignore[no-any-return]
    if op.name in _WORDED:
        return _WORDED[op.name]
    if op.name in _AS_IT_STANDS:
        return getattr(np, op.name)  # type: ignore[no-any-return]
    return _of_scipy(op.name)


def _of_scipy(name: str) -> Callable[..., Any] | None:
    import scipy.linalg
    import scipy.special

    if name in ("expm", "spherical_in", "spherical_jn", "spherical_kn", "spherical_yn"):
        return getattr(scipy.linalg if name == "expm" else scipy.special, name)  # type: ignore[no-any-return]
    found = getattr(scipy.special, name, None)
    return found if isinstance(found, np.ufunc) else None
