"""Statistics of gradients and curvature of losses: from gradients per sample that stay factored where they can."""

from ..public_names import explain_missing_names, import_public_names

import_public_names(__name__)
explain_missing_names(__name__, "curvature")
