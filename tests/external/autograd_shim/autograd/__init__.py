"""autograd's names, answered by pullback, so that autograd's own tests can judge it."""

from .builtins import dict, isinstance, list, tuple
from .operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)

__all__ = [
    "checkpoint", "deriv", "dict", "elementwise_grad", "grad", "grad_and_aux", "hessian", "hessian_tensor_product",
    "hessian_vector_product", "holomorphic_grad", "isinstance", "jacobian", "list", "make_ggnvp", "make_hvp",
    "make_jvp", "make_jvp_reversemode", "make_vjp", "tensor_jacobian_product", "tuple", "value_and_grad",
    "vector_jacobian_product",
]  # fmt: skip
