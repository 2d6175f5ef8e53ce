"""Staging, Python function in, program out: tracing, captured values, state and residuals."""
