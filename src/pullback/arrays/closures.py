"""What functions read from outside themselves: variables of enclosing functions, defaults, global names, attributes.

`Walk` is the one traversal of it. Its visitors are jit's snapshot (`compile/stage/closure_walk.py`), the reach of a
checkpoint (`ops/replay/reach.py`), the captures of loops and branches (`transforms/control/captures.py`), and the
refusal of rules that read tracked values (`values_read_by`).
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from .picklable import Transformed

_LIBRARIES = frozenset(("pullback", "numpy", "scipy", "optree", "cupy", "llvmlite", "ml_dtypes"))
CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_OTHER_HOLDERS = (MethodType, functools.partial, BuiltinMethodType, type, ModuleType)


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


class FunctionReads(NamedTuple):
    """What a function reads: the contents of its variables (perhaps MISSING), its defaults, and global names."""

    cells: tuple[Any, ...]
    defaults: tuple[Any, ...]
    keywords: dict[str, Any]
    globals: dict[str, Any]


class Walk:
    """The traversal of what functions read, of what that holds, and so on: depth first, each thing once.

    A visitor is a subclass. `takes` is asked first and notes what the visitor looks for; `contents_of` and the methods
    that it calls, one for each kind of thing, say what is followed from there. Containers with more items than there is
    `room` for are not looked into, and the walk ends when there is no room left.
    """

    room: int = sys.maxsize

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}  # the things too: ids stay valid while their objects live

    def run(self, roots: Sequence[Any], depth: int = sys.maxsize) -> None:
        """Walk from the roots; what lies `depth` things behind them is the last to be looked into."""
        takes, seen = self.takes, self.seen  # each call of a checkpoint walks
        stack = [iter(roots)]
        while stack and self.room > 0:
            for thing in stack[-1]:
                if type(thing) is Transformed:  # the function inside, as deep as it would be by itself
                    thing = thing.func
                if not takes(thing) and len(stack) <= depth + 1 and id(thing) not in seen:
                    seen[id(thing)] = thing
                    stack.append(iter(self.contents_of(thing)))
                    break
            else:
                stack.pop()

    def takes(self, thing: Any) -> bool:
        """Whether this is not to be looked into: something that the visitor notes, or that holds nothing."""
        return False

    def contents_of(self, thing: Any) -> Iterable[Any]:
        """What a thing holds or reads."""
        if isinstance(thing, FunctionType):
            return self.function_contents(thing)
        if isinstance(thing, CONTAINERS):
            return self.items_of(thing)
        if not isinstance(thing, _OTHER_HOLDERS):
            return self.object_contents(thing)
        if isinstance(thing, MethodType):
            return thing.__func__, thing.__self__
        if isinstance(thing, functools.partial):
            return thing.func, *thing.args, *thing.keywords.values()
        if isinstance(thing, BuiltinMethodType):
            return () if isinstance(thing.__self__, ModuleType) else (thing.__self__,)
        return self.class_contents(thing) if isinstance(thing, type) else self.module_contents(thing)

    def items_of(self, container: Any) -> list[Any]:
        if len(container) > self.room:
            return []
        return list(container.values() if isinstance(container, dict) else container)

    def reads_of(self, function: Any, facts: CodeNames) -> FunctionReads:
        known = function.__globals__
        return FunctionReads(
            tuple(map(content_of, function.__closure__ or ())),
            function.__defaults__ or (),
            function.__kwdefaults__ or {},
            {name: known[name] for name in self.global_names(function, facts) if name in known},
        )

    def global_names(self, function: Any, facts: CodeNames) -> Iterable[str]:
        """The global names that count among those that a function reads."""
        return facts.globals

    def function_contents(self, function: Any) -> list[Any]:
        """What a function reads; of modules only attributes."""
        facts = names_in_code(function.__code__)
        reads = self.reads_of(function, facts)
        found = [*reads.defaults, *reads.keywords.values()]
        for name, value in (*zip(function.__code__.co_freevars, reads.cells), *reads.globals.items()):  # noqa: B905
            if isinstance(value, ModuleType):
                found += self.module_contents(value, name, facts)
            elif value is not MISSING:
                found.append(value)
        return found

    def module_contents(self, module: ModuleType, name: str = "", facts: CodeNames | None = None) -> list[Any]:
        """Contents of a module; of one that is the value of a variable, with its name and the names in the code."""
        return []

    def class_contents(self, kind: type) -> Iterable[Any]:
        return ()

    def object_contents(self, thing: Any) -> Iterable[Any]:
        return ()


def values_read_by(function: Any) -> list[Any]:
    """What a function itself reads from outside; of variables without a value, MISSING."""
    if not hasattr(function, "__code__"):
        return []
    reads = Walk().reads_of(function, names_in_code(function.__code__))
    return [*reads.cells, *reads.defaults, *reads.keywords.values(), *reads.globals.values()]


@functools.lru_cache(4096)
def is_library(name: str | None, python: bool = True, installed: bool = True) -> bool:
    """Whether a module is not the user's: one of ours or of a library of arrays, of Python's, or of another installed
    package. Their code does not change while a program runs.
    """
    root = (name or "").split(".")[0]
    if root in _LIBRARIES:
        return True
    if root in sys.stdlib_module_names:
        return python and root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return installed and root != "__main__" and ("site-packages" in file or "dist-packages" in file)
