"""Linear solves as ops: the operator and its rules, and the methods."""
