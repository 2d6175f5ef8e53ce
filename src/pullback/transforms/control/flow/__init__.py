"""Control flow as equations: branches and loops whose bodies are programs, with rules of every kind."""

from .branch import branch
from .iterate import iterate
from .repeat import repeat

#: The ops, by the names that programs have for them.
FLOW = {op.name: op for op in (branch, iterate, repeat)}

__all__ = ["FLOW", "branch", "iterate", "repeat"]
