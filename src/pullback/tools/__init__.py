"""Seeing and checking: derivatives against finite differences."""
