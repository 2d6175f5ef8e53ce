"""Digests of bits: of the arrays of a tree, and of a run, op by op."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from itertools import zip_longest
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from ..arrays.argument_checks import short_repr
from ..arrays.backends import as_array, is_array, to_host
from ..arrays.call_site import format_line, user_line
from ..arrays.exchange import to_numpy
from ..arrays.html_text import html_report
from ..arrays.trees import flatten, leaf_paths
from ..arrays.value import Value
from ..errors import ArgumentTypeError, DtypeError
from ..instrument import Instrument, OpCall, ProgramCall
from ..settings import override_modes


def digest(tree: Any) -> str:
    """32 hexadecimal digits of all bits of a tree of arrays: of the paths of its leaves, their dtypes, shapes and
    numbers. Two trees have the same ones if and, but for a chance of 2^-128, only if these are equal to the last bit.

    >>> import numpy as np, pullback as pb
    >>> pb.digest({"w": np.zeros(2)}) == pb.digest({"w": pb.tensor([0.0, 0.0])})
    True
    >>> pb.digest(np.zeros(2)) == pb.digest(-np.zeros(2))
    False
    """
    leaves, structure = flatten(tree)
    hashed = _new_hash()
    for path, leaf in zip(leaf_paths(structure), leaves, strict=True):
        hashed.update(f"{len(path)} {path}".encode())  # so that no path runs into what follows it
        _add_array(hashed, to_numpy(leaf if isinstance(leaf, Value) else as_array(leaf), "digest"))
    return str(hashed.hexdigest())


def _new_hash() -> Any:
    return hashlib.blake2b(digest_size=16)


def _add_array(hashed: Any, array: Any) -> None:
    host = np.asarray(to_host(array))
    if host.dtype.hasobject or host.dtype.names is not None or host.dtype.char in "gG":
        raise DtypeError(
            f"digest: an array of {host.dtype} has bits besides those of its values (addresses, gaps), which differ "
            "from run to run.\n  Convert it to an array of numbers first."
        )
    host = host.astype(host.dtype.newbyteorder("="), copy=False)  # the same numbers, however a file had them
    hashed.update(f"{host.dtype.name}{host.shape}".encode())
    hashed.update(np.ascontiguousarray(host).tobytes())


class DigestStep(NamedTuple):
    """One op, or one compiled program: its name, the digest of its results, the user's line."""

    name: str
    digest: str
    line: str

    def __str__(self) -> str:
        return f"{self.name} {self.digest[:8]}" + (f" at {self.line}" if self.line else "")


class DigestDifference(NamedTuple):
    """Where two runs part: the number of the step, and the step of each (None where a run has ended)."""

    number: int
    left: DigestStep | None
    right: DigestStep | None

    def __str__(self) -> str:
        if self.left is not None and self.right is not None and self.left.name == self.right.name:
            return f"step {self.number}, {self.left.name}, returns other bits: {self.left} and {self.right}"
        return f"from step {self.number} on other ops run: {self.left or 'none'} and {self.right or 'none'}"


class RunDigest(Instrument):
    """The digests of what runs in a `with` block: each op's name and the bits of its results, in their order, backward
    passes included; a compiled program is one step. `digest` is that of all of them, and `compare` says where another
    run parts from this one. Ops that the workers of a backward pass run at once come in no fixed order; `unordered`
    does not depend on it. What threads of your own run is not seen.

    >>> import numpy as np, pullback as pb
    >>> def run(x):
    ...     with pb.tools.RunDigest() as found:
    ...         pb.sum(pb.exp(pb.tensor(x)) * 2)
    ...     return found
    >>> run(np.ones(2)).digest == run(np.ones(2)).digest
    True
    >>> run(np.ones(2)).compare(run(np.array([1.0, 2.0]))).left.name
    'exp'
    """

    measures = True

    def __init__(self) -> None:
        self.steps: list[DigestStep] = []
        self._guard = threading.Lock()
        self._installed: list[Any] = []

    def __enter__(self) -> RunDigest:
        self._installed.append(override_modes(self))
        self._installed[-1].__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._installed.pop().__exit__(kind, error, trace)

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        out = below()
        outs = out if type(out) is tuple else (out,)
        # an op on values of a transform is seen again, as ops on their arrays
        if not any(isinstance(x, Value) for x in (*call.values, *outs)):
            self._add(call.op.name, outs, format_line(*user_line(sys._getframe(1))))
        return out

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        out = below()
        self._add(f"program {call.name}", out, format_line(*user_line(sys._getframe(1))))
        return out

    def _add(self, name: str, outs: Any, line: str) -> None:
        hashed = _new_hash()
        for x in outs:
            if is_array(x) or isinstance(x, (bool, int, float, complex, np.generic)):
                _add_array(hashed, x)
        with self._guard:
            self.steps.append(DigestStep(name, hashed.hexdigest(), line))

    @property
    def digest(self) -> str:
        """Of all names and results in their order."""
        hashed = _new_hash()
        for step in self.steps:
            hashed.update(f"{step.name} {step.digest};".encode())
        return str(hashed.hexdigest())

    @property
    def unordered(self) -> str:
        """Of all names and results, in whatever order they came."""
        hashed = _new_hash()
        for text in sorted(f"{step.name} {step.digest};" for step in self.steps):
            hashed.update(text.encode())
        return str(hashed.hexdigest())

    def compare(self, other: RunDigest) -> DigestDifference | None:
        """The first step in which two runs differ; None where they do not."""
        if not isinstance(other, RunDigest):
            raise ArgumentTypeError(f"RunDigest.compare: wants another RunDigest, got {short_repr(other)}.")
        for number, (left, right) in enumerate(zip_longest(self.steps, other.steps)):
            if left is None or right is None or left[:2] != right[:2]:
                return DigestDifference(number, left, right)
        return None

    def __str__(self) -> str:
        return f"{len(self.steps)} steps, digest {self.digest}"

    def _repr_html_(self) -> str:
        return html_report(str(self))
