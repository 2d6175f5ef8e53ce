"""Minima with constraints: bounds, equations, inequalities, cones; quadratic and cone programs."""
