"""Functions of one sample in, programs with factored gradients out: `StagedGradient` and `StagedPull`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..arrays.spec import Spec, spec_of
from ..arrays.trees import LEAF, flatten, leaf_paths, unflatten
from ..errors import ArgumentError, DtypeError, ShapeError
from ..program.ir import Program, Symbol
from ..program.passes import drop_unused
from ..program.run import run
from ..program.split import ForwardBackward, split_forward_backward
from ..program.stage import stage
from ..transforms.boundary import as_array_leaf, as_differentiable, unwrap_to_level
from ..transforms.reverse import value_and_grad, vjp
from ..transforms.vectorize import vmap
from .factored import Leaf, Rows, make_leaf
from .layout import Layout


@dataclass(frozen=True, slots=True)
class Batch:
    """Parameters and samples of a call, as leaves; each leaf of the samples has the batch along its first axis."""

    what: str
    params: list[Any]
    params_structure: Any
    samples: list[Any]
    samples_structure: Any
    size: int

    @property
    def specs(self) -> list[Spec]:
        """The specs of the parameters, then those of one sample."""
        each = [spec.element or spec.element_spec() for spec in map(spec_of, self.samples)]
        return [*map(spec_of, self.params), *each]

    def over_samples(self, function: Callable[..., Any]) -> Any:
        """`function(values)` for each sample, where values are those that a staged program takes."""
        return vmap(lambda *sample: function([*self.params, *sample]), axis_size=self.size)(*self.samples)

    def as_params(self, leaves: Sequence[Any]) -> Any:
        """Leaves as a tree like the parameters."""
        return unflatten(self.params_structure, leaves)


def read_batch(what: str, params: Any, batch: Any) -> Batch:
    """A call's arguments, checked."""
    leaves, structure = flatten(params)
    values = [as_differentiable(x, what, structure, i) for i, x in enumerate(leaves)]
    for i, x in enumerate(values):
        if spec_of(x).dtype.kind == "c":
            raise DtypeError(
                f"{what}: parameters are real, params{leaf_paths(structure)[i]} is {spec_of(x)}.\n"
                "  Differentiate by real and imaginary part."
            )
    found, arrangement = flatten(batch)
    samples = [as_array_leaf(x, what) for x in found]
    sizes = {spec_of(x).shape[:1] for x in samples}
    if len(sizes) != 1 or () in sizes:
        shown = ", ".join(f"batch{path} {spec_of(x)}" for path, x in zip(leaf_paths(arrangement), samples, strict=True))
        raise ShapeError(
            f"{what}: arrays of the batch have one sample for each place of their first axis, got {shown or 'none'}.\n"
            "  What all samples share is closed over, or part of the parameters."
        )
    return Batch(what, values, structure, samples, arrangement, sizes.pop()[0])


@dataclass(frozen=True, slots=True)
class StagedGradient:
    """The value and the gradient of a function for one sample; `parts` are the outputs after the value."""

    program: Program
    parts: tuple[int, ...]
    leaves: tuple[Leaf, ...]

    @property
    def layouts(self) -> list[Layout | None]:
        return [leaf.layout for leaf in self.leaves]

    def run(self, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The value and, for each parameter, its gradient: as rows, or as it is."""
        value, *found = run(self.program, values)
        known = dict(zip(self.parts, found, strict=True))
        return value, [_assemble(leaf, known) for leaf in self.leaves]


def _assemble(leaf: Leaf, known: dict[int, Any]) -> Any:
    return Rows(leaf.side(0, known), leaf.side(1, known)) if leaf.terms else leaf.value(known)


def stage_gradient(f: Callable[..., Any], batch: Batch) -> StagedGradient:
    """Trace the gradient of `f(params, *sample)`, a number, and find its factors."""
    count = len(batch.params)

    def flat(*symbols: Any) -> list[Any]:
        params, sample = batch.as_params(symbols[:count]), unflatten(batch.samples_structure, symbols[count:])
        value, grads = value_and_grad(f)(params, *sample) if count else (f(params, *sample), ())
        return [unwrap_to_level(x, symbols[0].scope) for x in (value, *flatten(grads)[0])]

    program = stage(flat, *batch.specs)
    leaves = tuple(make_leaf(program, o) for o in program.outputs[1:])
    parts = {i: s for leaf in leaves for i, s in leaf.symbols(late=False).items()}
    outputs = (program.outputs[0], *parts.values())
    return StagedGradient(drop_unused(replace(program, outputs=outputs)), tuple(parts), leaves)


@dataclass(frozen=True, slots=True)
class StagedPull:
    """A model for one sample, and the pullback of its output: in two programs, since cotangents depend on the output.

    `early` and `late` are the symbols that leaves are made of, computed by one and the other.
    """

    programs: ForwardBackward
    early: tuple[int, ...]
    late: tuple[int, ...]
    leaves: tuple[Leaf, ...]

    @property
    def layouts(self) -> list[Layout | None]:
        return [leaf.layout for leaf in self.leaves]

    def run(self, values: Sequence[Any]) -> tuple[Any, Callable[[Any], list[Any]]]:
        """The output of the model, and the function of many cotangents (k, *shape) that returns for each parameter
        the cotangents pulled back: rows whose right side has an axis of k in front, or an array that has.
        """
        made = run(self.programs.forward, values)
        known = dict(zip(self.early, made[1:], strict=False))
        residuals = [(values if where == "argument" else made)[i] for where, i in self.programs.residual_sources]

        def pull_one(bar: Any) -> list[Any]:
            found = run(self.programs.backward, [*residuals, bar])
            now = known | dict(zip(self.late, found, strict=True))
            return [leaf.side(1, now) if leaf.terms else leaf.value(now) for leaf in self.leaves]

        def pull_many(bars: Any) -> list[Any]:
            pairs = zip(self.leaves, vmap(pull_one)(bars), strict=True)
            return [Rows(leaf.side(0, known), x) if leaf.terms else x for leaf, x in pairs]

        return made[0], pull_many


def stage_pull(model: Callable[..., Any], batch: Batch) -> StagedPull:
    """Trace `model(params, inputs)`, whose result is one array, with its pullback, and find the factors of that."""
    count = len(batch.params)

    def apply_model(*symbols: Any) -> list[Any]:
        params, inputs = batch.as_params(symbols[:count]), unflatten(batch.samples_structure, symbols[count:])
        return [unwrap_to_level(_check_output(model(params, *inputs), batch.what), symbols[0].scope)]

    forward = stage(apply_model, *batch.specs)  # the user's function runs once: its program is what is differentiated

    def flat(*symbols: Any) -> list[Any]:
        *values, bar = symbols
        if not count:
            return run(forward, values)
        out, pull = vjp(lambda *params: run(forward, [*params, *values[count:]])[0], *values[:count])
        return [unwrap_to_level(x, bar.scope) for x in (out, *pull(bar))]

    program = stage(flat, *batch.specs, forward.output_specs[0])
    late = _find_dependents(program, program.inputs[-1])
    leaves = tuple(make_leaf(program, o, late) for o in program.outputs[1:])
    early, after = (
        {i: s for leaf in leaves for i, s in leaf.symbols(late=is_late).items()} for is_late in (False, True)
    )
    whole = replace(program, outputs=(program.outputs[0], *early.values(), *after.values()))
    programs = split_forward_backward(whole, len(batch.specs), 1 + len(early), lambda e: False)
    return StagedPull(programs, tuple(early), tuple(after), leaves)


def _find_dependents(program: Program, source: Symbol) -> frozenset[int]:
    """The ids of all symbols that depend on one."""
    found = {id(source)}
    for e in program.equations:
        if any(id(a) in found for a in e.args):
            found |= {id(s) for s in e.results}
    return frozenset(found)


def _check_output(out: Any, what: str) -> Any:
    if flatten(out)[1] is not LEAF:
        raise ArgumentError(
            f"{what}: the model returns one array for one sample, got a {type(out).__name__}.\n"
            "  Return the part that the loss depends on, or join the parts by pb.concat."
        )
    value = as_array_leaf(out, what)
    if not spec_of(value).inexact or spec_of(value).dtype.kind == "c":
        raise DtypeError(f"{what}: the model's output is real and floating, got {spec_of(value)}.")
    return value
