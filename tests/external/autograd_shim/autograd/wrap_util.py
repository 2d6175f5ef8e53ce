"""An operator on functions of one argument in, one on functions of many, with `argnum`, out."""

from collections.abc import Callable
from typing import Any


def get_name(f: Any) -> str:
    """The name of a function, for messages."""
    return getattr(f, "__name__", "[unknown name]")


def unary_to_nary(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The operator with `argnum`: an integer, or a tuple or list of them for a tuple of arguments."""

    def nary(fun: Any, argnum: Any = 0, *options: Any, **named: Any) -> Any:
        def at(*args: Any, **kwargs: Any) -> Any:
            def unary(x: Any) -> Any:
                changed = list(args)
                for place, value in [(argnum, x)] if isinstance(argnum, int) else zip(argnum, x, strict=True):
                    changed[place] = value
                return fun(*changed, **kwargs)

            unary.__name__ = get_name(fun)
            chosen = args[argnum] if isinstance(argnum, int) else tuple(args[i] for i in argnum)
            return operator(unary, chosen, *options, **named)

        at.__name__ = f"{get_name(operator)}_of_{get_name(fun)}_wrt_argnum_{argnum}"
        at.__doc__ = f"    {get_name(operator)} of function {get_name(fun)} with respect to argument {argnum}."
        return at

    nary.__name__, nary.__doc__ = get_name(operator), operator.__doc__
    return nary
