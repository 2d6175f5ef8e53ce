"""Oracles: for every op its value, computed by code that shares nothing with it.

Elementwise ops are computed element by element (`scalars`: Python or mpmath), ops that move, sum or sort in loops
(`structural`), convolutions, windows and transforms term by term (`windows`), random bits in integers
(`random_draws`).
Matrices (`matrices`) are held to the laws that define a factorization, whose results are free in sign or order.
"""

from .lookup import has_edge_oracle, has_oracle, oracle_of

__all__ = ["has_oracle", "has_edge_oracle", "oracle_of"]
