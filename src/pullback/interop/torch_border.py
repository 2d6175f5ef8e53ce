"""Functions of ours as PyTorch's autograd sees them: one node, whose derivatives are such nodes again."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..arrays.trees import unflatten
from .array_function import ArrayFunction, Recording
from .torch_tensors import (
    as_array,
    as_tensor,
    import_torch,
    is_fake,
    is_transformed,
    make_empty,
    refuse_recording,
    spec_of_tensor,
)


class BorderCall:
    """One call: the function, which arguments are recorded, and what the call left for the backward pass."""

    def __init__(self, function: ArrayFunction, what: str, tensors: Sequence[Any]) -> None:
        torch = import_torch(what)
        self.function, self.what = function, what
        needs = torch.is_grad_enabled()
        self.wanted = tuple(i for i, t in enumerate(tensors) if needs and t.requires_grad)
        self.recording: Recording | None = None
        self.structure: Any = None

    def run(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        refuse_recording(self.what)
        if any(map(is_fake, tensors)):
            return self.run_fake(tensors)
        arrays = [as_array(t, self.what) for t in tensors]
        if self.wanted:
            found, self.structure, self.recording = self.function.record(arrays, self.wanted)
        else:
            found, self.structure = self.function.run(arrays)
        return tuple(as_tensor(x, self.what) for x in found)

    def run_fake(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Results without numbers, where PyTorch asks for shapes alone."""
        program = self.function.stage(tuple(map(spec_of_tensor, tensors)))
        self.structure = program.results
        found = [make_empty(s, self.what) for s in program.output_specs]
        # outside of a mode of PyTorch's in which nothing has numbers, the results say it themselves
        return tuple(x if is_fake(x) else x.to("meta") for x in found)

    def pull(
        self, needed: Sequence[bool], saved: Sequence[Any], bars: Sequence[Any], recording: Recording | None
    ) -> list[Any]:
        """The cotangents of the arguments: by what was recorded, or where they are differentiated again, by a call."""
        refuse_recording(self.what)
        wanted = tuple(i for i, need in enumerate(needed) if need)
        count = len(needed)
        xs, outs = saved[:count], saved[count:]
        given = [bar if x.is_floating_point() else None for x, bar in zip(outs, bars, strict=True)]
        along = [bar for bar in given if bar is not None]
        again = import_torch(self.what).is_grad_enabled() or any(map(is_transformed, along))
        if recording is None or wanted != self.wanted or again:
            made = call_border(self.function.make_pullback(wanted, count), self.what, [*xs, *along])[0]
        else:
            arrays = [None if bar is None else as_array(bar, self.what) for bar in given]
            made = [None if g is None else as_tensor(g, self.what) for g in recording.pull(arrays)]
        shares = dict(zip(wanted, made, strict=True))
        return [shares.get(i) for i in range(count)]

    def take_recording(self) -> Any:
        """What the call left, as a tensor without numbers that PyTorch can save, and let go when it lets go of what it
        has saved: after a backward pass, though results of the call may live on.
        """
        token = import_torch(self.what).empty(0)
        token.recording, self.recording = self.recording, None
        return token

    def push(self, saved: Sequence[Any], outs: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        moving = tuple(i for i, t in enumerate(tangents) if t is not None)
        along = [tangents[i] for i in moving]
        pushed = self.function.make_pushforward(moving, len(saved))
        found = iter(call_border(pushed, self.what, [*saved, *along])[0])
        return tuple(next(found) if floating else None for floating in outs)


def call_border(function: ArrayFunction, what: str, tensors: Sequence[Any]) -> tuple[list[Any], Any]:
    """The results of a function on tensors, as tensors, and their structure."""
    call = BorderCall(function, what, tensors)
    found = _border().apply(call, *tensors)
    return list(found), call.structure


def call_tree(function: ArrayFunction, what: str, tensors: Sequence[Any]) -> Any:
    found, structure = call_border(function, what, tensors)
    return unflatten(structure, found)


@functools.cache
def _border() -> Any:
    """The subclass of `torch.autograd.Function`, made when PyTorch is first needed."""
    torch = import_torch("interop.torch")

    def forward(call: BorderCall, *tensors: Any) -> tuple[Any, ...]:
        return call.run(tensors)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.floating = [x.is_floating_point() for x in output]
        ctx.mark_non_differentiable(*(x for x in output if not x.is_floating_point()))
        # saved by PyTorch too: it raises where one of them was modified in place, whose memory we share
        kept = [ctx.call.take_recording()] if any(ctx.needs_input_grad) else []
        ctx.save_for_backward(*tensors, *output, *kept)
        ctx.save_for_forward(*tensors)

    def backward(ctx: Any, *bars: Any) -> tuple[Any, ...]:
        *saved, token = ctx.saved_tensors  # once: a checkpoint of PyTorch's counts
        needed = [n and x.is_floating_point() for n, x in zip(ctx.needs_input_grad[1:], saved, strict=False)]
        # what packs saved tensors may give another one back, which knows of no recording
        return None, *ctx.call.pull(needed, saved, bars, getattr(token, "recording", None))

    def push(ctx: Any, _: Any, *tangents: Any) -> Any:
        return ctx.call.push(ctx.saved_tensors[: len(tangents)], ctx.floating, tangents)

    def batch(info: Any, in_dims: tuple[int | None, ...], call: BorderCall, *tensors: Any) -> Any:
        found, call.structure = call_border(call.function.vectorize(tuple(in_dims[1:])), call.what, tensors)
        return tuple(found), (0,) * len(found)

    methods: dict[str, Any] = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": push,
        "vmap": batch,
    }
    return type("PullbackFunction", (torch.autograd.Function,), {k: staticmethod(f) for k, f in methods.items()})
