"""Neural-network functions of arrays, and a thin `Module` over them."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "nn")
