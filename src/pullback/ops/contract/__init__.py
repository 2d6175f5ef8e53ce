"""Ops that multiply and sum over shared axes."""
