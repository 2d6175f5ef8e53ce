"""An equation as an op: its program, its solve, its derivative."""
