"""`gradient_report`: of a loss function, a loss on the tape, or a loss per example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.exchange import to_numpy
from ...arrays.spec import spec_of
from ...arrays.tensor import Tensor, tensor
from ...arrays.trees import flatten, leaf_paths, leaves_matching, unflatten
from ...errors import ArgumentError
from ...nn.module import Module
from ...ops.dispatch import as_value
from ...settings import enable_grad, override_native
from ...tape.backward import gradients as gradients_of
from ...transforms.reverse import grad
from ...transforms.vectorize import vmap
from .activations import ActivationRow, activation_rows
from .parameters import Limits, assign_verdicts, dotted_path, parameter_row
from .report import GradientReport


def gradient_report(
    params: Any,
    loss: Callable[..., Any] | Tensor | None = None,
    *args: Any,
    gradients: Any = None,
    in_axes: Any = None,
    vanishing: float = 1e-4,
    exploding: float = 1e3,
    most: float = 1.0,
    flat: float = 0.01,
    nearly: float = 0.9,
    much: float = 0.5,
) -> GradientReport:
    """What vanishes, explodes, is dead or saturated, by layer: of a tree of parameters (lists, dicts, a module) and
    `loss(params, *args)`, or a loss that was computed from them on the tape, or their `gradients` alone.

    With `in_axes` (as for `vmap`, for `args`) the loss is that of one example, and an element counts as zero if it is
    for the share `most` of the examples. The other limits: see `docs/gradient-report.md`.

    >>> import numpy as np, pullback as pb
    >>> params = {"first": np.array([[9.0, 8.0, 0.1]]), "second": np.ones(3)}
    >>> loss = lambda p, x: pb.sum(pb.tanh(x @ p["first"]) @ p["second"])
    >>> report = pb.tools.gradient_report(params, loss, np.ones((4, 1)))
    >>> [(row.name, row.flat > 0.6, row.state) for row in report.activations]
    [('tanh', True, 'saturated')]
    """
    limits = Limits(vanishing, exploding, most, flat, nearly, much)
    if (loss is None) == (gradients is None):
        raise ArgumentError("gradient_report: wants a loss or gradients, one of them.")
    leaves, structure = flatten(params)
    leaves = [as_value(x) for x in leaves]
    activations: tuple[ActivationRow, ...] = ()
    zero: list[Any] | None = None
    if gradients is not None:
        found = leaves_matching(structure, gradients, "gradient_report")
    elif isinstance(loss, Tensor):
        found, activations = _analyze_tape(loss, leaves, limits)
    elif in_axes is not None:
        found, zero = _analyze_examples(loss, leaves, structure, args, in_axes, limits)
    else:
        found, activations = _analyze_call(loss, leaves, structure, args, limits)
    rows = []
    for i, (name, value, gradient) in enumerate(zip(leaf_names(params, structure), leaves, found, strict=True)):
        if spec_of(value).inexact and name is not None:
            g = np.zeros(spec_of(value).shape) if gradient is None else to_numpy(gradient, "gradient_report")
            rows.append(
                parameter_row(name, to_numpy(value, "gradient_report"), g, (g == 0) if zero is None else zero[i])
            )
    return GradientReport(assign_verdicts(rows, limits), activations)


def leaf_names(params: Any, structure: Any) -> list[str | None]:
    """The name of each leaf; None for buffers of a module, such as running means."""
    if isinstance(params, Module):
        trained = {id(x): name for name, x in params.named_parameters()}
        return [trained.get(id(x)) for x in flatten(params)[0]]
    return [dotted_path(path) for path in leaf_paths(structure)]


def _analyze_tape(loss: Tensor, leaves: list[Any], limits: Limits) -> tuple[list[Any], tuple[ActivationRow, ...]]:
    """Gradients and activations of a loss on the tape, whose graph is retained."""
    if loss.node is None:
        raise ArgumentError("gradient_report: nothing was recorded for this loss: no parameter requires its gradient.")
    tracked = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    if not tracked:
        raise ArgumentError("gradient_report: none of the parameters is a tensor that requires its gradient.")
    activations = activation_rows(loss.node, limits)
    found = dict(zip(map(id, tracked), gradients_of(loss, tracked, retain_graph=True, allow_unused=True), strict=True))
    return [found.get(id(x)) for x in leaves], activations


def _analyze_call(
    loss: Any, leaves: list[Any], structure: Any, args: tuple[Any, ...], limits: Limits
) -> tuple[list[Any], tuple[ActivationRow, ...]]:
    """The same for a loss that is run on tensors of its own."""
    tracked = [tensor(to_numpy(x, "gradient_report"), requires_grad=True) if spec_of(x).inexact else x for x in leaves]
    with enable_grad(), override_native(False):  # activations are told by their ops
        value = loss(unflatten(structure, tracked), *args)
    if not isinstance(value, Tensor):
        raise ArgumentError("gradient_report: the loss does not depend on the parameters.")
    return _analyze_tape(value, tracked, limits)


def _analyze_examples(
    loss: Any, leaves: list[Any], structure: Any, args: tuple[Any, ...], in_axes: Any, limits: Limits
) -> tuple[list[Any], list[Any]]:
    """Mean gradients over examples, and for each element whether it is zero for most of them."""
    moving = [i for i, x in enumerate(leaves) if spec_of(x).inexact]
    bare = [to_numpy(x, "gradient_report") for x in leaves]

    def loss_of_moving(floats: list[Any], *example: Any) -> Any:
        every = list(bare)
        for i, x in zip(moving, floats, strict=True):
            every[i] = x
        return loss(unflatten(structure, every), *example)

    axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
    each = vmap(grad(loss_of_moving), in_axes=(None, *axes))([bare[i] for i in moving], *args)
    found: list[Any] = [None] * len(leaves)
    zero: list[Any] = [None] * len(leaves)
    for i, g in zip(moving, each, strict=True):
        g = to_numpy(g, "gradient_report")
        found[i], zero[i] = g.mean(axis=0), np.mean(g == 0, axis=0) >= limits.most
    return found, zero
