"""What functions read from outside themselves: variables of enclosing functions, defaults, global names, attributes."""

from __future__ import annotations

import dis
import functools
from types import CellType, CodeType
from typing import Any, NamedTuple


class _Missing:
    """The value of an empty place."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def content_of(cell: CellType) -> Any:
    """The value of a closure's variable."""
    try:
        return cell.cell_contents
    except ValueError:  # the variable was deleted, or is not set yet
        return MISSING


class CodeNames(NamedTuple):
    """The names in the code of a function, nested functions included: global names, attributes (and short strings,
    which `getattr` may be given), attributes of variables by the variable, modules that it imports, names that it sets;
    and whether it sets global names itself.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    chains: frozenset[tuple[str, str]]
    imports: frozenset[str]
    stores: frozenset[str]
    sets_globals: bool


@functools.lru_cache(4096)
def names_in_code(code: CodeType) -> CodeNames:
    """The names in the code of a function, read from its bytecode: what is looked up by a computed name is not seen."""
    names: set[str] = set()
    attributes: set[str] = set()
    chains: set[tuple[str, str]] = set()
    imports: set[str] = set()
    stores: set[str] = set()
    last: list[str] = []
    steps = list(dis.get_instructions(code))
    for step in steps:
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            last = [step.argval]
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(step.argval)
        elif "ATTR" in step.opname or step.opname == "LOAD_METHOD":
            attributes.add(step.argval)
            stores |= {step.argval} if step.opname == "STORE_ATTR" else set()
            chains |= {(name, step.argval) for name in last}
            last = [step.argval] if last else []
        elif step.opname == "STORE_GLOBAL":
            names.add(step.argval)
            stores.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            imports.add(step.argval)
        elif step.opname not in ("CACHE", "PUSH_NULL"):
            last = []
    attributes |= {c for c in code.co_consts if isinstance(c, str) and c.isidentifier() and len(c) < 40}
    inner = [names_in_code(c) for c in code.co_consts if isinstance(c, CodeType)]
    return CodeNames(
        frozenset(names).union(*(f.globals for f in inner)),
        frozenset(attributes).union(*(f.attributes for f in inner)),
        frozenset(chains).union(*(f.chains for f in inner)),
        frozenset(imports).union(*(f.imports for f in inner)),
        frozenset(stores).union(*(f.stores for f in inner)),
        any(step.opname == "STORE_GLOBAL" for step in steps),
    )


def values_read_by(function: Any, with_globals: bool = True) -> list[Any]:
    """What a function closes over, its defaults, and the global names in its code, as far as they are set."""
    found = [content_of(cell) for cell in getattr(function, "__closure__", None) or ()]
    found += getattr(function, "__defaults__", None) or ()
    found += (getattr(function, "__kwdefaults__", None) or {}).values()
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if with_globals and code is not None:
        found += [known[name] for name in names_in_code(code).globals if name in known]
    return [x for x in found if x is not MISSING]
