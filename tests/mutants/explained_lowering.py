"""Mutants of lowering that no judge can see, and why."""

__all__ = ["LOWERING"]

LOWERING: dict[str, str] = {
    "compile.lower.views is_view: operand dropped: not isinstance(op.form, Gather | None)": (
        "spares running a sum or a pooling on bytes at compile time to learn that it makes memory of its own"
    ),
}
