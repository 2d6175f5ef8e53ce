"""The program as data: functions run on symbols, written down as equations."""

from .builder import GraphBuilder
from .ir import Graph
from .stage import stage
from .steps import GraphStep
from .values import GraphValue

__all__ = ["Graph", "GraphBuilder", "GraphStep", "GraphValue", "stage"]
