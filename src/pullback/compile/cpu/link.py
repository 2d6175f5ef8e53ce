"""LLVM text in, addresses of native functions out."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import ArgumentError
from .blas import blas_function
from .entry import symbols
from .parallel import PARALLEL
from .pool import POOL
from .products import SYMBOLS

__all__ = ["Linked", "has_llvm", "link", "vector_bytes"]


class Linked:
    """Machine code that lives as long as this object."""

    def __init__(self, engine: Any, names: list[str]) -> None:
        self.engine = engine
        self.addresses = {name: engine.get_function_address(name) for name in names}


def has_llvm() -> bool:
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def _llvm() -> Any:
    """The LLVM of llvmlite, ready for this machine and with the BLAS's functions known to it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for symbol, name in SYMBOLS.items():
        llvm.add_symbol(symbol, blas_function(name))
    for symbol, address in {**symbols(), **POOL.symbols()}.items():
        llvm.add_symbol(symbol, address)
    return llvm


def _machine(llvm: Any) -> Any:
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


@functools.cache
def vector_bytes() -> int:
    """The width of this machine's vectors."""
    features = _llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


def link(text: str, names: list[str]) -> Linked:
    """Optimise a module and load it into this process."""
    return loaded(object_code(text), names)


def object_code(text: str) -> bytes:
    """LLVM text as relocatable machine code of this processor."""
    machine, module = _optimised(text)
    code: bytes = machine.emit_object(module)
    return code


def assembly(text: str) -> str:
    """LLVM text as this processor's assembly."""
    machine, module = _optimised(text)
    return str(machine.emit_assembly(module))


def _optimised(text: str) -> tuple[Any, Any]:
    llvm = _llvm()
    machine = _machine(llvm)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise ArgumentError(f"the generated code is not valid LLVM; please report this.\n  {error}") from error
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine, module


def loaded(code: bytes, names: list[str]) -> Linked:
    """Machine code brought into this process, its references resolved."""
    llvm = _llvm()
    if PARALLEL.encode() in code and PARALLEL not in names:
        for name, address in POOL.entries(link).items():
            llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Linked(engine, names)
