"""Names of other libraries: what a name that does not exist is called here. Imported when a look-up has failed."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from types import FrameType
from typing import Any, NamedTuple

from .public_names import describe_parameters, stub_names

#: Where a name is looked for that is in no table, the first first.
SPACES = (
    "", "nn", "optim", "random", "linalg", "special", "fft", "tree", "data", "debug", "nn.init", "optim.schedules",
    "interop.scipy", "curvature", "tools", "memory", "implicit", "amp", "ode", "distributions", "sparse", "masked",
)  # fmt: skip
_SUBJECTS = {
    "Tensor": "a tensor", "Module": "a module", "Optimizer": "an optimizer", "GradientTape": "a tape",
    "Jitted": "a compiled function", "GradScaler": "a scaler", "SparseArray": "a sparse array",
    "MaskedArray": "a masked array", "Solution": "a solution", "Distribution": "a distribution",
    "Bijector": "a bijector",
}  # fmt: skip


class ForeignName(NamedTuple):
    """Whose name it is, and what it is here: a name or an expression of ours; advice in brackets where there is none;
    for a namespace, `x.*` in the table, our namespace.
    """

    owners: tuple[str, ...]
    meaning: str


@functools.cache
def load_table() -> dict[str, ForeignName]:
    """The names by their path: "cat", "nn.ModuleList", "lax.*", "Tensor.chunk"."""
    package = sys.modules["pullback"]
    loader: Any = package.__loader__
    text = loader.get_data(f"{package.__path__[0]}/foreign_names.txt").decode()
    table: dict[str, ForeignName] = {}
    owners, place = "", ""
    for line in text.splitlines():
        if header := re.fullmatch(r"\[(.+)\] (?:pb\.?)?(.*)", line):
            owners, place = header.groups()
        elif line and not line.startswith("#"):
            name, _, meaning = line.partition(": ")
            path = f"{place}.{name}" if place else name
            known = table[path].owners if path in table else ()
            table[path] = ForeignName((*known, *owners.split(", ")), meaning)
    return table


def missing_name_error(place: str, name: str, frame: FrameType) -> AttributeError | ImportError:
    """The error for a name that a namespace or a class ("", "nn", "Tensor") does not have; `frame` asks for it.

    Where the name is known from elsewhere the error says so. Else it is Python's, which guesses at misspellings.
    """
    code = _instructions_from(frame)
    typed = [name, *_attributes_after(code, name)]
    found = None if name.startswith("_") else explain(place, typed)
    if found is None:
        return AttributeError(_python_message(place, name))
    subject = _SUBJECTS.get(place, ".".join(filter(None, ("pullback", place))))
    message = f"{subject} has no {name!r}: {found}"
    if code and code[0].opname == "IMPORT_FROM" and f"pullback.{name}" not in sys.modules:
        return ImportError(message, name=name)  # of an AttributeError the import statement would keep nothing
    return AttributeError(message, name=name)  # with a name but no object, Python adds no guess of its own


def _python_message(place: str, name: str) -> str:
    if place in _SUBJECTS:
        return f"{place!r} object has no attribute {name!r}"
    return f"module {'.'.join(filter(None, ('pullback', place)))!r} has no attribute {name!r}"


def _instructions_from(frame: FrameType) -> list[dis.Instruction]:
    """The instruction that a frame is at, and those after it."""
    return [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti]


def _attributes_after(code: list[dis.Instruction], name: str) -> list[str]:
    """In `pb.lax.scan(f)`, where `lax` is missing: ["scan"]."""
    names = []
    for instruction in code:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        names.append(instruction.argval)
    return names[1:] if names[:1] == [name] else []


def explain(place: str, typed: list[str]) -> str | None:
    """Whose name it is and what it is here, for a name and the attributes that are read from it."""
    table = load_table()
    for count in range(len(typed), 0, -1):
        path = ".".join(filter(None, (place, *typed[:count])))
        if path in table:
            return _describe(_that_is(place, typed[:count]), table[path])
        if f"{path}.*" in table:
            return _describe_namespace(place, typed, count, table[f"{path}.*"])
    if place and place not in _SUBJECTS and typed[0] in table:  # looked for in the namespace that it might be in
        return _describe("that is", table[typed[0]])
    found = _find_public(typed[0])
    return None if found is None else f"here it is {_with_signature(found)}"


def _that_is(place: str, typed: list[str]) -> str:
    return "that is" if len(typed) == 1 else f"{'.'.join(filter(None, ('pb', place, *typed)))} is"


def _describe(subject: str, name: ForeignName) -> str:
    owners = " and ".join(f"{owner}'s" for owner in name.owners)
    if name.meaning.startswith("("):
        return f"{subject} {owners} name, which has no counterpart here: {name.meaning[1:-1]}"
    return f"{subject} {owners} name; here it is {_with_signature(name.meaning)}"


def _describe_namespace(place: str, typed: list[str], count: int, name: ForeignName) -> str:
    space = name.meaning.removeprefix("pb").removeprefix(".")
    if len(typed) > count:
        found = _find_public(typed[count], space)
        if found is not None:
            return _describe(_that_is(place, typed[: count + 1]), ForeignName(name.owners, found))
    subject = _that_is(place, typed[:count])
    owners = " and ".join(f"{owner}'s" for owner in name.owners)
    return f"{subject} {owners} namespace; here its names are in {name.meaning}"


def _find_public(name: str, *first: str) -> str | None:
    """The public name of ours that is called so, in whatever namespace."""
    package = sys.modules["pullback"]
    for space in (*first, *SPACES):
        if name in stub_names(package, space):
            return ".".join(filter(None, ("pb", space, name)))
    return None


def _with_signature(text: str) -> str:
    """`pb.concat` with its parameters; any other text as it is."""
    if not re.fullmatch(r"pb(\.\w+)+", text):
        return text
    thing = functools.reduce(getattr, text.split(".")[1:], sys.modules["pullback"])
    return text + describe_parameters(thing) if inspect.isroutine(thing) else text
