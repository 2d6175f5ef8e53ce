"""Mutants of the machinery around a call that no judge can see, and why."""

__all__ = ["EXPLAINED_CALLS"]

#: As EXPLAINED.
EXPLAINED_CALLS: dict[str, str] = {
    "compile.cpu.runtime.link load_code: left out: engine.finalize_object()": (
        "what llvmlite asks for; LLVM does it by itself when an address is asked for"
    ),
    "program.hoist hoist: operand dropped: is_array(x.value)": "what an untracked tensor wraps stands for it",
    "compile.specialization Specialization.as_op: comparison: self.limit is None": (
        "what is kept, and what is computed again"
    ),
    "compile.specialization Specialization.run: operand dropped: ()": (
        "said for the type checker: the state of a current form can be read"
    ),
    "compile.stage.trace _restore_rebound_tensors: operand dropped: []": (
        "said for the type checker: a scope that ran has its list"
    ),
}
