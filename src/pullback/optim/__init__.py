"""Optimizers: pure rules from gradients and a state to updates, and stateful optimizers over tensors."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "optim")
