"""Special functions: SciPy's values, rules of our own, derivatives of every order in both modes.

>>> import pullback as pb
>>> pb.grad(pb.special.lgamma)(1.0)
array(-0.57721566)
"""

from ...public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "special")
