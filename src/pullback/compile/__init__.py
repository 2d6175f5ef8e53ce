"""The compiler: a graph is lowered to steps, scheduled, rendered as LLVM text and run by one native call."""
