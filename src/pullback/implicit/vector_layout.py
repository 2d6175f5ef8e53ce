"""How a tree of arrays lies in one vector: solvers work on vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.dispatch import shape
from ..ops.shape.arrange import concat, split
from ..ops.shape.reshaping import astype, reshape
from ..transforms.boundary import as_differentiable


class VectorLayout:
    """How the leaves of a tree lie in a vector: one after the other, each flattened, all in one dtype. One number alone
    may stay a `scalar`, which saves the conversion to a vector and back at each evaluation.
    """

    __slots__ = ("_cuts", "dtype", "scalar", "size", "specs", "structure")

    def __init__(self, structure: Any, specs: Sequence[Spec], scalar: bool = False) -> None:
        self.structure = structure
        self.specs = tuple(specs)
        self.scalar = scalar and len(specs) == 1 and specs[0].shape == ()
        sizes = [spec.size for spec in specs]
        self.size = sum(sizes)
        self._cuts = [sum(sizes[:i]) for i in range(1, len(sizes))]
        self.dtype = np.result_type(*(spec.dtype for spec in specs))

    @staticmethod
    def from_tree(tree: Any, what: str, scalar: bool = False) -> tuple[VectorLayout, list[Any]]:
        """The layout of a tree, and its leaves as values."""
        leaves, structure = flatten(tree)
        values = [as_differentiable(x, what, structure, i) for i, x in enumerate(leaves)]
        if not values:
            raise ArgumentError(f"{what}: there is nothing to solve for: the tree has no arrays.")
        if any(spec_of(x).dtype.kind == "c" for x in values):
            raise DtypeError(f"{what}: unknowns are real.\n  Solve for real and imaginary part.")
        return VectorLayout(structure, [spec_of(x) for x in values], scalar), values

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a vector."""
        return () if self.scalar else (self.size,)

    def join_leaves(self, leaves: Sequence[Any]) -> Any:
        """Leaves as one vector."""
        if len(leaves) == 1 and shape(leaves[0]) == self.shape and spec_of(leaves[0]).dtype == self.dtype:
            return leaves[0]
        if self.scalar:
            return astype(leaves[0], self.dtype)
        flat = [reshape(astype(x, self.dtype), (math.prod(shape(x)),)) for x in leaves]
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
        return self.join_leaves(leaves)

    def to_tree(self, vector: Any) -> Any:
        """A vector as the tree."""
        if len(self.specs) == 1 and self.specs[0].shape == self.shape:
            return unflatten(self.structure, [vector])
        parts = split(vector, self._cuts) if len(self.specs) > 1 else [vector]
        pairs = zip(parts, self.specs, strict=True)
        return unflatten(self.structure, [astype(reshape(x, spec.shape), spec.dtype) for x, spec in pairs])
