"""Optimizer rules, one algorithm a module."""
