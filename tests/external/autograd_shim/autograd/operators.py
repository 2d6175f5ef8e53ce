"""autograd's operators on functions, made of its two makers."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb

from .core import bare, conjugate, vspace
from .core import make_jvp as _make_jvp
from .core import make_vjp as _make_vjp
from .wrap_util import unary_to_nary

make_vjp = unary_to_nary(_make_vjp)
make_jvp = unary_to_nary(_make_jvp)
checkpoint = pb.checkpoint


def _pulled(fun: Callable[[Any], Any], x: Any, what: str) -> tuple[Any, Any]:
    pull, out = _make_vjp(fun, x)
    if vspace(out).size != 1:
        raise TypeError(f"{what} wants a function whose result is one real number.")
    return out, pull(vspace(out).ones())


@unary_to_nary
def grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """
    Returns a function which computes the gradient."""
    return _pulled(fun, x, "grad")[1]


@unary_to_nary
def value_and_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """The value beside the gradient."""
    return _pulled(fun, x, "value_and_grad")


@unary_to_nary
def elementwise_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """The sums of the Jacobian's columns."""
    pull, out = _make_vjp(fun, x)
    if vspace(out).iscomplex:
        raise TypeError("elementwise_grad wants real results.")
    return pull(vspace(out).ones())


@unary_to_nary
def deriv(fun: Callable[[Any], Any], x: Any) -> Any:
    """The derivative along ones."""
    return _make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def jacobian(fun: Callable[[Any], Any], x: Any) -> Any:
    """The Jacobian by `pb.jacobian`; for complex results one pull for each real direction, as autograd counts them."""
    pull, out = _make_vjp(fun, x)
    space = vspace(out)
    if not space.iscomplex and not vspace(x).iscomplex:
        return bare(pb.jacobian(fun)(x))
    return np.reshape(np.stack([pull(e) for e in space.standard_basis()]), space.shape + vspace(x).shape)


@unary_to_nary
def hessian(fun: Callable[[Any], Any], x: Any) -> Any:
    """The Hessian."""
    return bare(pb.hessian(fun)(x))


@unary_to_nary
def holomorphic_grad(fun: Callable[[Any], Any], x: Any) -> Any:
    """The complex derivative."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=3)
    return grad(lambda v: np.real(fun(v)))(x)


@unary_to_nary
def make_hvp(fun: Callable[[Any], Any], x: Any) -> Any:
    """(product with the Hessian, gradient)."""
    return _make_vjp(grad(fun), x)


@unary_to_nary
def make_jvp_reversemode(fun: Callable[[Any], Any], x: Any) -> Any:
    """The push, in reverse mode twice."""
    pull, out = _make_vjp(fun, x)
    return _make_vjp(pull, vspace(out).zeros())[0]


def hessian_tensor_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """(*args, tensor) in, the Hessian times it out, by `pb.hvp`."""

    def product(*args: Any, **kwargs: Any) -> Any:
        *args, tensor = args

        def at(x: Any) -> Any:
            return fun(*args[:argnum], x, *args[argnum + 1 :], **kwargs)

        return pb.jvp(pb.grad(at), (args[argnum],), (tensor,))[1]

    return product


def tensor_jacobian_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """(*args, tensor) in, the tensor contracted with the Jacobian out."""

    def contracted(*args: Any, **kwargs: Any) -> Any:
        *args, tensor = args
        return np.tensordot(tensor, fun(*args, **kwargs), axes=np.ndim(tensor))

    return jacobian(contracted, argnum)


hessian_vector_product, vector_jacobian_product = hessian_tensor_product, tensor_jacobian_product


def make_ggnvp(f: Callable[..., Any], g: Any = lambda y: 0.5 * np.sum(y**2, axis=-1), f_argnum: int = 0) -> Any:
    """The product with J^T H J, J the Jacobian of f, H the Hessian of g."""

    @unary_to_nary
    def maker(inner: Callable[[Any], Any], x: Any) -> Any:
        pull, y = _make_vjp(inner, x)
        push = _make_jvp(inner, x)
        return lambda v: pull(_make_vjp(grad(g), y)[0](push(v)[1]))

    return maker(f, f_argnum)


@unary_to_nary
def grad_and_aux(fun: Callable[[Any], Any], x: Any) -> Any:
    """(gradient of the first result, the second)."""
    gradient, aux = pb.grad(fun, has_aux=True)(x)
    return conjugate(gradient), aux
