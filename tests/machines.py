"""The CPU as a target with other limits, so that small programs meet what large ones do."""

from dataclasses import replace

from pullback.compile.cpu import target

__all__ = ["IN_BLOCKS", "cpu_with"]

#: Every kernel that can be cut is cut, however short.
IN_BLOCKS = {"min_program_ns": 0.0, "min_step_ns": 0.0, "min_block_ns": 1e-9}


def cpu_with(monkeypatch, **limits):
    """Have programs compiled for a CPU with other limits; returns that target."""
    found = target.make_cpu_target(replace(target.cpu_target().limits, **limits))
    monkeypatch.setattr(target, "cpu_target", lambda: found)
    return found
