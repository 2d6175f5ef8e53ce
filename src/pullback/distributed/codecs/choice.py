"""The codec that measures fastest for each array, or none."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from ...ops.collective.world import current_world
from .codec import Codec, Running, check_codec, sum_plainly
from .measurement import Measurement, measure

#: The share of the time of a plain sum that a codec must save, so that noise does not choose.
_GAIN = 0.1
#: Arrays of fewer bytes are not worth a measurement: most of their time is that of any meeting.
_SMALLEST = 2**14


@picklable
def best(*codecs: Codec) -> Codec:
    """For each array the codec whose sum is predicted to take the least time, or a plain sum where none saves a tenth
    of its time. When a state is made (`rule.init`), each codec is compiled and timed on arrays of that size, and so are
    the collectives that it and a plain sum need, on the ranks that are there; the means over ranks decide, so all
    decide alike. Which codec was chosen is part of the state, and is kept when that is saved and loaded.

    Codecs are compared by time alone: offer those whose errors you accept.

    >>> import numpy as np, pullback as pb
    >>> codecs = pb.distributed.codecs
    >>> codec = codecs.best(codecs.bfloat16(), codecs.error_feedback(codecs.int8()))
    >>> codec.init(np.ones(100))  # too small to gain from any
    {'plain': ()}
    """
    if not codecs:
        raise ArgumentError("best: wants at least one codec to choose from.")
    by_name = {f"{i} {check_codec(c, 'best').name}": c for i, c in enumerate(codecs)}

    def start(x: Any) -> dict[str, Any]:
        spec = spec_of(x)
        if current_world().size == 1 or spec.nbytes < _SMALLEST:
            return {"plain": ()}
        states = {name: c.init(x) for name, c in by_name.items() if c.applies(spec)}
        found = {name: measure(by_name[name], spec, state) for name, state in states.items()}
        name = choose_fastest(found)
        return {name: states.get(name, ())}

    def run(x: Any, state: Any, step: Any) -> Running:
        ((name, inner),) = state.items()
        if name == "plain":
            return (yield from sum_plainly(x, state))
        if name not in by_name:
            raise ArgumentError(f"best: the state was made for {name!r}, which is not among {', '.join(by_name)}.")
        coded = yield from by_name[name].send(x, inner, step)
        return coded._replace(state={name: coded.state})

    name = f"best({', '.join(c.name for c in codecs)})"
    return Codec(name, start, run, lambda spec: min(c.sent_bytes(spec) for c in codecs))


def choose_fastest(found: dict[str, Measurement]) -> str:
    """The name of what takes the least time; "plain" unless that saves enough."""
    name = min(found, key=lambda n: found[n].seconds, default="plain")
    if name != "plain" and found[name].seconds > (1.0 - _GAIN) * found[name].plain_wire:
        return "plain"
    return name
