"""Collectives: ops on the values of all ranks that run a program together, or of all elements of a batch."""

from . import collectives, gathering, over_batch

__all__ = ["collectives", "gathering", "over_batch"]
