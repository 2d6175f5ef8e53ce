"""Function of arrays in, the same function with everything it closes over among its arguments out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..errors import PullbackError
from ..ops.specialise import replay, write_down
from ..transforms.rules import carries

__all__ = ["closed"]


def closed(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """A function of (*args, *found) that uses nothing else which carries derivatives, and what was found.

    Most functions close over nothing of the kind, which one run on bare arrays shows. Otherwise the function is written
    down, and what its equations refer to becomes an argument. One that cannot be written down, since it branches on
    values, is left as it is; the op that runs it will then refuse, so no term is ever lost.
    """
    bare = [x.value if isinstance(x, Tensor) else x for x in args]
    if not any(isinstance(x, Value) for x in bare) and not carries(function(*bare)):
        return function, []
    try:
        inputs, equations, out = write_down(function, *map(spec_of, args))
    except PullbackError:
        return function, []
    own = {id(symbol) for symbol in (*inputs, *(s for e in equations for s in e.results))}
    used = [*(x for e in equations for x in e.args), out]
    found = {id(x): x for x in used if carries(x) and id(x) not in own}
    held = list(found.values())

    def opened(*values: Any) -> Any:
        return replay([*inputs, *held], equations, [out], values)[0]

    return opened, held
