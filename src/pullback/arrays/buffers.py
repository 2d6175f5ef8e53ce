"""`Buffer`: an array of NumPy that a function made while a transform ran it, which derivatives may be written into."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar
from weakref import ref

import numpy as np


class Run:
    """A call of a user's function by a transform; a context that was copied meanwhile may outlive it. `tracked` are the
    arrays into which derivatives were written. In one that `makes_buffers` NumPy's creation functions do.
    """

    __slots__ = ("__weakref__", "is_over", "makes_buffers", "tracked")

    def __init__(self, makes_buffers: bool = True) -> None:
        self.is_over = False
        self.makes_buffers = makes_buffers
        self.tracked: list[ref[Buffer]] = []


#: The call of a function that creates no arrays.
WITHOUT_BUFFERS = Run(makes_buffers=False)


current_run: ContextVar[Run | None] = ContextVar("pullback_user_call", default=None)


class Buffer(np.ndarray):
    """Abstract: an array whose views are known, so that all of them can follow when a derivative is written into one.

    It is NumPy's in everything else, at NumPy's speed, so a function that writes numbers alone notices nothing. The
    two kinds are in `ops/protocol/buffers.py`. `whole` and `places` belong to those that hold derivatives.
    """

    __slots__ = ("memory_of", "places", "views", "whole")
    __hash__: ClassVar[None]
    #: Of a view that NumPy made as an array of its own class: the owner of that memory.
    memory_of: Buffer
    #: Of an array with memory of its own: weak references to the others that lie in it.
    views: list[ref[Buffer]]
    #: A tensor with the values of all the memory, in the shape of the array that it belongs to.
    whole: Any
    #: Where the elements of a view lie among those of the whole, counted in its order; None for the whole itself.
    places: Any

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(self.base, Buffer):
            self.base.owner.adopt_view(self)

    def adopt_view(self, view: Buffer) -> None:
        """Let an array that lies in the memory of this one follow when a derivative is written."""
        views = getattr(self, "views", None)
        if views is None:
            self.views = views = []
        elif len(views) > 32 and not len(views) & (len(views) - 1):
            views[:] = [other for other in views if other() is not None]
        views.append(ref(view))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(type(self))

    def unwrap(self) -> Any:
        """What ops compute with: the plain array, or a tensor."""
        return self.view(np.ndarray)

    def assign(self, value: Any) -> Buffer:
        """Write a value into all of this, as `out=` does."""
        self[...] = value
        return self

    def rewrite(self, write: Callable[[Any], Any]) -> Buffer:
        """Let a function that writes into a tensor write into this."""
        raise NotImplementedError

    @property
    def owner(self) -> Buffer:
        """The array whose memory this is: itself, unless it is a view."""
        base = self.base
        return base.owner if isinstance(base, Buffer) else getattr(self, "memory_of", self)


def unwrap_tracked(x: Any) -> Any:
    """A tensor in place of a buffer that holds derivatives; anything else as it is."""
    return x.unwrap() if isinstance(x, Buffer) and hasattr(x, "whole") else x
