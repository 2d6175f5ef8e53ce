"""Cones of inequalities: their algebra, scalings and projections."""
