"""Steps in, steps out: their order, cuts, blocks, memory and recomputation."""
