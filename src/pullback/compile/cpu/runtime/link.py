"""LLVM text in, addresses of native functions out."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ArgumentError
from ... import cache
from ...computed_once import computed_once
from ...target import ANOTHER_SIZE, COMPILER
from ..linalg.matrix_text import LAPACK_PREFIX
from ..matmul.gemm import SYMBOLS
from ..program.operands import TABLE
from ..program.parallel_call import PARALLEL
from .blas import find_products
from .entry import entry_symbols
from .lapack import find_lapack
from .pool import POOL

#: LLVM's passes over the text, in order. It is emitted in good form (loops that test at their end, every value computed
#: once and outside of the loops it does not depend on), so few passes are needed: LLVM's default pipeline takes seven
#: times as long and makes code of the same speed.
PASSES: tuple[str, ...] = ("always_inliner", "sroa", "instruction_combine", "simplify_cfg")
#: LLVM's optimization levels: of its passes, and of its code generation. Tests of many programs lower them.
EFFORT: tuple[tuple[str, ...], int] = (PASSES, 3)
#: For code that only calls other code.
LEAST_EFFORT: tuple[tuple[str, ...], int] = (("always_inliner",), 0)
#: Machine code that serves several sizes, by its key; the oldest is dropped.
_SHARED: dict[str, bytes] = {}
_MAX_SHARED = 128


class LinkedCode:
    """Machine code that lives as long as this object."""

    def __init__(self, engine: Any, names: list[str], source: str = "") -> None:
        self.engine = engine
        self.source = source
        self.addresses = {name: engine.get_function_address(name) for name in names}


def has_llvm() -> bool:
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    return True


@computed_once
def _initialized_llvm() -> Any:
    """The LLVM of llvmlite, ready for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for symbol, address in {**entry_symbols(), **POOL.symbols()}.items():
        llvm.add_symbol(symbol, address)
    _hold_lock_at_fork(llvm.ffi.lib._lock)
    return llvm


def _hold_lock_at_fork(lock: Any) -> None:
    """Make a fork wait until no thread is inside LLVM: its lock would stay locked in the child for ever."""
    if hasattr(os, "register_at_fork"):
        release = functools.partial(lock.__exit__, None, None, None)
        os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


@functools.cache
def _register_blas() -> None:
    """Register the BLAS with LLVM. It may be SciPy's, which is slow to import, so only programs that call it do."""
    for symbol, name in SYMBOLS.items():
        _initialized_llvm().add_symbol(symbol, find_products().addresses[name])


@functools.cache
def _register_lapack() -> None:
    for name, address in find_lapack().addresses.items():
        _initialized_llvm().add_symbol(f"{LAPACK_PREFIX}{name}", address)


def add_symbol(name: str, address: int) -> None:
    """Make a function known to modules that are loaded from now on."""
    _initialized_llvm().add_symbol(name, address)


@functools.cache
def native_processor() -> tuple[str, str]:
    """LLVM's name of this processor and its features; to ask for them takes as long as to make a machine of them."""
    llvm = _initialized_llvm()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _target_machine(llvm: Any, level: int | None = None) -> Any:
    name, features = native_processor()
    opt = EFFORT[1] if level is None else level
    return llvm.Target.from_default_triple().create_target_machine(cpu=name, features=features, opt=opt)


@functools.cache
def vector_bytes() -> int:
    """The width of this machine's vectors in bytes."""
    features = _initialized_llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


@functools.cache
def converts_float16() -> bool:
    """Whether this machine has instructions between float16 and float32: without them LLVM calls a library."""
    return platform.machine().lower() in ("arm64", "aarch64") or bool(
        _initialized_llvm().get_host_cpu_features().get("f16c")
    )


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether this machine has an instruction that multiplies pairs of bfloat16 and adds them to float32."""
    return bool(_initialized_llvm().get_host_cpu_features().get("avx512bf16"))


def link(text: str, names: list[str], numbers: Sequence[int] = (), effort: Any = None) -> LinkedCode:
    """Optimise a module and load it into this process; if the code is known already, only load it. `numbers` are those
    of its table, by which code for one size differs from code for another. `effort` is LLVM's, else `EFFORT`.
    """
    key = cache.key_of(text, repr(effort or EFFORT), *code_environment())
    source, code = "the disk cache", cache.fetch(key)
    if numbers and key in _SHARED:
        source, code = ANOTHER_SIZE, _SHARED[key]
    if code is None:
        source, code = COMPILER, compile_object(text) if effort is None else compile_object(text, effort)
        cache.store(key, code)
    found = load_code(code, names, source)
    if numbers:
        _SHARED[key] = code
        for oldest in list(_SHARED)[:-_MAX_SHARED]:
            _SHARED.pop(oldest, None)  # another thread may have done it
        table = (ctypes.c_int64 * len(numbers)).from_address(found.engine.get_global_value_address(TABLE))
        table[:] = list(numbers)
    return found


@functools.cache
def code_environment() -> tuple[str, ...]:
    """What machine code depends on besides the text: the packages, Python's and NumPy's objects, the processor."""
    llvm = _initialized_llvm()
    machine = _target_machine(llvm)
    package = sys.modules[__name__.partition(".")[0]]
    versions = (package.__version__, sys.modules["llvmlite"].__version__, llvm.llvm_version_info, np.__version__)
    abi = (sys.implementation.cache_tag, sysconfig.get_config_var("SOABI"), machine.triple)
    return repr(versions), repr(abi), repr(native_processor())


def compile_object(text: str, effort: Any = None) -> bytes:
    """LLVM text as relocatable machine code of this processor."""
    machine, module = _optimize(text, effort or EFFORT)
    code: bytes = machine.emit_object(module)
    return code


def compile_assembly(text: str) -> str:
    """LLVM text as this processor's assembly."""
    machine, module = _optimize(text, EFFORT)
    return str(machine.emit_assembly(module))


def make_export_machine(name: str, features: str) -> Any:
    """The machine for code that another process loads, anywhere in its memory: a processor by LLVM's name."""
    target = _initialized_llvm().Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=EFFORT[1], reloc="pic", codemodel="default")


def optimize_modules(texts: Sequence[str], machine: Any) -> Any:
    """Several texts, whose internal names may be equal, as one optimized module."""
    first, *others = [_optimize(text, EFFORT, machine)[1] for text in texts]
    for module in others:
        first.link_in(module)
    return first


def _optimize(text: str, effort: tuple[tuple[str, ...], int], machine: Any = None) -> tuple[Any, Any]:
    llvm = _initialized_llvm()
    machine = machine or _target_machine(llvm, effort[1])
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise ArgumentError(f"the generated code is not valid LLVM; please report this.\n  {error}") from error
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    passes = llvm.create_new_module_pass_manager()
    for name in effort[0]:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return machine, module


def load_code(code: bytes, names: list[str], source: str = "") -> LinkedCode:
    """Machine code loaded into this process, its references resolved."""
    llvm = _initialized_llvm()
    if any(symbol.encode() in code for symbol in SYMBOLS):  # an object file lists the names it refers to
        _register_blas()
    if LAPACK_PREFIX.encode() in code:
        _register_lapack()
    if PARALLEL.encode() in code and PARALLEL not in names:
        for name, address in POOL.entries(link).items():
            llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return LinkedCode(engine, names, source)
