"""Memory for time: what the way back needs is computed again instead of remembered."""
