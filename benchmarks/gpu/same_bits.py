"""A hundred runs of each row from the same start: the same bits in every result. Also with other work on the device in
between, so that memory comes from other places.
"""

import argparse
import hashlib

import numpy as np
from arena import MAKERS, Workload, arrays_for, choose, free_memory, last_lines, machine
from run_all import ROWS


def digest(results: list[np.ndarray]) -> str:
    found = hashlib.sha256()
    for a in results:
        found.update(np.ascontiguousarray(a).view(np.uint8))
    return found.hexdigest()


def bits(work: Workload, maker: str, runs: int, small: bool, device: str) -> dict[str, int]:
    """How often each outcome was seen. A row whose results are large is looked at in some runs only."""
    data = work.data(small)
    made = MAKERS[maker](work, data, device)
    to_device, _, _ = arrays_for(device)
    seen: dict[str, int] = {}
    rng = np.random.default_rng(0)
    weight = sum(a.nbytes for a in data[0])
    runs = max(min(runs, (4 << 30) // max(weight, 1)), 5)
    with made.around():
        for _ in range(runs):
            made.reset()
            held = to_device(np.empty(int(rng.integers(1, 1 << 20)), np.uint8))  # later blocks lie elsewhere
            made.run()
            found = digest(made.results())
            seen[found] = seen.get(found, 0) + 1
            del held
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rows", default="")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ours", default="jit", help="of eager,jit,tf32, by commas")
    options = parser.parse_args()
    print(machine(options.device))
    for work in choose(ROWS, options.rows):
        for kind in options.ours.split(","):
            try:
                seen = bits(work, f"pullback {kind}", options.runs, options.device == "cpu", options.device)
                verdict = "same bits" if len(seen) == 1 else f"{len(seen)} OUTCOMES {sorted(seen.values())}"
                print(f"{work.name}, {kind}: {sum(seen.values())} runs, {verdict}", flush=True)
            except Exception as error:
                print(f"{work.name}, {kind}: FAILED {last_lines(error)}", flush=True)
            free_memory(options.device)


if __name__ == "__main__":
    main()
