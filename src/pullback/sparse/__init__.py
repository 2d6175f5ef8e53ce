"""Sparse arrays as values: matrices that store their nonzeros, with gradients to them."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "sparse")
