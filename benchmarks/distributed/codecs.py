"""Codecs, compiled, on one core: milliseconds to encode and to decode a megabyte of float32, without communication.

With error feedback: the residual is added before, and what is not sent is kept. One payload is decoded. A call costs
something whatever the size, here that of an array of 16 KB; what larger ones take beyond it is given a megabyte. Those
that promise it may take 0.15 ms/MB in all. A copy of the array shows what memory alone takes.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))
import numpy as np
from contest import burst, machine, start

from pullback.distributed import codecs
from pullback.distributed.codecs.measurement import rehearse

SIZES_MB = (1, 4, 16)
LIMIT = 0.15
CODECS = {
    "bfloat16": (codecs.bfloat16(), LIMIT),
    "float16": (codecs.float16(), None),
    "int8": (codecs.int8(), LIMIT),
    "int8 per row": (codecs.int8(per="row"), LIMIT),
    "one_bit": (codecs.one_bit(), LIMIT),
    "random_k 1 %": (codecs.random_k(0.01), None),
    "power_sgd 2": (codecs.power_sgd(2), None),
    "top_k 1 %": (codecs.top_k(0.01), None),
    "threshold 1 %": (codecs.threshold(2.0, capacity=0.01), None),
}


def make_array(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f")


def measure(codec, x, seconds):
    """Seconds to encode, with the residual, and to decode."""
    found = rehearse(codec, x, codec.init(x), ranks=1, seconds=seconds)
    return np.array([found.encode, found.decode])


def measure_copy(x):
    target = np.empty_like(x)
    return min(burst(lambda: np.copyto(target, x)) for _ in range(5))


def verdict(total, limit):
    return "" if limit is None else f"{limit:.2f} {'met' if total <= limit else 'missed'}"


def main():
    options = start(__doc__)
    print(machine())
    seconds = 0.1 if options.quick else 2.0
    arrays = {size: make_array(size * 256, 1024) for size in SIZES_MB}
    head = "".join(f"{f'{size} MB: encode + decode, ms/MB':>36s}  {'limit':12s}" for size in SIZES_MB)
    print(f"  {'':14s}{'call us':>8s}{head}")
    copies = "".join(f"{1e3 * measure_copy(x) / size:36.3f}  {'':12s}" for size, x in arrays.items())
    print(f"  {'a copy':14s}{'':8s}{copies}")
    for name, (codec, limit) in CODECS.items():
        codec = codecs.error_feedback(codec)
        fixed = measure(codec, make_array(64, 64), seconds)
        row = f"  {name:14s}{1e6 * fixed.sum():8.0f}"
        for size, x in arrays.items():
            encode, decode = 1e3 * (measure(codec, x, seconds) - fixed) / size
            cell = f"{encode:.3f} + {decode:.3f} = {encode + decode:.3f}"
            row += f"{cell:>36s}  {verdict(encode + decode, limit):12s}"
        print(row.rstrip(), flush=True)


if __name__ == "__main__":
    main()
