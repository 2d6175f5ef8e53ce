"""Public names of a package, each listed once: its stub says where a name lives, to type checkers and at run time.

`__init__.pyi` beside the package holds lines such as `from .module import name as name`; the repetition is what
exports a name from a stub.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, reduce
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

#: How many parameters of a function are shown that need not be given.
_MAX_SHOWN = 5


class Home(NamedTuple):
    """The module that a public name lives in, as an import statement names it, and its name there."""

    module: str
    name: str

    def load(self, package: str) -> Any:
        """The thing itself: an attribute of the module, or a module inside of it."""
        if self.module == ".":
            return import_module(f"{package}.{self.name}")
        depth = len(self.module) - len(self.module.lstrip("."))
        within = {"__package__": package}
        return getattr(__import__(self.module[depth:], within, None, (self.name,), depth), self.name)


@cache
def read_stub(package: str) -> dict[str, Home]:
    """Where each public name of a package lives."""
    module: Any = sys.modules[package]
    return _parse_stub(module, module.__path__[0])


def _parse_stub(module: Any, folder: str) -> dict[str, Home]:
    text = module.__loader__.get_data(f"{folder}/__init__.pyi").decode()  # a loader reads zip files too
    homes: dict[str, Home] = {}
    for statement in text.split("\nfrom ")[1:]:
        where, _, names = statement.partition(" import ")
        homes |= {name: Home(where, name) for name in re.findall(r"\bas (\w+)", names)}
    return homes | {alias: homes[name] for alias, name in re.findall(r"^(\w+) = (\w+)$", text, re.MULTILINE)}


@cache
def stub_names(package: Any, space: str) -> frozenset[str]:
    """The public names of a namespace of the package, such as "nn", read without importing it where it has a stub."""
    if not space:
        return frozenset(read_stub(package.__name__))
    home = read_stub(package.__name__).get(space)
    try:
        folder = "" if home is None else f"{home.module}.{home.name}".replace(".", "/").rstrip("/")
        return frozenset(_parse_stub(package, package.__path__[0] + re.sub("/+", "/", folder)))
    except OSError:
        return frozenset(reduce(getattr, space.split("."), package).__all__)


def import_public_names(package: str) -> None:
    """Import all public names of a package into it, and list them as its `__all__`."""
    homes = read_stub(package)
    loaded = {name: home.load(package) for name, home in homes.items()}
    vars(sys.modules[package]).update(loaded, __all__=sorted(homes))


def load_on_access(package: str, place: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: its public names, each imported when it is first read. `place` is what
    users call the package, without `pb`.
    """
    own = vars(sys.modules[package])
    homes = read_stub(package)
    # a function in a module of its own name: once that is loaded, it would be found in place of the function
    own.update({name: home.load(package) for name, home in homes.items() if home.module == f".{name}"})

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise missing_name(place, name)
        found = own[name] = homes[name].load(package)
        return found

    def list_names() -> list[str]:
        return [*(name for name in own if name.startswith("__")), *homes]

    return load, list_names


def missing_name(place: str, name: str) -> Exception:
    """The error for a name that `place` lacks ("", "nn", "Tensor"), to be raised by its `__getattr__` or `__get__`. The
    table of names known from elsewhere is read only now.
    """
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") in ("pullback", __name__):
        frame = frame.f_back
    if frame.f_code.co_filename.startswith("<frozen importlib"):  # an import statement asks before it imports a module
        return AttributeError(name)
    error: Exception = import_module("pullback.foreign_names").missing_name_error(place, name, frame)
    return error


def explain_missing_names(module: str, place: str) -> None:
    """Let a public module explain names that it lacks and people know from elsewhere, and list the names that it has.
    `place` is what users call it, without `pb`. Type checkers do not see a `__getattr__` set here, which would hide
    misspellings from them.
    """
    namespace = vars(sys.modules[module])

    def raise_missing(name: str) -> Any:
        if f"{module}.{name}" in sys.modules:  # a module that was taken out; import statements look there next
            raise AttributeError(name)
        raise missing_name(place, name)

    def list_names() -> list[str]:
        return [*(name for name in namespace if name.startswith("__")), *namespace["__all__"]]

    namespace["__getattr__"] = raise_missing
    if "__all__" in namespace:
        namespace["__dir__"] = list_names


class MissingAttribute:
    # An attribute that objects of other libraries have: reading it raises the AttributeError that explains it. One of
    # these for each name leaves all other look-ups as they are, where a `__getattr__` would slow each one down. This is
    # no docstring, which the attributes would seem to have.

    __slots__ = ("name", "place")

    def __init__(self, place: str, name: str) -> None:
        self.place, self.name = place, name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise missing_name(self.place, self.name)


def explain_missing_attributes(kind: type, place: str, names: str) -> None:
    """Let objects of a class explain attributes that they lack and people know from elsewhere."""
    for name in names.split():
        setattr(kind, name, MissingAttribute(place, name))

    kind.__dir__ = _dir_without_missing  # type: ignore[assignment]


def _dir_without_missing(self: Any) -> Iterable[str]:
    return [name for name in object.__dir__(self) if not _is_missing(self, name)]


def _is_missing(thing: Any, name: str) -> bool:
    found = next((vars(kind)[name] for kind in type(thing).__mro__ if name in vars(kind)), None)
    return type(found) is MissingAttribute and name not in getattr(thing, "__dict__", ())


def hide_module(package: str, name: str) -> None:
    """Take a module that was just imported out of its package's attributes; import statements still find it."""
    vars(sys.modules[package]).pop(name, None)


class PublicModuleFinder:
    """What `import pullback.linalg` finds: the namespace, wherever it lives; for a module that people know from
    elsewhere, the error that explains it. It is asked after all other finders.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Where a module is; None if that is unknown."""
        package, _, last = name.rpartition(".")
        if package.partition(".")[0] != "pullback":
            return None
        found = getattr(sys.modules[package], last, None) if last in dir(sys.modules[package]) else None
        if isinstance(found, ModuleType):
            return ModuleSpec(name, _AliasLoader(found))  # type: ignore[arg-type]
        meaning = import_module("pullback.foreign_names").explain(package.partition(".")[2], [last])
        if meaning is not None and not last.startswith("_"):
            raise ModuleNotFoundError(f"{package} has no {last!r}: {meaning}", name=name)
        return None


class _AliasLoader:
    """Loads a module under a second name."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import gave it the second name's


def explain_missing_functions(function: Callable[..., Any], names: str) -> None:
    """Let functions of other libraries that would be attributes of a function (`jit.script`) raise what explains them;
    of a function, reading an attribute cannot.
    """
    for name in names.split():
        setattr(function, name, MissingFunction(function.__name__, name))


class MissingFunction:
    """A function of another library: calling it raises the AttributeError that explains it."""

    def __init__(self, place: str, name: str) -> None:
        self.place, self.name = place, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise missing_name(self.place, self.name)


def describe_parameters(function: Any) -> str:
    """The parameters of a function as in its definition; of many, those that must be given and the first others."""
    shown: list[str] = []
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    for before, p in zip([None, *parameters], parameters, strict=False):
        if before is not None and before.kind is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            shown.append("/")
        is_shown = p.default is p.empty or len(shown) < _MAX_SHOWN
        if is_shown and p.kind is p.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        if is_shown:
            star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
            shown.append(star + p.name + ("" if p.default is p.empty else f"={_default_text(p.default)}"))
        elif shown[-1] != "...":
            shown.append("...")
    return f"({', '.join(shown)})"


def _default_text(default: Any) -> str:
    return str(getattr(default, "__name__", repr(default)))
