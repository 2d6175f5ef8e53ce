"""Certification: checks every derivative of ops and functions in every role."""

from .report import Certificate
from .roles import ROLES, Role
from .run import DTYPES, EXCEPTIONS, certify, certify_ops

__all__ = ["Certificate", "DTYPES", "EXCEPTIONS", "ROLES", "Role", "certify", "certify_ops"]
