"""An old name for a check of gradients."""

from typing import Any

from .test_util import check_grads


def quick_grad_check(fun: Any, arg: Any, extra: Any = (), kwargs: Any = None, **settings: Any) -> None:
    """Check the gradient with respect to the first argument."""
    check_grads(lambda x: fun(x, *extra, **(kwargs or {})), modes=["rev"])(arg)
