"""How a Python loop on a traced value is written with `pb.while_loop` or `pb.fori_loop`: text for error messages."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FrameType
from typing import TypeGuard

#: What leaves a loop early, or hands something out of it: there is no loop of ours to be written in its place.
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Raise, ast.NamedExpr)
#: What runs at another time, with variables of its own; and what only has variables of its own.
_FUNCTIONS = (ast.Lambda, ast.FunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def suggest_loop(frame: FrameType) -> str:
    """The loop that a frame stands at, rewritten, as an end of an error message; empty where that is not known."""
    tree = _parse(frame)
    loop = None if tree is None else _find_loop(tree, frame)
    if tree is None or loop is None or loop.orelse or any(isinstance(node, _LEAVES) for node in _walk_body(loop)):
        return ""
    carried = _carried_names(tree, loop, frame)
    if not carried or _is_shared(carried, loop, tree):
        return ""
    starts = [_first_value(name, loop, tree) for name in carried]
    if any(isinstance(x, ast.Constant) and not isinstance(x.value, int | float | complex) for x in starts):
        return ""  # last = None
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
    handed_out = set(names) - before
    if isinstance(loop, ast.For):  # its number
        handed_out |= {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return [] if after & handed_out else [n for n in names if n in before and not _is_made_anew(n, loop, tree)]


def _is_made_anew(name: str, loop: ast.While | ast.For, tree: ast.Module) -> bool:
    """Whether each round sets a name before it reads it, and nothing else reads it afterwards."""
    inside = {id(node) for statement in loop.body for node in ast.walk(statement)}
    is_repeated = any(
        isinstance(outer, ast.For | ast.While) and any(node is loop for node in ast.walk(outer)) and outer is not loop
        for outer in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if _is_reading(node, name) and id(node) not in inside and (is_repeated or node.lineno >= loop.lineno):
            return False
    for statement in loop.body:
        if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(statement)):
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            sets = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            return sets and not _reads(statement, name)
    return False


def _is_shared(names: list[str], loop: ast.While | ast.For, tree: ast.Module) -> bool:
    """Whether other functions have one of the names in common with this one: those of the rewritten loop are others."""
    inner = [node for root in tree.body for child in ast.iter_child_nodes(root) for node in ast.walk(child)]
    shared = {name for node in inner if isinstance(node, ast.Nonlocal | ast.Global) for name in node.names}
    functions = [
        node for node in inner
        if isinstance(node, _FUNCTIONS) and not loop.lineno <= node.lineno <= (loop.end_lineno or 0)
    ]  # fmt: skip
    return any(name in shared or any(_reads(node, name) for node in functions) for name in names)


def _is_reading(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _reads(node: ast.AST, name: str) -> bool:
    return any(_is_reading(inner, name) for inner in ast.walk(node))


def _walk_body(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those inside it, but those of functions."""
    yield node
    for child in () if isinstance(node, _FUNCTIONS) else ast.iter_child_nodes(node):
        yield from _walk_body(child)


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
    body, carry = _free_name("body", tree), _free_name("c", tree)
    return [
        *_body_lines(body, carry, loop.body, carried),
        f"{names} = pb.while_loop(lambda {names}: {test}, {body}, {start})"
        if len(carried) == 1
        else f"{names} = pb.while_loop(lambda {carry}: (lambda {names}: {test})(*{carry}), {body}, ({start}))",
    ]


def _free_name(name: str, tree: ast.Module) -> str:
    """A name that a function does not use itself."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    while name in used:
        name += "_"
    return name


def _start_of(name: str, loop: ast.While | ast.For, tree: ast.Module) -> str:
    """A name, as a floating number where it starts as an integer and the loop makes something else of it than
    another integer.
    """
    start = _first_value(name, loop, tree)
    is_integer = isinstance(start, ast.Constant) and type(start.value) is int
    return f"1.0 * {name}" if is_integer and not _stays_integer(name, loop) else name


def _first_value(name: str, loop: ast.While | ast.For, tree: ast.Module) -> ast.expr | None:
    """What a name was last set to before a loop, or is by default; None where the code does not show it."""
    found: ast.expr | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            args = [*node.posonlyargs, *node.args]
            pairs = [*zip(args[len(args) - len(node.defaults) :], node.defaults, strict=True)]
            pairs += [(a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d is not None]
            found = next((default for arg, default in pairs if arg.arg == name), found)
    settings = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    for node in sorted(settings, key=lambda node: node.lineno):
        if node.lineno < loop.lineno:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if name in {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
                    found = None if isinstance(node, ast.AugAssign) else _part_for(name, target, node.value)
    return found


def _part_for(name: str, target: ast.expr, value: ast.expr | None) -> ast.expr | None:
    """What `a, b = 0, x` sets a name to."""
    if isinstance(target, ast.Name):
        return value if target.id == name else None
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return next((v for t, v in pairs if isinstance(t, ast.Name) and t.id == name), None)
    return None


def _stays_integer(name: str, loop: ast.While | ast.For) -> bool:
    """Whether a loop only adds integers to a name, or multiplies it by them."""
    counter = loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else name
    for node in [node for statement in loop.body for node in _walk_scope(statement)]:
        parts_set = [_part_for(name, t, node.value) for t in node.targets] if isinstance(node, ast.Assign) else []
        if found := [part for part in parts_set if part is not None]:
            value: ast.expr = found[0]
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
    body = _free_name("body", tree)
    lines = _body_lines(body, _free_name("c", tree), loop.body, carried, f"{loop.target.id}, ")
    return [*lines, f"{names} = pb.fori_loop({lower}, pb.astype({upper}, int), {body}, {init})"]


def _without_int(bound: ast.expr) -> ast.expr:
    """`n` of `int(n)`: a traced value stays one."""
    is_int = isinstance(bound, ast.Call) and ast.unparse(bound.func) == "int" and len(bound.args) == 1
    return bound.args[0] if is_int and isinstance(bound, ast.Call) else bound


def _body_lines(name: str, carry: str, body: list[ast.stmt], carried: list[str], first: str = "") -> list[str]:
    names = ", ".join(carried)
    inside = [line for statement in body for line in ast.unparse(statement).splitlines()]
    if len(carried) == 1:
        return [f"def {name}({first}{names}):", *(f"    {line}" for line in inside), f"    return {names}"]
    return [
        f"def {name}({first}{carry}):",
        f"    {names} = {carry}",
        *(f"    {line}" for line in inside),
        f"    return ({names})",
    ]
