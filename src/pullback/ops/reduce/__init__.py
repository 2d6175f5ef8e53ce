"""Reductions and scans along axes, and composites over them."""
