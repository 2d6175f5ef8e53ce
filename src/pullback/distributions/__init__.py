"""Probability: distributions as values, bijectors, gradient estimators, samplers and approximations of posteriors."""

from ..public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "distributions")
