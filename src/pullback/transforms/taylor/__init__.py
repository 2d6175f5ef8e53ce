"""Taylor mode: series, and the rules of their coefficients."""
