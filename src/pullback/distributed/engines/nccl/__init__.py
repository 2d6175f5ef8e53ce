"""Ranks whose arrays are on GPUs: NCCL moves them, through CuPy's binding; all else is the world of processes'."""
