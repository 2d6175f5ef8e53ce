"""Reproducible second runs: random streams, tensors and attributes that a function can reach."""
