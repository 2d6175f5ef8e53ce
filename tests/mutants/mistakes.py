"""Mistakes written into the compiler, one at a time: a condition negated, an operand dropped, a comparison or a number
shifted, a statement left out, an entry of a key forgotten.

A mutant is a function of a module with one node of its syntax tree changed. Its code replaces that of the living
function, so that a forked child can be the package with this one mistake in it.
"""

from __future__ import annotations

import ast
import collections
import copy
import hashlib
import importlib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["MODULES", "Mutant", "every_mutant", "plant"]

#: What mistakes are planted in: passes, lowering, fusion, order, memory, rendering of kernels, watching, keys.
MODULES = (
    "arrays.closures", "program.hoist", "program.passes", "program.split", "compile.lower.equations",
    "compile.lower.fuse", "compile.lower.recomputation", "compile.lower.axes", "compile.schedule.split",
    "compile.schedule.order", "compile.schedule.arena", "compile.lower.outputs", "compile.lower.contraction",
    "compile.lower.convolution", "compile.lower.pooling", "compile.lower.padding", "compile.lower.indexing",
    "compile.lower.views", "compile.lower.control_flow", "compile.stage.residuals",
    "compile.schedule.rematerialize", "compile.schedule.recompute_recipes", "compile.schedule.index_checks",
    "compile.legality", "compile.stage.closure", "compile.stage.closure_walk", "compile.stage.locations",
    "program.fingerprint", "compile.stage.arguments", "compile.jit", "compile.specialization",
    "compile.as_op", "compile.recording", "compile.stage.captures", "compile.cache", "compile.stage.trace",
    "compile.schedule.division", "compile.schedule.domain", "compile.cpu.kernel.render",
    "compile.cpu.kernel.row_loop", "compile.cpu.kernel.line_values", "compile.cpu.kernel.row_folds",
    "compile.cpu.kernel.row_scratch", "compile.cpu.kernel.index_access", "compile.cpu.program.control_flow",
    "compile.cpu.program.render", "compile.cpu.runner", "compile.schedule.memory_budget", "compile.schedule.row_plan",
    "compile.pipeline",
    "compile.cpu.kernel.access", "compile.cpu.builder.memory", "compile.cpu.runtime.link",
)  # fmt: skip

_SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: in which function of which module, what was done, the line it was done to, all lines around."""

    module: str
    function: str
    number: int
    kind: str
    line: int
    text: str
    body: range

    @property
    def key(self) -> str:
        """What it is, wherever it stands in the file."""
        return f"{self.module} {self.function}: {self.kind}: {self.text}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.kind}: {self.text}"


def every_mutant(most: int | None = None, seed: int = 0) -> list[Mutant]:
    """All mutants of all modules; or a sample of so many, spread evenly over the modules."""
    by_module = {module: list(_mutants_of(module)) for module in MODULES}
    if most is None:
        return [m for mutants in by_module.values() for m in mutants]
    for mutants in by_module.values():  # by what they are, so that the sample of one module outlives edits of another
        mutants.sort(key=lambda m: hashlib.sha256(f"{seed} {m.key}".encode()).digest())
    chosen: list[Mutant] = []
    while len(chosen) < most and any(by_module.values()):
        for mutants in by_module.values():
            if mutants and len(chosen) < most:
                chosen.append(mutants.pop())
    return sorted(chosen, key=lambda m: (MODULES.index(m.module), m.line, m.number))


def _mutants_of(module: str) -> Iterator[Mutant]:
    source, tree = _parsed(module)
    for name, node in _functions(tree):
        body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        for number, (kind, place) in enumerate(_places(node)):
            text = " ".join((ast.get_source_segment(source, place) or "").split())[:90]
            yield Mutant(module, name, number, kind, place.lineno, text, body)


def _parsed(module: str) -> tuple[str, ast.Module]:
    with open(importlib.import_module(f"pullback.{module}").__file__) as file:
        source = file.read()
    return source, ast.parse(source)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods, with those written inside of them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{method.name}", method) for method in node.body if isinstance(method, ast.FunctionDef)
            )


def _places(function: ast.FunctionDef) -> list[tuple[str, Any]]:
    """What can be done wrong in a function: kinds of mistakes, and the nodes they are made in."""
    found: list[tuple[str, Any]] = []
    for node in _nodes(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            found.append(("negated", node.test))
        elif isinstance(node, ast.comprehension):
            found += [("negated", test) for test in node.ifs]
        elif isinstance(node, ast.BoolOp):
            found += [("operand dropped", value) for value in node.values]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPPED:
            found.append(("comparison", node))
        elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and type(node.right.value) is int:
            found.append(("number shifted", node.right))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.append(("left out", node))
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 2:
            found += [("entry forgotten", e) for e in node.elts if not isinstance(e, (ast.Constant, ast.Starred))]
    return found


def _nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """All that runs: nothing of annotations and decorators."""
    todo = collections.deque(ast.iter_child_nodes(function))
    silent = {id(x) for x in (function.returns, *function.decorator_list) if x is not None}
    while todo:
        node = todo.popleft()
        if id(node) not in silent:
            yield node
            kept = {k: v for k, v in ast.iter_fields(node) if k not in ("annotation", "returns")}
            todo.extend(x for v in kept.values() for x in (v if isinstance(v, list) else [v]) if isinstance(x, ast.AST))


class _Change(ast.NodeTransformer):
    def __init__(self, kind: str, target: ast.AST) -> None:
        self.kind, self.target = kind, target

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if node is self.target:
            return self._changed(node)
        if isinstance(node, ast.BoolOp) and self.kind == "operand dropped" and self.target in node.values:
            kept = [value for value in node.values if value is not self.target]
            return ast.copy_location(kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept), node)
        return ast.NodeTransformer.generic_visit(self, node)

    def _changed(self, node: Any) -> ast.AST:
        if self.kind == "negated":
            return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)
        if self.kind == "comparison":
            return ast.copy_location(ast.Compare(node.left, [_SWAPPED[type(node.ops[0])]()], node.comparators), node)
        if self.kind == "number shifted":
            return ast.copy_location(ast.Constant(node.value - 1 if node.value else 1), node)
        if self.kind == "left out":
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Constant(None), node)  # an entry that says nothing


def plant(mutant: Mutant) -> None:
    """Put the mistake into the running package. For a process that is not used for anything else."""
    _, tree = _parsed(mutant.module)
    node = copy.deepcopy(dict(_functions(tree))[mutant.function])
    kind, place = _places(node)[mutant.number]
    changed = _Change(kind, place).visit(node)
    changed.decorator_list = []
    module = importlib.import_module(f"pullback.{mutant.module}")
    living = _living(module, mutant.function)
    if living.__closure__:
        raise ValueError(f"{mutant}: a function with a closure of its own cannot be changed in place")
    body = ast.fix_missing_locations(ast.Module([changed], []))
    code = compile(body, module.__file__ or "", "exec", flags=_future(module), dont_inherit=True)
    (inner,) = (c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == node.name)
    living.__code__ = inner


def _future(module: Any) -> int:
    annotations = getattr(module, "annotations", None)
    return annotations.compiler_flag if annotations is not None else 0


def _living(module: Any, name: str) -> types.FunctionType:
    """The function behind caches, properties and the like."""
    found: Any = module
    for part in name.split("."):
        found = vars(found)[part]
    while not isinstance(found, types.FunctionType):
        inner = (getattr(found, slot, None) for slot in ("__wrapped__", "fget", "__func__", "compute", "func"))
        found = next(x for x in inner if x is not None)
    return found
