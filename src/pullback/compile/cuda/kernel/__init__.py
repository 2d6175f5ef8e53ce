"""A kernel of the loop language as functions of CUDA C, and their launches."""
