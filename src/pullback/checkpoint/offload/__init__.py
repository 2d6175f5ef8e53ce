"""Saved values on the host or on disk."""
