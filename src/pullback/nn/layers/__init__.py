"""Layers: modules with parameters."""
