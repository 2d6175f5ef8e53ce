"""`pullback compile`: a stage of a function's compilation as text."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.dtypes import NAMES, as_dtype
from ..compile.jit import Jitted
from ..compile.specialization import Specialization
from ..errors import ArgumentError
from ..program.encoding import WEAK_TYPES
from ..program.passes import PASSES
from ..program.verify import verify_program


def load_function(target: str) -> Callable[..., Any]:
    """The function that `FILE.py:function` or `package.module:function` names."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise ArgumentError(f"compile: wanted FILE.py:function or package.module:function, got {target!r}.")
    found: Any = _load_module(where)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ArgumentError(f"compile: {where} has no function {name}.")
    function: Callable[..., Any] = found
    return function


def _load_module(where: str) -> Any:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ArgumentError(f"compile: {error}.") from None
    path = Path(where).resolve()
    if not path.is_file():
        raise ArgumentError(f"compile: there is no file {where}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # a script can import modules beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def parse_arguments(text: str) -> list[Any]:
    """Arguments of the specs that a text lists: `float32[32, 784]`, `float` for a number, lists, tuples and dicts of
    them; a number, a string, True, False or None is a literal.

    >>> [getattr(a, "shape", a) for a in parse_arguments("float32[2, 3] [float64[], int64[4]] 0.5")]
    [(2, 3), [array(0.), array([0, 0, 0, 0])], 0.5]
    """
    return [_parse_argument(piece) for piece in _split_outside_brackets(text)]


def _split_outside_brackets(text: str) -> list[str]:
    """The parts between spaces or commas outside brackets."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and (letter.isspace() or letter == ","):
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece for piece in pieces if piece]


def _parse_argument(text: str) -> Any:
    try:
        # an array without axes, `float32[]`, is not valid Python by itself
        tree = ast.parse(re.sub(r"(\w)\[\s*\]", r"\1[()]", text), mode="eval").body
        return _evaluate_node(tree)
    except (SyntaxError, ValueError, TypeError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"compile: cannot read the argument {text!r}; write float32[32, 784], for instance."
        ) from None


def _evaluate_node(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
        shape = ast.literal_eval(tree.slice)
        return np.zeros(shape, _parse_dtype(tree.value.id))
    if isinstance(tree, ast.Name):
        return WEAK_TYPES[tree.id](1) if tree.id in WEAK_TYPES else np.zeros((), _parse_dtype(tree.id))
    if isinstance(tree, ast.List):
        return [_evaluate_node(x) for x in tree.elts]
    if isinstance(tree, ast.Tuple):
        return tuple(_evaluate_node(x) for x in tree.elts)
    if isinstance(tree, ast.Dict):
        keys = [k.id if isinstance(k, ast.Name) else ast.literal_eval(k) for k in tree.keys if k is not None]
        return dict(zip(keys, map(_evaluate_node, tree.values), strict=True))
    return ast.literal_eval(tree)


def _parse_dtype(name: str) -> Any:
    if name not in NAMES:
        raise ArgumentError(f"compile: {name!r} is not a dtype; there are {', '.join(sorted(NAMES))}.")
    return as_dtype(name)


def compile_entry(f: Callable[..., Any], args: list[Any]) -> Specialization:
    """f, compiled already or not, for these arguments; strings, booleans and None are settings, not arrays."""
    _check_call(f, args)
    if isinstance(f, Jitted):
        return f.lower(*args)
    settings = tuple(i for i, a in enumerate(args) if a is None or isinstance(a, str | bool))
    return Jitted(f, settings).lower(*args)


def _check_call(f: Callable[..., Any], args: list[Any]) -> None:
    """Raise unless f can be called with so many arguments."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # a function of C may have none
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        name = getattr(f, "__name__", "the function")
        given = "no arguments" if not args else f"{len(args)} argument{'s' * (len(args) > 1)}"
        raise ArgumentError(
            f"compile: {name}{signature} was given {given}: {error}.\n"
            '  List the kinds of all of them: --args "float32[32, 784] 0.5".'
        ) from None


def passes_text() -> str:
    """The passes in their order, a line each."""
    width = max(len(run.__name__) for run in PASSES)
    return "\n".join(f"{run.__name__:{width}}  {(inspect.getdoc(run) or '').splitlines()[0]}" for run in PASSES)


def _passes_applied_text(entry: Specialization) -> str:
    graph = entry.staged
    shown = [f"staged: {len(graph.equations)} equations", str(graph)]
    for run in PASSES:
        graph = verify_program(run(graph))
        shown += ["", f"{run.__name__}: {len(graph.equations)} equations", str(graph)]
    return "\n".join(shown)


def _memory_text(entry: Specialization) -> str:
    found = entry.memory()
    rows = [*((f.name, getattr(found, f.name)) for f in fields(found)), ("peak", found.peak)]
    return "\n".join(f"{name:9}  {count:,} bytes" for name, count in rows)


#: The stages that can be shown.
STAGES: dict[str, Callable[[Specialization], str]] = {
    "passes": _passes_applied_text,
    "graph": lambda entry: str(entry.graph),
    "kernels": lambda entry: entry.kernels,
    "llvm": lambda entry: entry.llvm,
    "assembly": lambda entry: entry.assembly,
    "explain": Specialization.explain,
    "memory": _memory_text,
}


def stage_text(target: str, args: str, stage: str) -> str:
    """One stage of the function that `target` names, for arguments of the specs in `args`."""
    return STAGES[stage](compile_entry(load_function(target), parse_arguments(args)))
