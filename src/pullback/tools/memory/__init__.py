"""Seeing memory: what lives, who holds it, what a function will need, and whether it grows."""

from ...arrays.pages import peak_resident, release, resident

__all__ = ["peak_resident", "release", "resident"]
