"""`WorldModel`: times of collectives that were measured, saved and merged, and the laws fitted to them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from ..arrays.argument_checks import check_count
from ..errors import ArgumentError
from ..ops.collective.world import current_world
from .collective_law import Law, Measurement, describe_law, fit_law

_FORMAT = "pullback world model 1"


@final
@dataclass(frozen=True)
class WorldModel:
    """How long collectives take on some machines: times that `measure` took, on one or more numbers of ranks, and the
    laws fitted to them, which also give the times on others. `cores` are those of a machine (0: unknown); `overlaps`
    says whether ranks had a core free to communicate beside their computation.

    >>> import pullback as pb
    >>> from pullback.distributed import Measurement, WorldModel
    >>> microseconds = {(2, 1024): 5, (2, 1 << 20): 105, (4, 1024): 10, (4, 1 << 20): 160}
    >>> model = WorldModel(tuple(Measurement(n, size, 1e-6 * us) for (n, size), us in microseconds.items()))
    >>> round(1e6 * model.seconds(ranks=4, size=1 << 20))
    160
    """

    measurements: tuple[Measurement, ...] = ()
    cores: int = 0
    overlaps: bool = False

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """A law for each level and operation that was measured on several ranks."""
        groups: dict[tuple[str, str], list[Measurement]] = {}
        for m in self.measurements:
            if m.ranks > 1:
                groups.setdefault((m.level, m.operation), []).append(m)
        return tuple(fit_law(group) for _, group in sorted(groups.items()))

    def law(self, ranks: int, operation: str = "total", level: str | None = None) -> Law:
        """The law that holds for some ranks. Without a level: that of one machine as far as it was measured, then that
        of the network, if it was.
        """
        found = {law.level: law for law in self.laws if law.operation == operation and level in (None, law.level)}
        if not found:
            what = f" by {level}" if level else ""
            raise ArgumentError(
                f"WorldModel: {operation}{what} was not measured on several ranks.\n"
                "  Run pb.distributed.measure() under: pullback run -n 2 script.py"
            )
        near = next((law for law in found.values() if law.level != "network"), None)
        if near is not None and (ranks <= max(near.ranks) or "network" not in found):
            return near
        return found["network"]

    def seconds(self, ranks: int, size: float, operation: str = "total", level: str | None = None) -> float:
        """The seconds of a collective whose result has some bytes."""
        return self.law(ranks, operation, level).seconds(ranks, size)

    def merge(self, *others: WorldModel) -> WorldModel:
        """The model of all measurements; of those that agree in all but time, the fastest."""
        best: dict[Any, Measurement] = {}
        for m in [m for model in (self, *others) for m in model.measurements]:
            key = (m.level, m.operation, m.ranks, m.bytes)
            if key not in best or m.seconds < best[key].seconds:
                best[key] = m
        models = (self, *others)
        return WorldModel(
            tuple(best[key] for key in sorted(best)),
            max(model.cores for model in models),
            any(model.overlaps for model in models),
        )

    def save(self, path: str | Path) -> None:
        """Write the measurements to a JSON file; in a world of several ranks rank 0 does."""
        if current_world().rank == 0:
            held = {"format": _FORMAT} | asdict(replace(self, measurements=()))
            held["measurements"] = [asdict(m) for m in self.measurements]
            Path(path).write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(*paths: str | Path) -> WorldModel:
        """The model of what was saved, in one or more files."""
        if not paths:
            raise ArgumentError("WorldModel.load: wants the names of one or more files.")
        first, *rest = [_read(path) for path in paths]
        return first.merge(*rest)

    def __repr__(self) -> str:
        if not self.laws:
            return "<world model: nothing was measured on several ranks>"
        machine = f" on machines of {self.cores} cores" if self.cores else ""
        return "\n".join([f"<world model of {len(self.measurements)} times{machine}>", *map(describe_law, self.laws)])


def _read(path: str | Path) -> WorldModel:
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        if held["format"] != _FORMAT:
            raise ValueError("it is of another format")
        measurements = tuple(Measurement(**m) for m in held["measurements"])
        return WorldModel(measurements, check_count(held["cores"], "cores", 0), bool(held["overlaps"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"WorldModel.load: {str(path)!r} is no model: {error}.") from None
