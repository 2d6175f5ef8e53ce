"""Sparse derivatives: the pattern of a function, groups of columns that share a product, and plans made of both."""

from .derivatives import hessian_diagonal, jacobian_diagonal, sparse_hessian, sparse_jacobian
from .pattern import sparsity
from .sparse_plan import SparsePlan

__all__ = ["SparsePlan", "hessian_diagonal", "jacobian_diagonal", "sparse_hessian", "sparse_jacobian", "sparsity"]
