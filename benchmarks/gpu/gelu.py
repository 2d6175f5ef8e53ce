"""`gelu(1.5 x + 0.5)` of 64M float32 elements, and its pullback of a given cotangent: bound by memory."""

from functools import partial

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    x, bar = (rng.standard_normal(1 << 16 if small else 64 << 20, dtype="f4") for _ in range(2))
    return [x], bar


def shifted(gelu, parameters):
    return gelu(parameters[0] * 1.5 + 0.5)


def in_torch():
    import torch

    return partial(shifted, torch.nn.functional.gelu)


def in_jax():
    import jax

    return partial(shifted, partial(jax.nn.gelu, approximate=False))


TITLE = "gelu(ax+b) 64M float32, both ways"
ROWS = (Workload("gelu", TITLE, data, partial(shifted, pb.gelu), in_torch, in_jax, 265, is_array=True, tolerance=1e-4),)

if __name__ == "__main__":
    main(__doc__, ROWS)
