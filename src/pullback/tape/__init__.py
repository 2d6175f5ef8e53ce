"""Remembering and going back: the backward pass over recorded nodes, its hooks and its threads."""
