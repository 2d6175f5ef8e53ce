"""A whole program as LLVM text: its steps in order, control flow, calls for threads."""
