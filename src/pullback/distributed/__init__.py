"""Programs that run on many ranks: collectives with derivatives of every order, and the worlds they meet in."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "distributed")
