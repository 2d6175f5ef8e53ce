"""Neural-network functions of arrays, and a thin `Module` over them."""

from ..public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "nn")
