"""Matrices with structure: stored by their parts, multiplied and solved with by what the structure allows."""
