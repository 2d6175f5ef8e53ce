"""Attention: the scaled dot product, its weights, blocks of queries, positions."""
