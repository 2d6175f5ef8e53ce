"""Collectives: ops on the values of all ranks that run a program together."""

from . import collectives, gathering

__all__ = ["collectives", "gathering"]
