"""`Checkpoints`: the last few states of a training run in a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

from ..arrays.argument_checks import check_count
from ..errors import StorageError
from .asynchronous import start_saving
from .atomic_write import TEMPORARY
from .pending import PendingSave
from .save_load import load, save

_NAME = re.compile(r"step-(\d{10,})\.safetensors")


@final
class Checkpoints:
    """The states of a training in a directory, the newest `keep` of them. One process writes to it at a time.

    >>> import tempfile, pullback as pb
    >>> checkpoints = pb.Checkpoints(tempfile.mkdtemp(), keep=2)
    >>> for step in range(5):
    ...     _ = checkpoints.save(step, {"step": step, "random": pb.random.state()})
    >>> checkpoints.steps(), checkpoints.restore()["step"]
    ([3, 4], 4)
    """

    def __init__(self, directory: Any, keep: int = 3) -> None:
        self.directory = Path(directory)
        self.keep = check_count(keep, "Checkpoints: keep")
        self.directory.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, tree: Any, metadata: Mapping[str, str] | None = None) -> Path:
        """Write a tree under a step number and delete the oldest beyond `keep`. Returns its path."""
        path = self.path(step)
        save(path, tree, metadata)
        self._remove_old(step)
        return path

    def save_async(self, step: int, tree: Any, metadata: Mapping[str, str] | None = None) -> PendingSave:
        """Start to `save`, and return while it goes on; old files are deleted when the new one is there.

        >>> import tempfile, pullback as pb
        >>> checkpoints = pb.Checkpoints(tempfile.mkdtemp(), keep=1)
        >>> _ = checkpoints.save_async(0, {"step": 0})
        >>> checkpoints.save_async(1, {"step": 1}).wait()
        >>> checkpoints.steps()
        [1]
        """
        return start_saving(self.path(step), tree, metadata, afterwards=lambda: self._remove_old(step))

    def _remove_old(self, step: int) -> None:
        """Delete the oldest beyond `keep`, besides the step that was just written."""
        for old in [s for s in self.steps() if s != step][: -(self.keep - 1) or None]:
            self.path(old).unlink(missing_ok=True)
        for left in self.directory.glob(f".step-*{TEMPORARY}"):  # of a process that was killed
            left.unlink(missing_ok=True)

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.directory / f"step-{check_count(step, 'Checkpoints: step', 0):010d}.safetensors"

    def steps(self) -> list[int]:
        """The steps that are there, in order."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def latest(self) -> int | None:
        """The newest step, None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int | None = None, *, mmap: bool = False, kinds: Iterable[type] = ()) -> Any:
        """The tree of a step, of the newest if none is named."""
        chosen = self.latest() if step is None else step
        if chosen is None or not self.path(chosen).exists():
            there = ", ".join(map(str, self.steps())) or "none"
            raise StorageError(
                f"Checkpoints: no step {'' if step is None else step} in {self.directory}; there are: {there}."
            )
        return load(self.path(chosen), mmap=mmap, kinds=kinds)
