"""Buckets: arrays that travel together, in the order in which a backward pass completes them."""

from __future__ import annotations

from collections.abc import Sequence

#: Bytes of a bucket, and of the first one, which is sent while most of the backward pass is still to come.
BUCKET_MB, FIRST_MB = 25.0, 1.0


def make_buckets(sizes: Sequence[int], order: Sequence[int], bucket_mb: float) -> list[list[int]]:
    """Numbers of arrays of some bytes, in an order, grouped into buckets."""
    limit = min(FIRST_MB, bucket_mb) * 2**20
    buckets: list[list[int]] = []
    held = limit
    for number in order:
        if held >= limit or not buckets:
            if len(buckets) == 1:
                limit = bucket_mb * 2**20
            buckets.append([])
            held = 0
        buckets[-1].append(number)
        held += sizes[number]
    return buckets
