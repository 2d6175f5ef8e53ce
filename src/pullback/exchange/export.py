"""`to_onnx`, `to_stablehlo` and `to_dot`: programs, or functions with example arguments, as files of other systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..arrays.files import name_of_path
from ..arrays.tensor import Tensor
from ..errors import ArgumentError, ExportError
from ..ops.replay.reach import Reach
from ..ops.replay.streams import Streams
from ..program.ir import Program
from ..program.passes import drop_unused, fold_constants, merge_equal
from ..saving.atomic_write import write_atomically
from ..settings import override_modes
from ..tools.drawing import draw
from ..transforms.stage import stage
from .complex_pairs import PairWriter
from .equations import ProgramWriter
from .graph_writer import Ref
from .mlir_text import names_of, type_of, types_of
from .onnx_model import encode_model
from .onnx_weights import Weights
from .onnx_writer import OnnxWriter
from .stablehlo_writer import StableHloWriter


def as_program(what: str, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """A program as it is; a function staged on examples, with the user's line of each op."""
    if isinstance(f, Program):
        if args or kwargs:
            raise ArgumentError(f"{what}: a program has its arguments' shapes already, so no examples are given.")
        return f
    if not callable(f):
        raise ArgumentError(f"{what}: wants a program or a function with example arguments, got a {type(f).__name__}.")
    if any(isinstance(x, (str, os.PathLike)) for x in args):
        raise ArgumentError(
            f"{what}: an example is a path, wanted arrays.\n  Examples come one after the other, a file is path=: "
            f"{what}(f, x, y, path=...)."
        )
    with override_modes(locates=True):
        return stage(f)(*args, **kwargs)


@contextmanager
def refuse_draws(what: str, f: Any) -> Iterator[None]:
    """Raise if a function draws random numbers while it is staged, which would be constants of what is exported."""
    streams = Streams(() if isinstance(f, Program) else Reach((f,)).generators, ())
    with streams.record():
        yield
    if streams.were_used:
        raise ExportError(
            f"{what}: the function draws random numbers, which would be the same at each run of what is exported.\n"
            "  Pass a key in: f(x, key) with pb.random.normal(..., key=key). A network with dropout: net.eval().",
            why="it draws random numbers",
        )


def simplify_for_export(program: Program) -> Program:
    """The program without what is computed twice, never used, or known."""
    for run in (fold_constants, merge_equal, drop_unused):
        program = run(program)
    return program


def to_onnx(
    f: Program | Callable[..., Any],
    *args: Any,
    path: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    external_data: bool = False,
    **kwargs: Any,
) -> bytes:
    """A program, or a function staged on example arguments, as an ONNX model: its bytes, and a file if a path is given.

    Shapes are those of the examples. An op without an equivalent raises `pb.errors.ExportError`. With
    `external_data=True` all but small arrays go into a file beside `path`, as those of models of 2 GB and more must.

    >>> import numpy as np, pullback as pb
    >>> model = pb.exchange.to_onnx(lambda x, w: pb.tanh(x @ w), np.ones((2, 3)), np.ones((3, 4)))
    >>> model[:2], b"Tanh" in model
    (b'\\x08\\x08', True)
    """
    with refuse_draws("to_onnx", f):
        program = simplify_for_export(as_program("to_onnx", f, args, kwargs))
    taken = _names("x", input_names, len(program.inputs), "input_names")
    returned = _names("y", output_names, len(program.outputs), "output_names")
    if shared := sorted({*taken} & {*returned}):
        raise ArgumentError(f"to_onnx: an input and an output are both called {shared[0]!r}; names are used once.")
    target = None if path is None else Path(os.path.realpath(name_of_path(path, "to_onnx")))
    if external_data and target is None:
        raise ArgumentError(
            "to_onnx: external_data=True writes a file beside the model.\n  Give the path of the model."
        )
    writer, weights = OnnxWriter((*taken, *returned)), Weights(target, external_data)
    inputs = [Ref(name, s.spec.shape, s.spec.dtype) for name, s in zip(taken, program.inputs, strict=True)]
    for spec in (*program.input_specs, *program.output_specs):
        if spec.dtype.kind == "c":
            raise ExportError(
                f"to_onnx: an argument or a result is {spec}, and runtimes have no complex numbers. Inside they are "
                "pairs.\n  Take and return the parts: x + 1j * y, pb.real(z), pb.imag(z).",
                why="complex arguments and results",
            )
    found = ProgramWriter(PairWriter(writer)).write(program, inputs)
    outputs = []
    for name, x in zip(returned, found, strict=True):
        outputs.append(Ref(name, x.shape, x.dtype))
        writer.emit("Identity", [x], outputs[-1:])
    model = encode_model(writer.encode(inputs, outputs, weights))
    if target is not None:
        weights.write()
        write_atomically(target, [model], "to_onnx")
        weights.remove_old()
    return model


def _names(letter: str, given: Sequence[str] | None, count: int, what: str) -> list[str]:
    """Names of inputs or outputs: those given, or a letter and a number."""
    if given is None:
        return [f"{letter}{i}" for i in range(count)]
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != count or len(set(names)) != count or not all(isinstance(n, str) and n for n in names):
        raise ArgumentError(f"to_onnx: {what} wants {count} different names, got {names!r}.")
    if any("\ud800" <= c <= "\udfff" for name in names for c in name):
        raise ArgumentError(f"to_onnx: a name in {what} holds half a character (a lone surrogate), which no file can.")
    return names


def to_stablehlo(f: Program | Callable[..., Any], *args: Any, path: Any = None, **kwargs: Any) -> str:
    """A program, or a function staged on example arguments, as MLIR text of the StableHLO dialect: a module with the
    function `main`; a file too if a path is given.

    Shapes are those of the examples. An op without an equivalent raises `pb.errors.ExportError`.

    >>> import numpy as np, pullback as pb
    >>> print(pb.exchange.to_stablehlo(pb.tanh, np.ones((2, 3))))
    module @program {
      func.func public @main(%x0: tensor<2x3xf64>) -> (tensor<2x3xf64>) {
        %v0 = stablehlo.tanh %x0 : tensor<2x3xf64>
        func.return %v0 : tensor<2x3xf64>
      }
    }
    <BLANKLINE>
    """
    with refuse_draws("to_stablehlo", f):
        program = simplify_for_export(as_program("to_stablehlo", f, args, kwargs))
    writer = StableHloWriter()
    inputs = [Ref(f"%x{i}", s.spec.shape, s.spec.dtype) for i, s in enumerate(program.inputs)]
    outputs = ProgramWriter(writer).write(program, inputs)
    taken = ", ".join(f"{x.name}: {type_of(x)}" for x in inputs)
    end = f"func.return {names_of(outputs)} : {types_of(outputs)}" if outputs else "func.return"
    lines = [f"  func.func public @main({taken}) -> ({types_of(outputs)}) {{", *writer.constants, *writer.regions[0]]
    text = "\n".join(["module @program {", *lines, f"    {end}", "  }", "}", ""])
    if path is not None:
        write_atomically(path, [text.encode()], "to_stablehlo")
    return text


def to_dot(x: Any, /, *args: Any, path: Any = None, names: Mapping[str, Tensor] | None = None) -> str:
    """The program behind a tensor (its tape), a program, or that of a function at example arguments, compiled or not,
    as DOT text, which graphviz draws; a file too if a path is given. Leaves of a tape are shown by their `names`.

    >>> import numpy as np, pullback as pb
    >>> text = pb.exchange.to_dot(lambda x: pb.sum(pb.sin(x)), np.ones(3))
    >>> print(text[:17], text.count("->"))
    digraph program { 3
    """
    text = draw(x, *args, form="dot", names=names)
    if path is not None:
        write_atomically(path, [text.encode()], "to_dot")
    return text
