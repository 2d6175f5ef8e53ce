"""Branches that return one structure, shape and dtype: what both ways of an `if` must agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import make_spec
from ...arrays.trees import leaf_paths, leaves_matching, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.families import result_dtype
from ...ops.shape.reshaping import astype
from ...program.ir import Program, Symbol
from ...program.run import run
from .carry import differ_by_autocast, has_same_type
from .flow.derive import stage_derived


def check_one_structure(what: str, found: Sequence[Any]) -> None:
    """Raise if a function returned other trees when it was traced along another path of its Python branches."""
    if found[-1] != found[0]:
        one, other = (unflatten(s, ["*"] * s.num_leaves) if s is not None else "*" for s in (found[0], found[-1]))
        ends = " One that ends without `return` returns None." * (one is None or other is None)
        raise ArgumentError(
            f"{what} returns {one} on one path and {other} on another, chosen by a traced value.\n"
            f"  Return the same structure on both ways of the branch.{ends}"
        )


def unify_results(what: str, names: Sequence[str], codes: list[Program], structures: list[Any]) -> list[Program]:
    """Programs that return one structure, shape and dtype; a Python number is weak, as everywhere."""
    for name, found in zip(names[1:], structures[1:], strict=True):
        if found != structures[0]:
            leaves_matching(structures[0], unflatten(found, [0.0] * found.num_leaves if found is not None else [0.0]),
                   f"{what}: {name} and {names[0]}")  # fmt: skip
            raise ArgumentError(f"{what}: {name} and {names[0]} must return one structure.")
    wanted = []
    for i, specs in enumerate(zip(*(code.output_specs for code in codes), strict=True)):
        strong = [s for s in specs if s.weak is None]
        dtype = result_dtype(list(specs))
        number = specs.index((strong or specs)[0])
        for name, spec in zip(names, specs, strict=True):
            first = specs[number]
            casts = differ_by_autocast(spec, first)
            if spec.shape != first.shape or (spec.weak is None and spec.dtype != first.dtype and not casts):
                is_cast = spec.shape == first.shape
                cast = f"\n  Convert one of them: x.astype({str(dtype)!r})." * is_cast
                raise (DtypeError if is_cast else ShapeError)(
                    f"{what}: {names[number]} and {name} must return one shape and dtype: "
                    f"result{leaf_paths(structures[0])[i]} is {first} and {spec}.{cast}"
                )
        wanted.append(make_spec(specs[0].shape, dtype, (strong or specs)[0].device))
    return [_replace_outputs(code, wanted) for code in codes]


def _replace_outputs(code: Program, wanted: Sequence[Any]) -> Program:
    made = [(o.spec, spec) for o, spec in zip(code.outputs, wanted, strict=True) if isinstance(o, Symbol)]
    if any(s.weak is None and s.dtype != spec.dtype for s, spec in made):
        dtypes = [spec.dtype for spec in wanted]
        return stage_derived(lambda *xs: list(map(astype, run(code, xs), dtypes)), *code.input_specs)
    outputs = tuple(
        o if isinstance(o, Symbol) and has_same_type(o.spec, spec) and o.spec.weak is None
        else np.asarray(o, spec.dtype) if not isinstance(o, Value) else o
        for o, spec in zip(code.outputs, wanted, strict=True)
    )  # fmt: skip
    return Program(code.inputs, code.equations, outputs)
