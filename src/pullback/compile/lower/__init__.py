"""Lowering, equations in, loops out: one rule for each form of op, and the Fuser that shares loops."""
