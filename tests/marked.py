"""Programs in which everything varies that could, so that each sample and each generated program is a judge of the code
for sizes that vary."""

import numpy as np

from pullback.compile import varying
from pullback.compile.siblings import KnownSizes
from pullback.compile.varying import Operand, Varying, VaryingFloat

__all__ = ["everything_varies"]


def everything_varies(patch=setattr):
    """From now on, sizes, strides, offsets and numbers of all programs are read when the code runs; `patch` sets an
    attribute, such as that of a monkeypatch.
    """
    patch(varying, "_mark", _mark)
    patch(varying, "_mark_all", lambda xs, ys: tuple(map(_mark, xs, ys)))
    patch(varying, "_mark_number", _mark_number)
    patch(KnownSizes, "compare", _compare)


def _mark(x, y):
    # a size of one is never that of an axis that is walked along
    return x if x < 2 or isinstance(x, Operand) else Varying(x, f"size {x}")


def _mark_number(x, y):
    found = np.asarray(x)
    return VaryingFloat(float(found), str(x)) if found.dtype.kind == "f" and found.ndim == 0 else x


def _compare(self, c):
    marked = varying.mark_steps(c.steps, c.steps)
    assert marked is not None
    c.sibling, c.planned = c, marked
