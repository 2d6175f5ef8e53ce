"""Text with placeholders in; out text that reads those numbers from a table of the module, and the numbers."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"\?([^|?]*)\|([^|?]*)\|(\w+)\|(\d+)\?")
_TYPE = re.compile(r"(?<![%@.\w])(i\d+|ptr|float|double)\b")
#: The table of the module, filled when it is loaded.
TABLE = "sizes"


class OpenText(NamedTuple):
    """A module's text and the numbers of its table, each as the bits of a 64-bit integer."""

    text: str
    numbers: tuple[int, ...]


def read_numbers_from_table(text: str) -> OpenText:
    """Each function loads its numbers where it begins. A placeholder that is no operand, such as the size of a type,
    becomes its literal.
    """
    numbers: list[int] = []
    lines: list[str] = []
    if "?" not in text:
        return OpenText(text, ())
    function = _Function(numbers)
    for line in text.split("\n"):
        if line.startswith("define "):
            function = _Function(numbers)
        if "?" in line:
            line = _replace(line, function)
        elif line == "}" and function.loads:
            lines[function.start : function.start] = function.loads
        lines.append(line)
        if line == "entry:":
            function.start = len(lines)
    if numbers:
        lines.append(f"@{TABLE} = global [{len(numbers)} x i64] zeroinitializer")
    return OpenText("\n".join(lines), tuple(numbers))


class _Function:
    """The numbers of one function while its text is read. Functions do not share numbers: two that are equal for one
    size need not be for another, and the text must not depend on that.
    """

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.start = 0
        self.loads: list[str] = []
        self.known: dict[tuple[str, ...], str] = {}

    def operand(self, literal: str, identity: str, kind: str, lanes: str) -> str:
        key = (literal, identity, kind, lanes)
        if key not in self.known:
            self.known[key] = self._load(literal, kind, lanes)
        return self.known[key]

    def _load(self, literal: str, kind: str, lanes: str) -> str:
        at = len(self.numbers)
        address = f"getelementptr (i64, ptr @{TABLE}, i64 {at})"
        of = kind.partition("_")[2] or kind
        self.numbers.append(_bits(literal, of))
        if kind.startswith("ptr_"):
            return address
        self.loads.append(f"  %size{at}.one = load {kind}, ptr {address}")
        if lanes == "1":
            return f"%size{at}.one"
        wide = f"<{lanes} x {kind}>"
        self.loads += [
            f"  %size{at}.first = insertelement {wide} poison, {kind} %size{at}.one, i32 0",
            f"  %size{at} = shufflevector {wide} %size{at}.first, {wide} poison, <{lanes} x i32> zeroinitializer",
        ]
        return f"%size{at}"


def _replace(line: str, function: _Function) -> str:
    def replaced(found: re.Match[str]) -> str:
        literal, identity, kind, lanes = found.groups()
        if lanes != "1" or kind.startswith("ptr_") or _is_operand(line[: found.start()], kind):
            return function.operand(literal, identity, kind, lanes)
        return literal

    return _PLACEHOLDER.sub(replaced, line)


def _is_operand(before: str, kind: str) -> bool:
    """Whether an operand of a type stands after this text: in an instruction, and not inside a constant or a type."""
    types = _TYPE.findall(_PLACEHOLDER.sub("", before))
    closed = all(before.count(a) == before.count(b) for a, b in ("<>", "[]"))
    return before.startswith("  ") and closed and bool(types) and types[-1] == kind


def _bits(literal: str, kind: str) -> int:
    """What a slot of the table has; a load of a narrower type reads its lower bytes."""
    if not literal.startswith("0x"):
        return int(literal)
    bits = int(literal, 16)
    if kind == "float":  # LLVM writes a float32 by the bits of the same float64
        (value,) = struct.unpack("<d", struct.pack("<Q", bits))
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return bits - (1 << 64) if bits >> 63 else bits
