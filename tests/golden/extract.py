"""The full reference derivatives in, the cases of the ops we have out (`data/`, a small subset of the same format).

    python -m tests.golden.extract SOURCE

SOURCE holds `torch_ops_f64.json.gz` and `torch_ops_f64.npz`: derivatives recorded from PyTorch over its own operator
samples. A case is kept when `names.py` maps its op. An array is `[dtype, offset, shape]` into the npz member of that
dtype; equal arrays are stored once.
"""

import argparse
import gzip
import json
import math
from pathlib import Path

import numpy as np

from .names import ours

DATA = Path(__file__).parent / "data"
STEM = "torch_ops_f64"


class Packer:
    """Array references of the source in, references into the smaller store out."""

    def __init__(self, source):
        self.source = source
        self.parts = {}
        self.lengths = {}
        self.seen = {}

    def repack(self, reference):
        dtype, offset, shape = reference
        flat = self.source[dtype][offset : offset + math.prod(shape)]
        key = dtype, flat.tobytes()
        if key not in self.seen:
            self.seen[key] = self.lengths.get(dtype, 0)
            self.parts.setdefault(dtype, []).append(flat)
            self.lengths[dtype] = self.seen[key] + flat.size
        return [dtype, self.seen[key], shape]

    def walk(self, part):
        """A copy of a case, or a part of one, with each array reference repacked."""
        if is_reference(part):
            return self.repack(part)
        if isinstance(part, dict):
            return {key: self.walk(value) for key, value in part.items()}
        return [self.walk(value) for value in part] if isinstance(part, list) else part

    def arrays(self):
        return {dtype: np.concatenate(parts) for dtype, parts in self.parts.items()}


def is_reference(part):
    return isinstance(part, list) and len(part) == 3 and isinstance(part[0], str) and isinstance(part[2], list)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help=f"folder with {STEM}.json.gz and {STEM}.npz")
    folder = parser.parse_args().source
    with gzip.open(folder / f"{STEM}.json.gz", "rt") as file:
        reference = json.load(file)
    with np.load(folder / f"{STEM}.npz") as file:
        packer = Packer(dict(file))
    kept = [packer.walk(case) for case in reference["cases"] if ours(case["op"], case["variant"])]
    text = json.dumps({"torch": reference["torch"], "cases": kept}, separators=(",", ":"))
    DATA.mkdir(exist_ok=True)
    (DATA / "cases.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    np.savez_compressed(DATA / "arrays.npz", **packer.arrays())
    size = sum(path.stat().st_size for path in DATA.iterdir())
    print(f"{len(kept)} of {len(reference['cases'])} cases, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
