"""Jacobians and Hessians, planned by cost."""
