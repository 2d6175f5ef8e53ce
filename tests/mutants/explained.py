"""Mutants that no judge can see, and why: they change how fast code is, how it is shown, or nothing at all."""

__all__ = ["EXPLAINED", "OPEN"]

#: The beginning of a mutant's description (module function: kind: text), and the reason.
EXPLAINED: dict[str, str] = {}
#: Survivors of the sample that are neither caught nor explained yet, by their keys.
OPEN: tuple[str, ...] = ()
