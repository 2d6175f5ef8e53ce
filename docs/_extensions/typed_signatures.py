"""Signatures as the reference shows them: with types, arrays included, and defaults as they are typed.

At run time an array is annotated as `Any`. Which parameters are arrays is said by an op's record, and for other
functions by the decorators of `pullback.ops.signatures`, which type checkers read.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef

#: By decorator: the types of the first parameters, and of the result.
DECORATORS = {
    "of_array": (["Array"], "Array"),
    "of_two_arrays": (["Array"] * 2, "Array"),
    "of_three_arrays": (["Array"] * 3, "Array"),
    "of_mixed_arrays": (["Array"], "Array"),
    "of_sequence": (["Sequence[Array]"], "Array"),
    "of_many_arrays": (["Array"], "Array"),
    "of_subscripts": ([], "Array"),
    "over_axes": (["Array"], ""),
    "to_pair": (["Array"], "tuple[Array, Array]"),
    "to_tuple": (["Array"], "tuple[Array, ...]"),
    "to_list": (["Array"], "list[Array]"),
}
#: An annotation that says nothing.
UNKNOWN = ("", "Any", "None", "typing.Any")


class Default:
    """A default value, by a text of its own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def typed_signature(thing: Any, bound: bool = False, public: Mapping[str, str] | None = None) -> str:
    """The signature of a function, a method (then `bound`) or a class. `public` maps names of classes to the full
    names that the pages link to.
    """
    found = inspect.signature(thing)
    arrays, result = array_types(thing, found)
    known = getattr(inspect.unwrap(thing), "__globals__", {})
    links = {name: path for name, path in (public or {}).items() if inspect.isclass(known.get(name, type))}
    result = result or annotation_text(found.return_annotation)
    parameters = []
    for p in list(found.parameters.values())[bound:]:
        words = arrays.get(p.name) or annotation_text(p.annotation)
        annotation = p.empty if words in UNKNOWN else Default(link(words, links))
        parameters.append(p.replace(annotation=annotation, default=typed_default(p.default)))
    text = str(found.replace(parameters=parameters, return_annotation=found.empty))
    return text if inspect.isclass(thing) or result in UNKNOWN else f"{text} -> {link(result, links)}"


def array_types(thing: Any, found: inspect.Signature) -> tuple[dict[str, str], str]:
    """The types of the parameters that are arrays, and of the result if it is one."""
    if hasattr(thing, "op"):
        return dict.fromkeys(list(found.parameters)[: len(thing.op.args)], "Array"), "Array"
    for decorator in decorators(thing):
        if decorator in DECORATORS:
            types, result = DECORATORS[decorator]
            return dict(zip(found.parameters, types, strict=False)), result
    return {}, ""


def decorators(thing: Any) -> list[str]:
    """The names of the decorators of a function, from its source."""
    if inspect.isclass(thing):
        return []
    try:
        source = inspect.getsource(inspect.unwrap(thing))
    except (OSError, TypeError):
        return []
    return re.findall(r"^@(\w+)", source, re.MULTILINE)


def annotation_text(annotation: Any) -> str:
    """An annotation as it is typed, without the modules of its names."""
    if annotation is inspect.Parameter.empty or annotation is None:
        return ""
    if isinstance(annotation, ForwardRef):
        return annotation_text(annotation.__forward_arg__)
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)


def link(text: str, public: Mapping[str, str]) -> str:
    """An annotation with the names of public classes in full; `~` shows the last part alone."""
    return re.sub(r"\b[A-Z]\w*\b", lambda name: f"~{public[name[0]]}" if name[0] in public else name[0], text)


def typed_default(value: Any) -> Any:
    """Classes and functions by their names; what has no short form as three dots."""
    if value is inspect.Parameter.empty or isinstance(value, (int, float, str, tuple, type(None))):
        return value
    if isinstance(value, functools.partial):
        return Default("...")
    if isinstance(value, (type, Callable)):
        return Default(getattr(value, "__name__", "..."))
    text = repr(value)
    return Default("..." if text.startswith("<") else text)
