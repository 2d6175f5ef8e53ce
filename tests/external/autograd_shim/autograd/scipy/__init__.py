"""The part of autograd's SciPy that its tests use, in ops of pullback."""
