"""The program as LLVM text, linked in this process: no compiler on the user's machine."""
