"""How a Python loop on a traced value is written with `pb.while_loop` or `pb.fori_loop`: text for error messages."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FrameType

#: What leaves a loop early, or hands something out of it: there is no loop of ours to be written in its place.
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Raise, ast.NamedExpr)
#: What has variables of its own.
_SCOPES = (ast.Lambda, ast.FunctionDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def suggest_loop(frame: FrameType) -> str:
    """The loop that a frame stands at, rewritten, as an end of an error message; empty where that is not known."""
    tree = _parse(frame)
    loop = None if tree is None else _find_loop(tree, frame)
    if tree is None or loop is None or loop.orelse or any(isinstance(node, _LEAVES) for node in ast.walk(loop)):
        return ""
    carried = _carried_names(tree, loop, frame)
    if not carried:
        return ""
    lines = _while_lines(loop, carried, tree) if isinstance(loop, ast.While) else _for_lines(loop, carried, tree)
    return "\n  This loop, written for tracing:" + "".join(f"\n    {line}" for line in lines) if lines else ""


def _parse(frame: FrameType) -> ast.Module | None:
    """The function of a frame, with the lines of its file."""
    try:
        source, first = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(source)))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or a part of a statement (a lambda)
        return None
    return ast.increment_lineno(tree, max(first, 1) - 1)


def _find_loop(tree: ast.Module, frame: FrameType) -> ast.While | ast.For | None:
    """The innermost loop whose first line a frame stands at."""
    found: ast.While | ast.For | None = None
    for node in ast.walk(tree):
        head = node.test if isinstance(node, ast.While) else node.iter if isinstance(node, ast.For) else None
        if isinstance(node, ast.While | ast.For) and head is not None:
            found = node if node.lineno <= frame.f_lineno <= (head.end_lineno or 0) else found
    return found


def _carried_names(tree: ast.Module, loop: ast.While | ast.For, frame: FrameType) -> list[str]:
    """What a loop carries from round to round: names that are bound before it and that it assigns, or assigns to items
    of. None where it changes something else, or where what it makes is read after it.
    """
    assigned: list[str] = []
    for node in [node for statement in loop.body for node in _walk_scope(statement)]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.append(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            base = _base_name(node.value)
            if base is None:
                return []
            assigned.append(base)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return []
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_method_of(node.value, frame):
            return []  # such as items.append(x)
    names = list(dict.fromkeys(assigned))
    before = {name for name, line in _bindings(tree) if line < loop.lineno}
    after = {
        node.id for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno > (loop.end_lineno or 0)
    }  # fmt: skip
    return [] if after & (set(names) - before) else [name for name in names if name in before]


def _walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those inside it that share its variables."""
    yield node
    for child in () if isinstance(node, _SCOPES) else ast.iter_child_nodes(node):
        yield from _walk_scope(child)


def _base_name(node: ast.expr) -> str | None:
    """`x` of `x[i][j]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_method_of(call: ast.Call, frame: FrameType) -> bool:
    """Whether a call is of a method of a local variable, which it may change."""
    return isinstance(call.func, ast.Attribute) and (_base_name(call.func.value) or "") in frame.f_locals


def _bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a function binds, its parameters included, and where."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def _while_lines(loop: ast.While, carried: list[str], tree: ast.Module) -> list[str]:
    names, test = ", ".join(carried), ast.unparse(loop.test)
    if not isinstance(loop.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call):
        test = f"({test}) != 0"
    start = ", ".join(_start_of(name, loop, tree) for name in carried)
    return [
        *_body_lines("body", loop.body, carried),
        f"{names} = pb.while_loop(lambda {names}: {test}, body, {start})"
        if len(carried) == 1
        else f"{names} = pb.while_loop(lambda c: (lambda {names}: {test})(*c), body, ({start}))",
    ]


def _start_of(name: str, loop: ast.While | ast.For, tree: ast.Module) -> str:
    """A name, as a floating number where it starts as an integer and the loop makes something else of it than
    another integer.
    """
    starts = [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.lineno < loop.lineno
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]  # fmt: skip
    is_integer = bool(starts) and isinstance(starts[-1], ast.Constant) and type(starts[-1].value) is int
    return f"1.0 * {name}" if is_integer and not _stays_integer(name, loop) else name


def _stays_integer(name: str, loop: ast.While | ast.For) -> bool:
    """Whether a loop only adds integers to a name, or multiplies it by them."""
    counter = loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else name
    for node in [node for statement in loop.body for node in _walk_scope(statement)]:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            value: ast.expr = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            value = ast.BinOp(ast.Name(name), node.op, node.value)
        else:
            continue
        parts = [part for part in ast.walk(value) if isinstance(part, ast.expr)]
        known = all(
            (isinstance(part, ast.BinOp) and not isinstance(part.op, ast.Div))
            or (isinstance(part, ast.Name) and part.id in (name, counter))
            or (isinstance(part, ast.Constant) and type(part.value) is int)
            for part in parts
        )  # fmt: skip
        if not known:
            return False
    return True


def _for_lines(loop: ast.For, carried: list[str], tree: ast.Module) -> list[str]:
    call, names = loop.iter, ", ".join(carried)
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and 1 <= len(call.args) <= 2):
        return []
    if not isinstance(loop.target, ast.Name):
        return []
    bounds = [ast.unparse(_without_int(bound)) for bound in call.args]
    lower, upper = bounds if len(bounds) == 2 else ("0", bounds[0])
    start = ", ".join(_start_of(name, loop, tree) for name in carried)
    init = start if len(carried) == 1 else f"({start})"
    body = _body_lines("body", loop.body, carried, f"{loop.target.id}, ")
    return [*body, f"{names} = pb.fori_loop({lower}, pb.astype({upper}, int), body, {init})"]


def _without_int(bound: ast.expr) -> ast.expr:
    """`n` of `int(n)`: a traced value stays one."""
    is_int = isinstance(bound, ast.Call) and ast.unparse(bound.func) == "int" and len(bound.args) == 1
    return bound.args[0] if is_int and isinstance(bound, ast.Call) else bound


def _body_lines(name: str, body: list[ast.stmt], carried: list[str], first: str = "") -> list[str]:
    names = ", ".join(carried)
    inside = [line for statement in body for line in ast.unparse(statement).splitlines()]
    if len(carried) == 1:
        return [f"def {name}({first}{names}):", *(f"    {line}" for line in inside), f"    return {names}"]
    return [
        f"def {name}({first}c):", f"    {names} = c", *(f"    {line}" for line in inside), f"    return ({names})",
    ]  # fmt: skip
