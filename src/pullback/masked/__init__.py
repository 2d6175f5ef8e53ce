"""Masked arrays with derivatives: entries that are left out of what is computed."""

from ..public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "masked")
