"""Mixed precision: loss scaling, and what a lower precision changes."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "amp")
