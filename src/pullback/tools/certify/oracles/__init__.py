"""A case in, its value computed elsewhere out: for every op an oracle that shares no code with it.

Elementwise ops are computed number by number (`scalars`: Python or mpmath), what moves, sums and sorts in loops
(`movement`), convolutions, windows and transforms term by term (`grids`), random words in whole numbers (`draws`).
Matrices (`matrices`) are held to the laws that define a factorization, whose results are free in sign or order.
"""

from .lookup import has_oracle, knows_edges, oracle_of

__all__ = ["has_oracle", "knows_edges", "oracle_of"]
