"""Functions that are traced again and again: which argument changes, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..arrays.call_site import warn_at_user_line
from ..arrays.spec import Spec
from ..arrays.trees import leaf_paths

#: Traces of one function after which a warning says so: a training loop has a few kinds of arguments.
STORM = 48


class ArgumentKind(NamedTuple):
    """What a compiled form is for: static values, structure, order of keys, specs of the leaves, memory limit, on a
    GPU the precision of matrix products and whether a rule decides how they go, and the context (`context_key`).
    """

    static: Any
    structure: Any
    key_order: Any
    specs: tuple[Spec, ...]
    limit: int | None
    products: tuple[str, bool] | None = None
    context: Any = None


def warn_of_storm(name: str, kinds: Sequence[ArgumentKind]) -> None:
    """Warn that a function was traced for so many kinds of arguments."""
    what, advice = describe_change(kinds)
    warn_at_user_line(
        f"jit: {name} was traced {STORM} times, each time for other arguments: {what}.\n  {advice}\n"
        '  logging.getLogger("pullback") tells of each at level DEBUG.'
    )


def describe_change(kinds: Sequence[ArgumentKind]) -> tuple[str, str]:
    """What differs most among kinds of arguments, and what to do."""
    last = kinds[-1]
    alike = [kind for kind in kinds if kind.structure == last.structure]
    seen = [list(dict.fromkeys(kind.specs[i] for kind in alike)) for i in range(len(last.specs))]
    most = max(range(len(seen)), key=lambda i: len(seen[i]), default=None)
    values = len({kind.static for kind in kinds})
    structures = len({kind.structure for kind in kinds})
    if values > 1 and values >= max(structures, len(seen[most]) if most is not None else 0):
        return f"{values} static values", "Pass what changes as an array that is not static."
    if structures > 1 and (most is None or structures >= len(seen[most])):
        return f"{structures} structures", "Pass trees of one structure, such as a stacked array in place of a list."
    if most is None or len(seen[most]) == 1:
        return (
            "what it reads besides its arguments changes",
            "Pass as arguments what changes: globals, attributes, variables of the enclosing function.",
        )
    shown = ", ".join(map(str, seen[most][-3:]))
    advice = "Pad it to a few sizes" if len({s.shape for s in seen[most]}) > 1 else "Convert it to one dtype"
    return f"argument{_place(last, most)} was {shown}", f"{advice}, or leave the function uncompiled."


def _place(kind: ArgumentKind, number: int) -> str:
    """The path of a leaf among (positional, keyword) arguments, as that of an argument."""
    return leaf_paths(kind.structure)[number][3:]
