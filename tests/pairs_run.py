"""The matrix of features by pairs: its cells, what each must do, and a command to run some of them.

python tests/pairs_run.py jit checkpoint     both nestings of two features, with tracebacks
python tests/pairs_run.py jit                a feature with every other one
python tests/pairs_run.py --write            all cells, and the list of refusals anew
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator

from pairs import Body, Cell, Feature, Outcome, Taker, evaluate, threads_of_one
from pairs_bodies import BODIES, is_present
from pairs_tables import FAULTS, REASONS, REFUSED
from pairs_takers import TAKERS
from pairs_wraps import WRAPS

FEATURES: dict[str, Feature] = {f.name: f for f in (*BODIES, *WRAPS, *TAKERS)}


def present() -> list[Feature]:
    return [f for f in FEATURES.values() if is_present(f)]


def cells(outer: Feature) -> list[Cell]:
    """A row: the feature alone, and around every other one and itself."""
    return [Cell(outer, None), *(Cell(outer, inner) for inner in present())]


def is_quick(cell: Cell, mode: str) -> bool:
    """Whether a cell is asked in every run of the tests; the others wait for the sweep.

    Leading features meet in both nestings, for value and gradient; a variant is asked as the outer one, or as the inner
    one of a body. Derivatives are asked for their values.
    """
    if cell.inner is None:
        return not cell.compiled or mode != "second"
    names = {f.name for f in cell.features if not f.like}
    if mode == "value" and "jit" in names and len(names) == 2 and any(isinstance(f, Body) for f in cell.features):
        return True  # the second call of what the first compiled
    if mode != ("grad" if "grad" in cell.modes and not isinstance(cell.outer, Taker) else "value"):
        return False
    variants = [bool(f.like) for f in cell.features]
    return sum(variants) == 0 or variants == [True, False] or (sum(variants) == 1 and isinstance(cell.outer, Body))


def modes(cell: Cell, quick: bool) -> list[str]:
    return [m for m in cell.modes if not quick or is_quick(cell, m)]


def refusals() -> dict[tuple[str, str, str], str]:
    """What is refused by (outer, inner, mode), and the name of the reason."""
    found = {}
    for line in REFUSED.read_text().splitlines() if REFUSED.exists() else ():
        outer, inner, names, reason = re.fullmatch(r"(\w+)\((\S+)\) (\S+): (\w+)", line).groups()
        found.update({(outer, inner, mode): reason for mode in names.split(",")})
    return found


def judged(cell: Cell, mode: str, outcome: Outcome, refused: dict[tuple[str, str, str], str]) -> str:
    """Nothing if the cell did what it must; else what is to be done. The list of refusals and faults is exact for quick
    cells; in the sweep a reason is enough."""
    label, wanted = f"{cell.key[0]}({cell.key[1]}) {mode}", refused.get((*cell.key, mode))
    faults = [f for f in FAULTS if f.fits(cell.key, mode)]
    reason = reason_of(cell, outcome)
    if not is_quick(cell, mode):
        return f"{label}: {outcome.wrong}" if outcome.wrong and not faults and not reason else ""
    if faults:
        passes = not outcome.wrong and all(f.strict for f in faults)
        return f"{label}: now passes: remove it from FAULTS ({faults[0].what})" if passes else ""
    if wanted is None:
        return f"{label}: {outcome.wrong}" if outcome.wrong else ""
    if reason is None:
        return f"{label}: refused before ({wanted}), now {outcome.wrong or 'right: write the list anew'}"
    return "" if reason == wanted else f"{label}: refused for {reason}, wanted {wanted}"


def reason_of(cell: Cell, outcome: Outcome) -> str | None:
    if outcome.error is None:
        return None
    return next((r.name for r in REASONS if r.fits(cell.key, outcome.error)), None)


def outcomes(outer: Feature, quick: bool) -> Iterator[tuple[Cell, str, Outcome]]:
    for cell in cells(outer):
        for mode in modes(cell, quick):
            yield cell, mode, evaluate(cell, mode)


def write() -> list[str]:
    """The list of refusals anew from the quick cells; what is wrong and has no reason is returned."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    wrong = []
    for outer in present():
        for cell, mode, outcome in outcomes(outer, quick=True):
            if any(f.fits(cell.key, mode) for f in FAULTS):
                wrong += filter(None, [judged(cell, mode, outcome, {})])
            elif reason := reason_of(cell, outcome):
                lines.setdefault((*cell.key, reason), []).append(mode)
            elif outcome.wrong:
                wrong.append(f"{cell.key[0]}({cell.key[1]}) {mode}: {outcome.wrong}")
    REFUSED.write_text("".join(f"{o}({i}) {','.join(m)}: {r}\n" for (o, i, r), m in lines.items()))
    return wrong


def show(names: list[str]) -> None:
    """Both nestings of two features, or all cells of one."""
    first = FEATURES[names[0]]
    others = [FEATURES[n] for n in names[1:]] or present()
    chosen = {c.key: c for other in others for c in (Cell(first, other), Cell(other, first))}
    for cell in (Cell(first, None), *chosen.values()):
        for mode in cell.modes:
            outcome = evaluate(cell, mode)
            print(f"{cell.key[0]}({cell.key[1]}) {mode}: {outcome.wrong or 'right'}")
            if outcome.error and len(names) > 1:
                traceback.print_exception(outcome.error)


if __name__ == "__main__":
    with threads_of_one():
        if sys.argv[1:] == ["--write"]:
            print("\n".join(write()))
        else:
            show(sys.argv[1:])
