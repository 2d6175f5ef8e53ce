"""Reshaping, joining, splitting and rearranging."""
