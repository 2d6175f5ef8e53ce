"""Indexing, gathering, scattering and their transposes."""
