"""Certification: checks every derivative of ops and functions in every role."""

from .device_roles import device_roles
from .half_roles import HALF_DTYPES, HALF_ROLES
from .report import Certificate
from .roles import ROLES, Role
from .run import DTYPES, EXCEPTIONS, certify, certify_ops

__all__ = [
    "Certificate", "DTYPES", "EXCEPTIONS", "HALF_DTYPES", "HALF_ROLES", "ROLES", "Role", "certify", "certify_ops",
    "device_roles",
]  # fmt: skip
