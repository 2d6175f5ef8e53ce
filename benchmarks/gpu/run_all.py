"""All rows in one run and one table: the figures of pullback on a GPU beside PyTorch's and JAX's."""

import attention
import batch_norm
import cnn
import cross_entropy
import gelu
import lstm
import mlp
import tanh_chain
import transformer
from arena import main

MODULES = (tanh_chain, mlp, gelu, cnn, transformer, cross_entropy, lstm, batch_norm, attention)
ROWS = tuple(row for module in MODULES for row in module.ROWS)

if __name__ == "__main__":
    main(__doc__, ROWS)
