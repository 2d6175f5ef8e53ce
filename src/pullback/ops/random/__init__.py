"""Random numbers from keys: the same key gives the same numbers, eager, batched, staged or computed again.

>>> import pullback as pb
>>> key = pb.random.key(0)
>>> pb.random.normal(size=2, key=key)
array([-0.20584214, -0.78476578])
"""

from ...public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "random")
