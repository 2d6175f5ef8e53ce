"""The table of NumPy's functions and ours that implement them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from ...arrays.value import Value
from ..concrete import as_bare_array
from ..lazy import load_module
from .unsupported import package_function, refuse, unsupported_error

#: Our functions with NumPy's parameters, by how many leading arguments are positional; `np=ours` renames.
#: Their keywords have NumPy's names; one that ours lacks is refused by name.
FORWARDED = {
    1: """
        all any amax=max max amin=min min average block column_stack count_nonzero cumsum=cumulative_sum cumulative_sum
        cumprod=cumulative_prod cumulative_prod diagflat diagonal dsplit dstack expand_dims
        argsort argwhere bincount flatnonzero flip fliplr flipud hsplit vsplit array_split lexsort matrix_transpose mean
        median nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar
        nonzero prod ptp ravel reshape roll rot90 sort split squeeze std sum trace transpose=permute_dims trapezoid tril
        triu trim_zeros unique unique_all unique_counts unique_inverse unique_values unstack var argpartition partition
        angle sinc real imag isreal iscomplex fix=trunc i0=special.i0 argmax argmin around=round round diff isneginf
        isposinf identity=eye
        linalg.cond linalg.det linalg.inv
        linalg.matrix_norm linalg.matrix_rank linalg.norm linalg.pinv linalg.qr linalg.slogdet linalg.svd linalg.svdvals
        linalg.tensorinv linalg.vector_norm linalg.matrix_transpose linalg.diagonal linalg.trace linalg.multi_dot
        fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn
        fft.ifftn fft.rfftn fft.irfftn fft.fftshift fft.ifftshift
    """,
    2: """
        append broadcast_to choose extract compress cross delete inner kron outer percentile quantile
        nanpercentile nanquantile repeat resize searchsorted take take_along_axis tensordot tile vdot isclose astype eye
        linalg.lstsq linalg.matrix_power linalg.solve linalg.tensorsolve linalg.cross linalg.matmul linalg.outer
        linalg.tensordot linalg.vecdot
    """,
    3: """
        insert moveaxis rollaxis swapaxes lib.stride_tricks.sliding_window_view=sliding_window_view
    """,
    99: "atleast_1d atleast_2d atleast_3d meshgrid",
}
#: Our functions that have NumPy's name and signature.
SAME = """
    apply_along_axis convolve correlate ediff1d gradient interp piecewise polyval select unwrap vander
"""
#: Functions whose results carry no derivative: NumPy computes them, on bare arrays.
BARE = """
    allclose array2string array_equal array_equiv array_repr array_str digitize isin
    may_share_memory shares_memory
"""
#: Functions implemented in this package with NumPy's signatures, by module.
IMPLEMENTED = {
    "elements": """
        apply_over_axes clip corrcoef cov histogram histogram2d histogram_bin_edges histogramdd intersect1d ix_
        nan_to_num real_if_close setdiff1d setxor1d union1d where copyto fill_diagonal place put put_along_axis putmask
    """,
    "manipulation": """
        broadcast_arrays concatenate copy diag dot einsum hstack pad stack vstack linalg.cholesky linalg.eig
        linalg.eigh linalg.eigvals linalg.eigvalsh
    """,
    "poly": "poly polyadd polyder polydiv polyfit polyint polymul polysub roots",
    "metadata": """
        arange array asanyarray asarray ascontiguousarray asfortranarray can_cast common_type diag_indices_from empty
        empty_like full full_like geomspace iscomplexobj isrealobj linspace logspace min_scalar_type ndim ones ones_like
        result_type shape size tri tril_indices_from triu_indices_from zeros zeros_like
    """,
}
#: Options without effect on our values.
_IGNORED_OPTIONS = ("subok", "overwrite_input", "out")

_implemented = {name: place for place, names in IMPLEMENTED.items() for name in names.split()}
_forwarded = {
    row.partition("=")[0]: (row.partition("=")[2] or row, leading)
    for leading, rows in FORWARDED.items()
    for row in rows.split()
}
_same = frozenset(SAME.split())
_bare = frozenset(BARE.split())


def known_names() -> list[str]:
    """Every NumPy function in the table, as `sum` or `linalg.solve`."""
    return sorted({*_implemented, *_forwarded, *_same, *_bare})


def name_of(function: Any) -> str:
    """`sum` for np.sum, `linalg.solve` for np.linalg.solve."""
    return f"{function.__module__}.{function.__name__}".removeprefix("numpy.")


def function_for(function: Any) -> Callable[..., Any]:
    """Our function for one of NumPy's, or the error that says there is none."""
    name = name_of(function)
    if name in _implemented:
        return getattr(load_module(f"protocol.{_implemented[name]}"), name.rpartition(".")[2])  # type: ignore[no-any-return]
    if name in _same:
        return package_function(name, name)  # type: ignore[no-any-return]
    if name in _bare:
        return _on_bare_arrays(function)
    if name in _forwarded:
        return _adapt_signature(function, *_forwarded[name])
    raise unsupported_error(name)


def _on_bare_arrays(function: Any) -> Callable[..., Any]:
    def bare(x: Any) -> Any:
        return as_bare_array(x, name_of(function)) if isinstance(x, (Value, list, tuple)) else x

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(bare, args), **{name: bare(x) for name, x in kwargs.items()})

    return call


def out_position(function: Any) -> int | None:
    """Where `out` stands among the parameters, None if there is none."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    if "out" not in parameters:
        return None
    named_only = parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    return sys.maxsize if named_only else list(parameters).index("out")


def _adapt_signature(function: Any, ours_name: str, leading: int) -> Callable[..., Any]:
    """Our function behind NumPy's parameters: defaults are dropped, unsupported ones refused."""
    name = name_of(function)
    ours = package_function(ours_name, name)
    parameters = inspect.signature(function).parameters
    names = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)]
    taken = inspect.signature(ours).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in taken.values())

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        front = [given.pop(n) for n in names[:leading] if n in given] or args
        wanted = {n: v for n, v in given.items() if v is not parameters[n].default and n not in _IGNORED_OPTIONS}
        if not takes_all and not wanted.keys() <= taken.keys():
            refuse(name, **{n: v for n, v in wanted.items() if n not in taken})
        return ours(*front, **wanted)

    return call
