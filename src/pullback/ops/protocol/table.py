"""A NumPy function in, ours out: the one table of what answers for what."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from ..late import module
from .refusing import library, refuse, unknown

__all__ = ["FORWARDED", "SAME", "WRITTEN", "known_names", "name_of", "ours_for", "place_of_out"]

#: Functions written here with NumPy's own signatures, by module of this package.
WRITTEN = {
    "reductions": """
        all amax amin any argmax argmin average corrcoef count_nonzero cov cumprod cumsum cumulative_prod
        cumulative_sum max mean median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin
        nanpercentile nanprod nanquantile nanstd nansum nanvar percentile prod ptp quantile std sum var
    """,
    "shapes": """
        astype atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to concatenate copy diagonal
        dstack expand_dims flip fliplr flipud hstack matrix_transpose meshgrid moveaxis pad ravel repeat
        reshape resize roll rollaxis rot90 split squeeze stack swapaxes take take_along_axis tile trace transpose tril
        triu trim_zeros unstack vstack linalg.matrix_transpose linalg.diagonal linalg.trace
        lib.stride_tricks.sliding_window_view
    """,
    "contents": """
        allclose angle apply_over_axes argpartition argsort argwhere around array_equal array_equiv bincount choose clip
        compress copyto diff digitize extract fill_diagonal fix flatnonzero histogram histogram2d histogram_bin_edges
        histogramdd i0 imag intersect1d isclose iscomplex isin isneginf isposinf isreal lexsort nan_to_num nonzero
        partition place put put_along_axis putmask real real_if_close round searchsorted setdiff1d setxor1d sinc sort
        union1d unique unique_all unique_counts unique_inverse unique_values where
    """,
    "products": """
        dot einsum inner kron outer poly polyadd polyder polydiv polyfit polyint polymul polysub roots tensordot vdot
        linalg.cross linalg.matmul linalg.multi_dot linalg.outer linalg.tensordot linalg.vecdot
    """,
    "facts": """
        arange array array2string array_repr array_str asanyarray asarray ascontiguousarray asfortranarray can_cast
        common_type diag_indices_from empty empty_like eye full full_like geomspace identity iscomplexobj isrealobj ix_
        linspace logspace may_share_memory min_scalar_type ndim ones ones_like result_type shape shares_memory size tri
        tril_indices_from triu_indices_from zeros zeros_like
    """,
}
#: Functions of ours that have NumPy's name and signature.
SAME = """
    append apply_along_axis array_split block column_stack convolve correlate cross delete diag diagflat dsplit ediff1d
    gradient hsplit insert interp piecewise polyval select trapezoid unwrap vander vsplit
"""
#: NumPy's name, ours, and how many leading arguments go by position; what ours does not take is refused by name.
FORWARDED = """
    linalg.cholesky      linalg.cholesky      1
    linalg.cond          linalg.cond          1
    linalg.det           linalg.det           1
    linalg.eig           linalg.eig           1
    linalg.eigh          linalg.eigh          1
    linalg.eigvals       linalg.eigvals       1
    linalg.eigvalsh      linalg.eigvalsh      1
    linalg.inv           linalg.inv           1
    linalg.lstsq         linalg.lstsq         2
    linalg.matrix_norm   linalg.matrix_norm   1
    linalg.matrix_power  linalg.matrix_power  2
    linalg.matrix_rank   linalg.matrix_rank   1
    linalg.norm          linalg.norm          1
    linalg.pinv          linalg.pinv          1
    linalg.qr            linalg.qr            1
    linalg.slogdet       linalg.slogdet       1
    linalg.solve         linalg.solve         2
    linalg.svd           linalg.svd           1
    linalg.svdvals       linalg.svdvals       1
    linalg.tensorinv     linalg.tensorinv     1
    linalg.tensorsolve   linalg.tensorsolve   2
    linalg.vector_norm   linalg.vector_norm   1
    fft.fft              fft.fft              1
    fft.ifft             fft.ifft             1
    fft.rfft             fft.rfft             1
    fft.irfft            fft.irfft            1
    fft.hfft             fft.hfft             1
    fft.ihfft            fft.ihfft            1
    fft.fft2             fft.fft2             1
    fft.ifft2            fft.ifft2            1
    fft.rfft2            fft.rfft2            1
    fft.irfft2           fft.irfft2           1
    fft.fftn             fft.fftn             1
    fft.ifftn            fft.ifftn            1
    fft.rfftn            fft.rfftn            1
    fft.irfftn           fft.irfftn           1
    fft.fftshift         fft.fftshift         1
    fft.ifftshift        fft.ifftshift        1
"""

_written = {name: module for module, names in WRITTEN.items() for name in names.split()}
_forwarded = {row[0]: (row[1], int(row[2])) for row in map(str.split, FORWARDED.strip().splitlines())}
_same = frozenset(SAME.split())


def known_names() -> list[str]:
    """Every NumPy function in the table, as `sum` or `linalg.solve`."""
    return sorted({*_written, *_forwarded, *_same})


def name_of(function: Any) -> str:
    """`sum` for np.sum, `linalg.solve` for np.linalg.solve."""
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")


def ours_for(function: Any) -> Callable[..., Any]:
    """Our function for one of NumPy's, or the error that says there is none."""
    name = name_of(function)
    if name in _written:
        return getattr(module(f"protocol.{_written[name]}"), name.replace("linalg.", "linalg_").rpartition(".")[2])  # type: ignore[no-any-return]
    if name in _same:
        return library(name, name)  # type: ignore[no-any-return]
    if name in _forwarded:
        return _forward(function, *_forwarded[name])
    raise unknown(name)


def place_of_out(function: Any) -> int | None:
    """Where `out` stands among the parameters, None if there is none."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    if "out" not in parameters:
        return None
    named_only = parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    return sys.maxsize if named_only else list(parameters).index("out")


def _forward(function: Any, ours_name: str, leading: int) -> Callable[..., Any]:
    """A function of ours behind NumPy's parameters: defaults are left out, what ours does not take is refused."""
    name = name_of(function)
    ours = library(ours_name, name)
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    taken = inspect.signature(ours).parameters

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        front = [given.pop(n) for n in names[:leading]]
        wanted = {n: v for n, v in given.items() if v is not parameters[n].default and n != "out"}
        refuse(name, **{n: v for n, v in wanted.items() if n not in taken})
        return ours(*front, **wanted)

    return call
