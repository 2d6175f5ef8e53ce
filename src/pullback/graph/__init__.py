"""The program as data: functions are traced on symbols and staged as equations."""

from .builder import GraphBuilder
from .builder_lines import GraphValue
from .builder_step import GraphStep
from .ir import Graph
from .stage import stage

__all__ = ["Graph", "GraphBuilder", "GraphStep", "GraphValue", "stage"]
