"""Optimizers that hold tensors: `Adam(params)` and its kin."""
