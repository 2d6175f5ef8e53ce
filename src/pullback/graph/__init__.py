"""Graphs built by hand, of placeholders, variables and ops on them; drawings of programs."""

from .builder import Graph
from .builder_lines import GraphValue
from .builder_step import GraphStep

__all__ = ["Graph", "GraphStep", "GraphValue"]
