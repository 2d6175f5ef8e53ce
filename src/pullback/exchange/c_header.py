"""Functions of C: arguments, named after the arguments and results of a function here, and the header of a library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.spec import Spec
from ..arrays.trees import leaf_paths

_TYPES = {"bool": "bool", "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t"}
#: The keywords of C and C++, and what compilers and much used headers define as macros.
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
EOF HUGE_VAL I INFINITY M_E M_PI NAN NULL assert complex errno imaginary linux stderr stdin stdout unix
"""
#: Types and macros of stdint.h, which the header includes.
_STDINT = re.compile(r"u?int\w*_t|U?INT\w*_(MAX|MIN|C|WIDTH)|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_(MAX|MIN|WIDTH)")
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True)
class CArgument:
    """A pointer that a function of C takes: its name, and the shape and dtype of the row-major array it points to."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_output: bool = False

    @property
    def declaration(self) -> str:
        kind = _TYPES.get(self.dtype.name, f"{self.dtype.name}_t")
        return f"{'' if self.is_output else 'const '}{kind} *{self.name}"

    def describe(self) -> str:
        dtype = self.dtype.name if self.dtype.name not in ("float16", "bfloat16") else f"the bits of {self.dtype.name}"
        size = "".join(f"[{n}]" for n in self.shape) or ", one number"
        return f"{self.name}: {dtype}{size}{', written' if self.is_output else ''}"


@dataclass(frozen=True, slots=True)
class CFunction:
    """A function of C: its name, what it computes, and its arguments in order."""

    name: str
    purpose: str
    arguments: tuple[CArgument, ...]

    def render(self) -> str:
        lines = [f"/* {self.purpose}", *(f" * {a.describe()}" for a in self.arguments), " */"]
        given = ",\n".join(f"    {a.declaration}" for a in self.arguments)
        return "\n".join([*lines, f"int {self.name}(\n{given});"])


def name_arguments(prefixes: Sequence[str], structures: Sequence[Any], specs: Sequence[Spec], taken: set[str],
                   is_output: bool = False) -> list[CArgument]:  # fmt: skip
    """The arguments for the leaves of trees, each named by its tree and its path; `taken` grows by their names."""
    names = [prefix + path for prefix, tree in zip(prefixes, structures, strict=True) for path in leaf_paths(tree)]
    return [
        CArgument(_make_name(name, taken), spec.shape, spec.dtype, is_output)
        for name, spec in zip(names, specs, strict=True)
    ]


def _make_name(text: str, taken: set[str]) -> str:
    """An identifier like the text that is not taken yet."""
    name = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_") or "x"
    name = f"x{name}" if name[0].isdigit() else name
    while name in taken or _is_reserved(name):
        name += "_"
    taken.add(name)
    return name


def _is_reserved(name: str) -> bool:
    return name in _KEYWORDS or _STDINT.fullmatch(name) is not None


def is_identifier(name: str) -> bool:
    """Whether a name may be one of C's."""
    return re.fullmatch(r"[a-zA-Z][0-9a-zA-Z_]*", name) is not None and not _is_reserved(name)


def render_header(name: str, functions: Sequence[CFunction], codes: dict[str, tuple[int, str]], about: str) -> str:
    """The header of a library: status codes by name, with a number and a meaning, then the functions."""
    return "\n".join(_header_lines(name.upper(), functions, codes, about)) + "\n"


def _header_lines(
    name: str, functions: Sequence[CFunction], codes: dict[str, tuple[int, str]], about: str
) -> Iterator[str]:
    yield f"/* {about}\n *"
    yield " * Arrays are row-major and contiguous. What is written must not overlap anything else. Functions keep"
    yield " * nothing between calls, so several threads may call them at once. They return one of the codes below; what"
    yield " * they wrote is of no use unless it is the first.\n */"
    yield f"#ifndef PULLBACK_{name}_H\n#define PULLBACK_{name}_H\n"
    yield '#include <stdbool.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern "C" {\n#endif\n'
    yield "enum {"
    for code, (number, meaning) in codes.items():
        yield f"    {name}_{code} = {number}, /* {meaning} */"
    yield "};\n"
    for function in functions:
        yield f"{function.render()}\n"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"
