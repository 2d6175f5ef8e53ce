"""Everything pullback raises: one small tree, each also the built-in a Python user expects."""

from __future__ import annotations

from numpy.linalg import LinAlgError

__all__ = [
    "AnomalyError",
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "ConversionError",
    "ConvergenceError",
    "DeviceError",
    "DtypeError",
    "FormatError",
    "GaugeError",
    "GraphError",
    "HookError",
    "IndexingError",
    "LeakError",
    "MemoryBudgetError",
    "MiscompiledError",
    "PullbackError",
    "RecomputeError",
    "ShapeError",
    "StorageError",
    "SingularError",
    "UnsupportedFunction",
]


class PullbackError(Exception):
    """The root of the tree: `except pb.errors.PullbackError` catches all of ours."""


class ShapeError(PullbackError, ValueError):
    """Shapes do not fit together."""


class DtypeError(PullbackError, TypeError):
    """A dtype cannot do what was asked of it."""


class DeviceError(PullbackError, ValueError):
    """Arrays of different devices or libraries met in one op."""


class ArgumentError(PullbackError, ValueError):
    """A parameter has a value that makes no sense."""


class IndexingError(PullbackError, IndexError):
    """An index does not fit its array."""


class AxisError(ShapeError, IndexingError):
    """An axis that an array does not have; a ValueError and an IndexError, as NumPy's is."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of the wrong kind: no function, no key, no tree of arrays."""


class ConversionError(PullbackError, TypeError):
    """A value that carries derivatives was asked to become a bare array."""


class GraphError(PullbackError, RuntimeError):
    """The graph cannot answer: it was freed, or no path leads to what was asked for."""


class LeakError(PullbackError, RuntimeError):
    """A value of a transform, a context or a tape was used after that was over."""


class SingularError(PullbackError, LinAlgError):
    """A matrix that has no inverse, no such factor, or no derivative of it."""


class GaugeError(PullbackError, ArithmeticError):
    """A derivative that hangs on a choice the factorisation was free to make: a sign, a phase, a basis."""


class MemoryBudgetError(PullbackError, MemoryError):
    """What must be in memory at once does not fit into the budget."""


class ConvergenceError(PullbackError, RuntimeError):
    """A solver did not reach its tolerance. `report` says how far it got, `best` is the best it found."""

    def __init__(self, message: str, report: object = None, best: object = None) -> None:
        RuntimeError.__init__(self, message)
        self.report = report
        self.best = best


class StorageError(PullbackError, OSError):
    """A value could not be stored on disk: there is no room, or no such directory."""


class FormatError(PullbackError, ValueError):
    """A file is damaged, cut off, or not what it says it is."""


class RecomputeError(PullbackError, RuntimeError):
    """What a checkpoint computed again is not what it computed the first time."""


class HookError(PullbackError, ValueError):
    """A hook returned something that cannot stand in for a gradient."""


class MiscompiledError(PullbackError, AssertionError):
    """Compiled code and its reference disagree (`jit(check=True)`): an error of pullback, not of the program."""


class AnomalyError(PullbackError, FloatingPointError):
    """A NaN or an infinity appeared on the way back under `detect_anomaly`."""


class UnsupportedFunction(PullbackError, TypeError):  # noqa: N818 - the name users see in the docs
    """A NumPy function that has no rule here; it never falls back to a detached array."""
