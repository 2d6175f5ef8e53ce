"""An elementwise program in, LLVM text out: the scalar vocabulary `k` in which op records say their kernels.

This is the proof that a record carries its kernel; fusing, vectorising and linking are the compiler's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..ops.specialise import Symbol
from .program import Program

__all__ = ["LlvmScalars", "render_loop"]

_INTRINSIC = {
    "exp": "exp",
    "log": "log",
    "sin": "sin",
    "cos": "cos",
    "sqrt": "sqrt",
    "abs": "fabs",
    "power": "pow",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
    "copysign": "copysign",
}
_LIBM = {
    "expm1": "expm1", "log1p": "log1p", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asin": "asin",
    "acos": "acos", "atan": "atan", "atan2": "atan2", "erf": "erf",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "exp2": "exp2",
    "log2": "log2", "log10": "log10", "cbrt": "cbrt", "hypot": "hypot", "fmod": "fmod", "nextafter": "nextafter",
    "fmax": "fmax", "fmin": "fmin",
}  # fmt: skip
_ARITHMETIC = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_COMPARE = {
    "equal": "oeq",
    "not_equal": "une",
    "less": "olt",
    "less_equal": "ole",
    "greater": "ogt",
    "greater_equal": "oge",
}


class LlvmScalars:
    """Scalar code on doubles: each word appends a line and answers the name of its result. Truth is 0.0 or 1.0."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()

    def emit(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def constant(self, number: Any) -> str:
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"

    def _call(self, function: str, *scalars: str) -> str:
        self.declared.add(f"declare double @{function}({', '.join(['double'] * len(scalars))})")
        return self.emit(f"call double @{function}({', '.join('double ' + s for s in scalars)})")

    def _truth(self, condition: str) -> str:
        return self.emit(f"uitofp i1 {condition} to double")

    def _holds(self, x: str) -> str:
        return self.emit(f"fcmp une double {x}, {self.constant(0)}")

    def negative(self, x: str) -> str:
        return self.emit(f"fneg double {x}")

    def positive(self, x: str) -> str:
        return x

    conj = real = stop_gradient = positive

    def imag(self, x: str) -> str:
        return self.constant(0)

    def square(self, x: str) -> str:
        return self.multiply(x, x)

    def select(self, condition: str, x: str, y: str) -> str:
        return self.emit(f"select i1 {self._holds(condition)}, double {x}, double {y}")

    def maximum(self, x: str, y: str) -> str:
        return self._call("llvm.maximum.f64", x, y)

    def minimum(self, x: str, y: str) -> str:
        return self._call("llvm.minimum.f64", x, y)

    def relu(self, x: str) -> str:
        return self.maximum(x, self.constant(0))

    def sigmoid(self, x: str) -> str:
        return self.divide(self.constant(1), self.add(self.constant(1), self.exp(self.negative(x))))

    def logaddexp(self, x: str, y: str) -> str:
        gap = self.negative(self.abs(self.subtract(x, y)))
        return self.add(self.maximum(x, y), self.log1p(self.exp(gap)))

    def sign(self, x: str) -> str:
        up, down = self.greater(x, self.constant(0)), self.less(x, self.constant(0))
        return self.select(self.isnan(x), x, self.subtract(up, down))

    def heaviside(self, x: str, y: str) -> str:
        away = self.select(self.isnan(x), x, self.greater(x, self.constant(0)))
        return self.select(self.equal(x, self.constant(0)), y, away)

    def isnan(self, x: str) -> str:
        return self._truth(self.emit(f"fcmp uno double {x}, {x}"))

    def isinf(self, x: str) -> str:
        return self.equal(self.abs(x), self.constant(float("inf")))

    def isfinite(self, x: str) -> str:
        return self.less(self.abs(x), self.constant(float("inf")))

    def logical_not(self, x: str) -> str:
        return self.equal(x, self.constant(0))

    def logical_and(self, x: str, y: str) -> str:
        return self._truth(self.emit(f"and i1 {self._holds(x)}, {self._holds(y)}"))

    def logical_xor(self, x: str, y: str) -> str:
        return self._truth(self.emit(f"xor i1 {self._holds(x)}, {self._holds(y)}"))

    def signbit(self, x: str) -> str:
        return self.less(self.copysign(self.constant(1), x), self.constant(0))

    def logical_or(self, x: str, y: str) -> str:
        return self._truth(self.emit(f"or i1 {self._holds(x)}, {self._holds(y)}"))

    def __getattr__(self, word: str) -> Callable[..., str]:
        """The words that are one instruction or one call."""
        if word in _ARITHMETIC:
            return lambda x, y: self.emit(f"{_ARITHMETIC[word]} double {x}, {y}")
        if word in _COMPARE:
            return lambda x, y: self._truth(self.emit(f"fcmp {_COMPARE[word]} double {x}, {y}"))
        if word in _INTRINSIC:
            return lambda *scalars: self._call(f"llvm.{_INTRINSIC[word]}.f64", *scalars)
        if word in _LIBM:
            return lambda *scalars: self._call(_LIBM[word], *scalars)
        raise AttributeError(word)


def render_loop(program: Program, name: str = "kernel") -> str:
    """One loop over n doubles: pointers to the inputs, then to the output, then n."""
    k = LlvmScalars()
    known: dict[int, str] = {}
    for i, symbol in enumerate(program.inputs):
        place = k.emit(f"getelementptr double, ptr %in{i}, i64 %i")
        known[id(symbol)] = k.emit(f"load double, ptr {place}")
    for equation in program.equations:
        if equation.op.kernel is None:
            raise ArgumentError(f"{equation.op.name} has no scalar kernel.")
        scalars = [known[id(a)] if isinstance(a, Symbol) else k.constant(a) for a in equation.args]
        known[id(equation.results[0])] = equation.op.kernel(k, *scalars)
    place = k.emit("getelementptr double, ptr %out, i64 %i")
    pointers = ", ".join([f"ptr %in{i}" for i in range(len(program.inputs))] + ["ptr %out"])
    return "\n".join([
        *sorted(k.declared),
        f"define void @{name}({pointers}, i64 %n) {{",
        "entry:", "  %any = icmp sgt i64 %n, 0", "  br i1 %any, label %loop, label %done",
        "loop:", "  %i = phi i64 [0, %entry], [%next, %loop]",
        *k.lines,
        f"  store double {known[id(program.outputs[0])]}, ptr {place}",
        "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %n", "  br i1 %more, label %loop, label %done",
        "done:", "  ret void", "}",
    ])  # fmt: skip
