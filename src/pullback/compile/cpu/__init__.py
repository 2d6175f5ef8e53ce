"""The CPU target: programs as LLVM text, linked in this process; the user's machine needs no compiler."""
