"""Derivatives in less memory: recomputation, loop snapshots, offloading, budgets."""
