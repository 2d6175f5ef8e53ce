"""Collectives: ops on the values of all ranks that run a program together."""

from . import collectives

__all__ = ["collectives"]
