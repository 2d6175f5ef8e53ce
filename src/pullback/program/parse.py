"""Text in, a program out. Nothing is evaluated: a small grammar is read, and anything else is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..arrays.backends import is_array
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.spec import Spec, spec_of
from ..arrays.trees import flatten
from ..errors import ArgumentError, PullbackError
from ..ops.index.normalize import SLOT
from ..ops.op import Op
from .encoding import (
    LEAF_MARKER,
    WEAK_TYPES,
    check_arguments,
    closed_scope,
    decode_array,
    find_op,
    ops_by_name,
    spec_from,
    split_template,
)
from .ir import Equation, Program, Symbol

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf\b|nan\b))|(?P<name>[^\W\d]\w*)"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>\.\.\.|[()\[\]{},:=*<>])|(?P<end>$))"""
)
_MAX_DEPTH = 50
_KEYWORDS: dict[str, Any] = {"None": None, "True": True, "False": False, "SLOT": SLOT}


def parse_program(text: str, ops: Any = ()) -> Program:
    """The program that a text shows."""
    if not isinstance(text, str):
        raise ArgumentError(f"parse: wants the text of a graph, got a {type(text).__name__}.")
    return _Parser(text, ops_by_name(ops)).program()


class _Parser:
    """Line by line, with the values that have been named so far."""

    def __init__(self, text: str, ops: Mapping[str, Op]) -> None:
        self.lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        self.ops = ops
        self.scope = closed_scope()
        self.known: dict[str, Any] = {}

    def program(self) -> Program:
        ends = [i for i, (_, line) in enumerate(self.lines) if re.match(r"\s*return\b", line)]
        if not self.lines or not ends:
            raise ArgumentError("parse: the text of a graph starts with graph(...) and ends with return ...")
        for number, line in self.lines:
            if "<" in line:
                self._read(number, line, _refuse_unwritten)
        self._tables(self.lines[ends[0] + 1 :])
        inputs, arguments = self._read(*self.lines[0], self._head)
        equations = tuple(self._read(n, line, self._equation) for n, line in self.lines[1 : ends[0]])
        outputs, results = self._read(*self.lines[ends[0]], self._end)
        return Program(inputs, equations, outputs, arguments, results)

    def _read(self, number: int, line: str, how: Callable[[_LineReader], Any]) -> Any:
        """One line by one rule; every error names the line."""
        try:
            reader = _LineReader(line, self.known)
            found = how(reader)
            reader.done()
            return found
        except PullbackError as error:
            raise ArgumentError(f"parse: line {number}: {error}\n  {line.strip()[:120]}") from None

    def _tables(self, lines: list[tuple[int, str]]) -> None:
        """What may follow the graph: constants, then routines."""
        begin = next((i for i, (_, line) in enumerate(lines) if line.strip() == "routines"), len(lines))
        constants, routines = lines[:begin], lines[begin + 1 :]
        if constants and constants[0][1].strip() != "constants":
            raise ArgumentError(f"parse: line {constants[0][0]}: only constants and routines may follow return.")
        for number, line in constants[1:]:
            self._read(number, line, self._constant)
        while routines:
            end = next((i for i, (_, line) in enumerate(routines) if re.match(r"\s*return\b", line)), None)
            if not end:
                raise ArgumentError(f"parse: line {routines[0][0]}: a routine ends with return ...")
            self._routine(routines[: end + 1])
            routines = routines[end + 1 :]

    def _routine(self, lines: list[tuple[int, str]]) -> None:
        """One routine, which has names of its own."""
        outside, self.known = self.known, dict(self.known)
        name, inputs = self._read(*lines[0], self._routine_head)
        equations = tuple(self._read(n, line, self._equation) for n, line in lines[1:-1])
        outputs = self._read(*lines[-1], self._routine_end)
        self.known = outside
        self._define(name, Program(inputs, equations, outputs))

    def _routine_head(self, line: _LineReader) -> tuple[str, tuple[Symbol, ...]]:
        name = line.name()
        line.take("(")
        return name, tuple(line.until(")", lambda: self._symbol(line)))

    def _routine_end(self, line: _LineReader) -> tuple[Any, ...]:
        line.name()
        values = [_read_array(line)]
        while line.kind() != "end":
            line.take(",")
            values.append(_read_array(line))
        return tuple(values)

    def _constant(self, line: _LineReader) -> None:
        name = line.name()
        line.take("=")
        self._define(name, line.value())

    def _define(self, name: str, value: Any) -> None:
        if name in self.known:
            raise ArgumentError(f"{name} is made twice.")
        self.known[name] = value

    def _symbol(self, line: _LineReader) -> Symbol:
        name = line.name()
        line.take(":")
        symbol = Symbol(line.spec(), self.scope, [], None)
        self._define(name, symbol)
        return symbol

    def _head(self, line: _LineReader) -> tuple[tuple[Symbol, ...], Any]:
        if line.name() != "graph":
            raise ArgumentError("the first line starts with graph(.")
        line.take("(")
        inputs = tuple(line.until(")", lambda: self._symbol(line)))
        if not line.word("from"):
            return inputs, flatten(((LEAF_MARKER,) * len(inputs), {}))[1]
        leaves, structure = split_template(check_arguments(line.value()))
        if [id(leaf) for leaf in leaves] != [id(s) for s in inputs]:
            raise ArgumentError("the inputs stand in (args, kwargs) once each, in their order (dicts by their keys).")
        return inputs, structure

    def _equation(self, line: _LineReader) -> Equation:
        names: list[tuple[str, Spec]] = []
        while not names or line.peek() == ",":
            if names:
                line.take(",")
            name = line.name()
            line.take(":")
            names.append((name, line.spec()))
        line.take("=")
        op = find_op(self.ops, line.text() if line.kind() == "string" else line.name())
        line.take("(")
        args: list[Any] = []
        static: dict[str, Any] = {}
        line.until(")", lambda: self._given(line, args, static))
        results = tuple(Symbol(spec, self.scope, [], None) for _, spec in names)
        for (name, _), symbol in zip(names, results, strict=True):
            self._define(name, symbol)
        return Equation(results, op, tuple(args), static)

    def _given(self, line: _LineReader, args: list[Any], static: dict[str, Any]) -> None:
        if line.kind() == "name" and line.peek(1) == "=":
            name = line.name()
            line.take("=")
            if name in static:
                raise ArgumentError(f"{name} is given twice.")
            static[name] = line.value()
        elif static:
            raise ArgumentError("arrays stand before static parameters.")
        else:
            args.append(_read_array(line))

    def _end(self, line: _LineReader) -> tuple[tuple[Any, ...], Any]:
        line.name()
        values = [line.value()]
        while line.kind() != "end":
            line.take(",")
            values.append(line.value())
        return split_template(values[0] if len(values) == 1 else tuple(values))


def _refuse_unwritten(line: _LineReader) -> None:
    """An op may hold a function of Python (a loop's step, an equation); no other process could have it from a text."""
    if ("mark", "<") in line.tokens:
        raise ArgumentError(
            "what stands in <angle brackets> could not be serialized, and cannot be read.\n"
            "  Keep the function that was staged, and stage it again."
        )
    line.at = len(line.tokens) - 1


def _read_array(line: _LineReader) -> Any:
    """A value that has a spec: an array, a number or a symbol."""
    found = line.value()
    if type(found) not in WEAK_TYPES.values() and not isinstance(found, Symbol) and not is_array(found):
        raise ArgumentError(f"a {type(found).__name__} stands where an array should.")
    return found


class _LineReader:
    """The tokens of one line, and the values they spell."""

    def __init__(self, line: str, known: Mapping[str, Any]) -> None:
        self.known = known
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        place = 0
        while not self.tokens or self.tokens[-1][0] != "end":
            match = _TOKEN.match(line, place)
            if match is None or match.lastgroup is None:
                raise ArgumentError(f"cannot read {line[place : place + 20].strip()!r}.")
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def next(self) -> tuple[str, str]:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def fail(self, wanted: str) -> NoReturn:
        raise ArgumentError(f"wanted {wanted}, got {self.peek()[:40]!r}." if self.peek() else f"wanted {wanted}.")

    def take(self, mark: str) -> None:
        if self.kind() != "mark" or self.peek() != mark:
            self.fail(repr(mark))
        self.next()

    def word(self, word: str) -> bool:
        """Whether the word comes next; if so it is taken."""
        found = self.kind() == "name" and self.peek() == word
        if found:
            self.next()
        return found

    def name(self) -> str:
        if self.kind() != "name":
            self.fail("a name")
        return self.next()[1]

    def text(self) -> str:
        if self.kind() != "string":
            self.fail("a string")
        try:
            found: str = json.loads(self.next()[1])
        except ValueError:
            raise ArgumentError("a string that is not well formed.") from None
        return found

    def done(self) -> None:
        if self.kind() != "end":
            self.fail("the end of the line")

    def until(self, mark: str, read: Callable[[], Any]) -> list[Any]:
        """What stands between commas up to a closing mark; one more comma may stand at the end."""
        found: list[Any] = []
        while self.peek() != mark or self.kind() != "mark":
            if found:
                self.take(",")
                if self.peek() == mark:
                    break
            found.append(read())
        self.take(mark)
        return found

    def spec(self) -> Spec:
        name = self.name()
        if name in WEAK_TYPES and self.peek() != "[":
            return spec_of(WEAK_TYPES[name]())
        self.take("[")
        shape = self.until("]", self.number)
        device = "cpu"
        if self.word("on"):
            device = self.name()
            self.take(":")
            device += f":{self.number()}"
        return spec_from(name, shape, device)

    def number(self) -> Any:
        if self.kind() != "number":
            self.fail("a number")
        text = self.next()[1]
        try:
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        except ValueError:
            raise ArgumentError("a number that is too long.") from None

    def value(self, depth: int = 0) -> Any:
        """Any value but a spec."""
        if depth > _MAX_DEPTH:
            raise ArgumentError("values are nested too deeply.")
        kind, text = self.tokens[self.at]
        if kind == "number":
            return self.number()
        if kind == "string":
            return self.text()
        if kind == "name":
            return self._read_named(self.name(), depth)
        if kind != "mark" or text in ")]},:=<>":
            self.fail("a value")
        self.next()
        return self._container(text, depth)

    def _container(self, mark: str, depth: int) -> Any:
        if mark in ("*", "..."):
            return LEAF_MARKER if mark == "*" else Ellipsis
        if mark == "(":
            found = self.until(")", lambda: self.value(depth + 1))
            if len(found) == 1 and self.tokens[self.at - 2][1] != ",":
                raise ArgumentError("a tuple of one has a comma: (x,).")
            return tuple(found)
        if mark == "[":
            return self.until("]", lambda: self.value(depth + 1))
        return dict(self.until("}", lambda: self._item(depth)))

    def _item(self, depth: int) -> tuple[Any, Any]:
        key = self.text() if self.kind() == "string" else self.number()
        self.take(":")
        return key, self.value(depth + 1)

    def _read_named(self, name: str, depth: int) -> Any:
        if name in self.known:
            return self.known[name]
        if name in _KEYWORDS:
            return _KEYWORDS[name]
        if self.peek() == "(" and name in ("array", "slice", "complex"):
            self.take("(")
            return self._read_call(name, depth)
        if name in NAMES:
            return as_dtype(name)
        raise ArgumentError(f"{name} is no value made before this line.")

    def _read_call(self, name: str, depth: int) -> Any:
        if name == "array":
            spec = self.spec()
            self.take(",")
            data = self.value(depth + 1)
            self.take(")")
            return decode_array(spec, data)
        parts = self.until(")", lambda: self.value(depth + 1))
        if name == "slice" and len(parts) == 3 and all(p is None or type(p) is int for p in parts):
            return slice(*parts)
        if name == "complex" and len(parts) == 2 and all(type(p) in (int, float) for p in parts):
            return complex(*parts)
        raise ArgumentError(f"{name}(...) is not well formed.")
