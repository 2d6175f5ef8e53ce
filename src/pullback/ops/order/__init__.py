"""Sorting, searching and quantiles."""
