"""Everything pullback raises: one small tree, each also the built-in a Python user expects."""

from __future__ import annotations

from numpy.linalg import LinAlgError

__all__ = [
    "AnomalyError",
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "CollectiveTimeoutError",
    "ConversionError",
    "ConvergenceError",
    "DegenerateError",
    "DeterminismError",
    "DeviceError",
    "DtypeError",
    "ExportError",
    "FormatError",
    "GaugeError",
    "GraphError",
    "HookError",
    "IndexingError",
    "IntegrationError",
    "LeakError",
    "MemoryBudgetError",
    "MiscompiledError",
    "MismatchError",
    "NonFiniteError",
    "NonFiniteStateError",
    "PullbackError",
    "RankLostError",
    "RecomputeError",
    "ReplicaDriftError",
    "ShapeError",
    "StepUnderflowError",
    "StorageError",
    "SingularError",
    "TooManyStepsError",
    "UnsupportedFunction",
    "WorldError",
]


class PullbackError(Exception):
    """The root of the tree: `except pb.errors.PullbackError` catches all of them."""


class ShapeError(PullbackError, ValueError):
    """Shapes do not fit together."""


class DtypeError(PullbackError, TypeError):
    """A dtype does not support the operation."""


class DeviceError(PullbackError, ValueError):
    """Arrays of different devices or libraries were passed to one op."""


class ArgumentError(PullbackError, ValueError):
    """A parameter has an invalid value."""


class IndexingError(PullbackError, IndexError):
    """An index does not fit its array."""


class AxisError(ShapeError, IndexingError):
    """An axis that an array does not have; a ValueError and an IndexError, as NumPy's is."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type: not a function, not a key, not a tree of arrays."""


class ConversionError(PullbackError, TypeError):
    """A value that carries derivatives was converted to a bare array."""

    #: Whether a Python branch asked for a value that is not known, or differs by element of a batch.
    asked_by_branch = False


class GraphError(PullbackError, RuntimeError):
    """The graph was freed, or has no path to what was asked for."""


class LeakError(PullbackError, RuntimeError):
    """A value of a transform, a context or a tape was used after its end."""


class SingularError(PullbackError, LinAlgError):
    """A matrix that has no inverse, no such factor, or no derivative of it."""


class GaugeError(PullbackError, ArithmeticError):
    """A derivative that depends on a choice the factorisation was free to make: a sign, a phase, a basis."""


class DegenerateError(PullbackError, ArithmeticError):
    """The solution of a minimum with constraints has no derivative: a constraint is just about to become active."""


class MemoryBudgetError(PullbackError, MemoryError):
    """The memory needed at once exceeds the budget."""


class ConvergenceError(PullbackError, RuntimeError):
    """A solver did not reach its tolerance. `report` says how far it got, `best` is the best point found."""

    def __init__(self, message: str, report: object = None, best: object = None) -> None:
        RuntimeError.__init__(self, message)
        self.report = report
        self.best = best


class IntegrationError(PullbackError, RuntimeError):
    """A differential equation was not solved to the end: it stopped at `t`, after `steps` and `rejected` ones."""

    def __init__(self, message: str, t: float | None = None, steps: int = 0, rejected: int = 0) -> None:
        RuntimeError.__init__(self, message)
        self.t, self.steps, self.rejected = t, steps, rejected


class TooManyStepsError(IntegrationError):
    """The end was not reached in `max_steps` steps."""


class StepUnderflowError(IntegrationError):
    """No step that the dtype can resolve was accurate enough."""


class NonFiniteStateError(IntegrationError, FloatingPointError):
    """The state or its slope became NaN or infinite."""


class StorageError(PullbackError, OSError):
    """A value could not be stored on disk: there is no room, or no such directory."""


class FormatError(PullbackError, ValueError):
    """A file is damaged, cut off, or not in the format it claims."""


class ExportError(GraphError, NotImplementedError):
    """A program has an op that the format it is exported to has no equivalent for: `op` is its name, `why` says what is
    missing.
    """

    def __init__(self, message: str, op: str = "", why: str = "") -> None:
        RuntimeError.__init__(self, message)
        self.op, self.why = op, why


class RecomputeError(PullbackError, RuntimeError):
    """The recomputation of a checkpoint differs from its first run."""


class DeterminismError(PullbackError, RuntimeError):
    """Under `pb.use_deterministic` something would run whose bits may differ from run to run."""


class HookError(PullbackError, ValueError):
    """A hook returned something that cannot replace a gradient."""


class MiscompiledError(PullbackError, AssertionError):
    """Compiled code and its reference disagree (`jit(check=True)`): an error of pullback, not of the program."""


class WorldError(PullbackError, RuntimeError):
    """Ranks that run one program do not go on together."""


class MismatchError(WorldError):
    """Ranks met at different collectives, or at one with different arguments."""


class CollectiveTimeoutError(WorldError, TimeoutError):
    """Some ranks did not come to a collective before the deadline."""


class RankLostError(WorldError):
    """A rank ended while others wait for it."""


class NonFiniteError(WorldError, FloatingPointError):
    """A rank brought a NaN or an infinity to a sum over ranks."""


class ReplicaDriftError(WorldError):
    """Values that all ranks should have in common differ."""


class AnomalyError(PullbackError, FloatingPointError):
    """A NaN or an infinity appeared in the backward pass under `detect_anomaly`."""


def raise_masked(error: object) -> None:
    """Raise the conversion error that C code replaced by one of its own, as NumPy does in `array[i] = tensor`, if an
    error is one of those.
    """
    if isinstance(error, SystemError) or str(error).startswith("setting an array element with a sequence"):
        cause = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
        if isinstance(cause, ConversionError):
            raise cause from None


class UnsupportedFunction(PullbackError, TypeError):  # noqa: N818 - the name users see in the docs
    """A NumPy function without a rule here; there is no silent fallback to a detached array."""
