"""The program as data: functions run on symbols, written down as equations."""

from .program import Program, stage

__all__ = ["Program", "stage"]
