"""Optimisers: rules as values, which turn gradients and a state into updates; chained, compiled and differentiated."""
