"""Saving and loading trees of arrays as safetensors, atomically."""
