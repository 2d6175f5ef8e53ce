"""Neural-network functions of arrays, and a thin `Module` over them."""

from ..public_names import import_public_names

import_public_names(__name__)
