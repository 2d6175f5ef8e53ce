"""LLVM text: the builder, vector types, functions, and words of several instructions."""
