"""Memory budgets of eager work: what is evicted, and how it is recomputed."""
