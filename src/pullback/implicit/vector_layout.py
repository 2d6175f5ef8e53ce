"""How a tree of arrays lies in one vector of reals: solvers work on vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.dispatch import counts_as_number, shape
from ..ops.elementwise.pointwise import imag, real
from ..ops.linalg.common import real_dtype
from ..ops.placement import move
from ..ops.shape.arrange import concat, split
from ..ops.shape.reshaping import astype, reshape
from ..transforms.boundary import as_differentiable

_SPLIT = "Solve for real and imaginary part."


class VectorLayout:
    """How the leaves of a tree lie in a vector: one after the other, each flattened, all in one dtype on one device;
    a complex one is its real part and then its imaginary part. One real number alone may stay a `scalar`, which saves
    the conversion to a vector and back at each evaluation.
    """

    __slots__ = ("_advice", "_cuts", "device", "dtype", "scalar", "size", "specs", "structure")

    def __init__(self, structure: Any, specs: Sequence[Spec], scalar: bool = False) -> None:
        self._advice = _SPLIT
        self.structure = structure
        self.specs = tuple(specs)
        self.scalar = scalar and len(specs) == 1 and specs[0].shape == ()
        self.device = next((spec.device for spec in specs if not counts_as_number(spec)), "cpu")
        sizes = [spec.size * (2 if _is_complex(spec) else 1) for spec in specs]
        self.size = sum(sizes)
        self._cuts = [sum(sizes[:i]) for i in range(1, len(sizes))]
        self.dtype = np.result_type(*(real_dtype(spec.dtype) for spec in specs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VectorLayout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.structure, self.specs, self.scalar

    @staticmethod
    def from_tree(
        tree: Any, what: str, scalar: bool = False, allow_complex: bool = False
    ) -> tuple[VectorLayout, list[Any]]:
        """The layout of a tree, and its leaves as values."""
        leaves, structure = flatten(tree)
        values = [as_differentiable(x, what, structure, i) for i, x in enumerate(leaves)]
        if not values:
            raise ArgumentError(f"{what}: there is nothing to solve for: the tree has no arrays.")
        if not allow_complex and any(_is_complex(spec_of(x)) for x in values):
            raise DtypeError(f"{what}: unknowns are real.\n  {_SPLIT}")
        layout = VectorLayout(structure, [spec_of(x) for x in values], scalar)
        layout._advice = "Begin with complex numbers, x + 0j." if allow_complex else _SPLIT
        return layout, values

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector."""
        return () if self.scalar else (self.size,)

    def join_leaves(self, leaves: Sequence[Any]) -> Any:
        """Leaves as one vector."""
        if self.device != "cpu":  # a number goes where the arrays are
            leaves = [move(x, self.device) if counts_as_number(spec_of(x)) else x for x in leaves]
        if len(leaves) == 1 and shape(leaves[0]) == self.shape and spec_of(leaves[0]).dtype == self.dtype:
            return leaves[0]
        if self.scalar:
            return astype(leaves[0], self.dtype)
        parts = [part for x, spec in zip(leaves, self.specs, strict=True) for part in _real_parts(x, spec)]
        flat = [reshape(astype(x, self.dtype), (math.prod(shape(x)),)) for x in parts]
        return flat[0] if len(flat) == 1 else concat(flat)

    def to_vector(self, tree: Any, what: str) -> Any:
        """A tree that must look like this one, as a vector."""
        leaves = leaves_matching(self.structure, tree, what)
        for i, (x, spec) in enumerate(zip(leaves, self.specs, strict=True)):
            if spec_of(x).shape != spec.shape:
                raise ShapeError(
                    f"{what}: leaf{leaf_paths(self.structure)[i]} has shape {spec_of(x).shape}, "
                    f"the unknown {spec.shape}."
                )
            if _is_complex(spec_of(x)) and not _is_complex(spec):  # a cast would drop the imaginary part
                raise DtypeError(f"{what}: the function is complex, unknowns are real.\n  {self._advice}")
        return self.join_leaves(leaves)

    def to_tree(self, vector: Any) -> Any:
        """A vector as the tree."""
        if len(self.specs) == 1 and self.specs[0].shape == self.shape and not _is_complex(self.specs[0]):
            return unflatten(self.structure, [vector])
        parts = split(vector, self._cuts) if len(self.specs) > 1 else [vector]
        pairs = zip(parts, self.specs, strict=True)
        return unflatten(self.structure, [_from_real_parts(x, spec) for x, spec in pairs])


def _is_complex(spec: Spec) -> bool:
    return spec.dtype.kind == "c"


def _real_parts(x: Any, spec: Spec) -> tuple[Any, ...]:
    """A leaf, or the real and the imaginary part of what stands for a complex one."""
    if not _is_complex(spec):
        return (x,)
    x = astype(x, spec.dtype)
    return real(x), imag(x)


def _from_real_parts(vector: Any, spec: Spec) -> Any:
    """The leaf that lies in a vector."""
    if _is_complex(spec):
        vector = vector[: spec.size] + 1j * vector[spec.size :]
    return astype(reshape(vector, spec.shape), spec.dtype)
