"""The GPU's target: the loop language as CUDA C, launched as one CUDA graph a call."""
