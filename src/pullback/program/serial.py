"""Programs as JSON, and back. Symbols are numbered in the order of their definition, constants are in a table.

Reading evaluates nothing, makes no array whose bytes are not in the text, and rejects what it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.spec import Spec, spec_of
from ..errors import ArgumentError
from ..ops.index.normalize import SLOT
from .encoding import (
    LEAF_MARKER,
    OPAQUE,
    WEAK_TYPES,
    check_arguments,
    closed_scope,
    decode_array,
    find_op,
    is_constant,
    ops_by_name,
    spec_from,
    structure_from,
    template_of,
    to_base64,
)
from .ir import Equation, Program, Symbol, nested_programs

_FORMAT, _VERSION = "pullback graph", 1


def program_to_json(program: Program) -> str:
    """The program as JSON text; what cannot be written (a function, a tracked tensor) is an error."""
    writer = _JsonWriter()
    routines = []
    for number, routine in enumerate(nested_programs(program.equations)):
        routines.append(writer.program(routine))
        writer.routines[id(routine)] = number
    data = {"routines": routines} if routines else {}
    return json.dumps({
        "format": _FORMAT, "version": _VERSION, **data, **writer.program(program),
        "arguments": writer.structure(program.arguments, len(program.inputs), "arguments"),
        "results": writer.structure(program.results, len(program.outputs), "results"),
        "constants": writer.constants,
    }, allow_nan=False)  # fmt: skip


class _JsonWriter:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self.routines: dict[int, int] = {}
        self.constants: list[dict[str, Any]] = []

    def program(self, program: Program) -> dict[str, Any]:
        """Inputs, equations and outputs; symbols are numbered in each program separately."""
        outside, self.numbers = self.numbers, {}
        inputs = [self.number_symbol(s) for s in program.inputs]
        equations = []
        for number, e in enumerate(program.equations):
            where = f"to_json: equation {number}, {e.op.name}"
            args = [self.value(a, where) for a in e.args]
            static = {k: self.value(v, f"{where}, {k}") for k, v in e.static.items()}
            results = [*map(self.number_symbol, e.results)]
            equations.append({"op": e.op.name, "args": args, "static": static, "results": results})
        outputs = [self.value(o, "to_json: an output") for o in program.outputs]
        self.numbers = outside
        return {"inputs": inputs, "equations": equations, "outputs": outputs}

    def number_symbol(self, symbol: Symbol) -> dict[str, Any]:
        self.numbers[id(symbol)] = len(self.numbers)
        return _spec_json(symbol.spec)

    def structure(self, structure: Any, count: int, what: str) -> Any:
        if structure is None:
            return None
        template = template_of(structure, [LEAF_MARKER] * count)
        if template is OPAQUE:
            raise ArgumentError(
                f"to_json: the {what} are {structure}; only tuples, lists, dicts and None can be written.\n"
                "  Stage a function of such containers."
            )
        return {"tree": self.value(template, "to_json")}

    def value(self, v: Any, where: str) -> Any:
        """A value as JSON: what JSON has no type for is a dict of one key that names it."""
        if isinstance(v, np.generic) and v.dtype.kind in "biufc":
            v = v.item()
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": repr(v)}
        if isinstance(v, complex):
            return {"complex": [self.value(v.real, where), self.value(v.imag, where)]}
        if isinstance(v, Symbol) and id(v) in self.numbers:
            return {"value": self.numbers[id(v)]}
        if isinstance(v, np.dtype) and v.name in NAMES:
            return {"dtype": v.name}
        if is_array(v) and is_constant(v):
            return {"constant": self.place(v)}
        if isinstance(v, Program):
            return {"routine": self.routines[id(v)]}
        return self.container(v, where)

    def container(self, v: Any, where: str) -> Any:
        if type(v) is list:
            return [self.value(x, where) for x in v]
        if type(v) is tuple:
            return {"tuple": [self.value(x, where) for x in v]}
        if type(v) is dict:
            return {"dict": [[self.value(k, where), self.value(x, where)] for k, x in v.items()]}
        if isinstance(v, slice):
            return {"slice": [self.value(x, where) for x in (v.start, v.stop, v.step)]}
        for word, mark in _MARKS.items():
            if v is mark:
                return {"mark": word}
        raise ArgumentError(
            f"{where}: an object of class {type(v).__name__} cannot be serialized.\n"
            "  Keep the function that was staged, and stage it again where it is needed."
        )

    def place(self, array: Any) -> int:
        if id(array) not in self.places:
            self.places[id(array)] = len(self.constants)
            self.constants.append({**_spec_json(spec_of(array)), "base64": to_base64(array)})
        return self.places[id(array)]


_MARKS = {"slot": SLOT, "ellipsis": Ellipsis, "star": LEAF_MARKER}


def _spec_json(spec: Spec) -> dict[str, Any]:
    if spec.weak:
        return {"weak": spec.weak.__name__}
    if not isinstance(spec.device, str):
        raise ArgumentError(f"to_json: a value lies on a device that is no name: {spec.device!r}.")
    found: dict[str, Any] = {"dtype": spec.dtype.name, "shape": list(spec.shape)}
    return found if spec.device == "cpu" else {**found, "device": spec.device}


def parse_json(text: str | bytes, ops: Any = ()) -> Program:
    """The program in a JSON text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise ArgumentError(f"from_json: this is no JSON text: {str(error)[:100]}.") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ArgumentError(f"from_json: this is not the JSON of a {_FORMAT}.")
    if data.get("version") != _VERSION:
        raise ArgumentError(f"from_json: version {str(data.get('version'))[:20]} is not known; this reads {_VERSION}.")
    try:
        return _JsonReader(ops_by_name(ops)).whole(data)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ArgumentError(f"from_json: not well formed: {type(error).__name__} {str(error)[:80]}.") from None


class _JsonReader:
    def __init__(self, ops: Mapping[str, Any]) -> None:
        self.ops = ops
        self.scope = closed_scope()
        self.symbols: list[Symbol] = []
        self.constants: list[Any] = []
        self.routines: list[Program] = []

    def whole(self, data: dict[str, Any]) -> Program:
        self.constants = [decode_array(_spec_from(c), _check_text(c["base64"])) for c in data["constants"]]
        for routine in data.get("routines", ()):
            self.routines.append(Program(*self.program(routine)))
        inputs, equations, outputs = self.program(data)
        if data["arguments"] is not None:
            check_arguments(self.value(data["arguments"]["tree"]))
        arguments = self.structure(data["arguments"], len(inputs), "arguments")
        results = self.structure(data["results"], len(outputs), "results")
        return Program(inputs, equations, outputs, arguments, results)

    def program(self, data: dict[str, Any]) -> tuple[Any, ...]:
        outside, self.symbols = self.symbols, []
        inputs = tuple(map(self.symbol, data["inputs"]))
        equations = tuple(map(self.equation, data["equations"]))
        outputs = tuple(self.array(o) for o in data["outputs"])
        self.symbols = outside
        return inputs, equations, outputs

    def symbol(self, data: Any) -> Symbol:
        symbol = Symbol(_spec_from(data), self.scope, [], None)
        self.symbols.append(symbol)
        return symbol

    def equation(self, data: dict[str, Any]) -> Equation:
        args = tuple(self.array(a) for a in data["args"])
        static = {k: self.value(v) for k, v in data["static"].items()}
        return Equation(tuple(map(self.symbol, data["results"])), find_op(self.ops, data["op"]), args, static)

    def structure(self, data: Any, count: int, what: str) -> Any:
        return None if data is None else structure_from(self.value(data["tree"]), count, f"from_json: {what}")

    def array(self, data: Any) -> Any:
        found = self.value(data)
        if not isinstance(found, Symbol) and not is_constant(found):
            raise ArgumentError(f"from_json: a {type(found).__name__} stands where an array should.")
        return found

    def value(self, data: Any) -> Any:
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        if isinstance(data, list):
            return [self.value(x) for x in data]
        if len(data) != 1:
            raise ArgumentError("from_json: a value is a dict of one key.")
        ((word, inner),) = data.items()
        if word == "value":
            return self.symbols[_check_number(inner, len(self.symbols))]
        if word == "constant":
            return self.constants[_check_number(inner, len(self.constants))]
        if word == "routine":
            return self.routines[_check_number(inner, len(self.routines))]
        if word in ("tuple", "dict"):
            found = [self.value(x) for x in inner]
            return tuple(found) if word == "tuple" else _dict_from(found)
        return self.scalar(word, inner)

    def scalar(self, word: str, inner: Any) -> Any:
        if word == "float" and inner in ("nan", "inf", "-inf"):
            return float(inner)
        if word == "complex":
            real, imag = (float(self.value(x)) for x in inner)
            return complex(real, imag)
        if word == "dtype" and inner in NAMES:
            return as_dtype(inner)
        if word == "slice" and len(inner) == 3 and all(x is None or type(x) is int for x in inner):
            return slice(*inner)
        if word == "mark" and inner in _MARKS:
            return _MARKS[inner]
        raise ArgumentError(f"from_json: {word[:40]!r} is no kind of value, or {str(inner)[:40]!r} no value of it.")


def _check_text(x: Any) -> str:
    if not isinstance(x, str):
        raise ArgumentError("from_json: the elements of a constant are in base64.")
    return x


def _check_number(number: Any, count: int) -> int:
    if type(number) is not int or not 0 <= number < count:
        raise ArgumentError(f"from_json: {str(number)[:20]} is the number of nothing made before.")
    return number


def _dict_from(items: list[Any]) -> dict[Any, Any]:
    if not all(type(item) is list and len(item) == 2 and isinstance(item[0], (str, int)) for item in items):
        raise ArgumentError("from_json: a dict is a list of [key, value].")
    return dict(items)


def _spec_from(data: Any) -> Spec:
    if not isinstance(data, dict):
        raise ArgumentError("from_json: a spec is a dict with dtype and shape.")
    if "weak" in data:
        if data["weak"] not in WEAK_TYPES:
            raise ArgumentError(f"from_json: {str(data['weak'])[:20]!r} is no Python number.")
        return spec_of(WEAK_TYPES[data["weak"]]())
    return spec_from(data["dtype"], data["shape"], data.get("device", "cpu"))
