"""The CPU target: programs as LLVM text, linked in this process; the user's machine needs no compiler."""

from ...public_names import hide_module

# `pb.compile` is a name of PyTorch's; without this it would be the compiler's package once that is loaded. All parts of
# the compiler that are imported from outside lead here.
hide_module("pullback", "compile")
