"""Random programs compiled for the GPU against the CPU: values, gradients and updates of the tests' generators. In half
types, where each rounding counts, against NumPy op by op, within the noise of the roundings on the way.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from arena import arrays_for, last_lines, machine, plain

import pullback as pb

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from random_programs import program, scalar_of, updated


def flat(results: object, to_numpy: Callable) -> list[np.ndarray]:
    leaves = pb.tree.leaves(results)
    return [np.asarray(to_numpy(plain(a))) for a in leaves]


def cases(seed: int) -> Iterator[tuple[str, Callable, list[np.ndarray], object]]:
    """The function of a seed, its gradient, and for some seeds a donated update: name, function, arguments, donated."""
    f, args = program(seed)
    yield "value", f, args, ()
    yield "gradient", pb.grad(scalar_of(f), tuple(range(len(args)))), args, ()
    if seed % 5 == 0:
        rng = np.random.default_rng([seed, 2])
        yield "update", updated(seed), [rng.normal(size=(6, 6)) * 0.4 for _ in range(4)], (0, 1, 2)


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest finite number; infinities and NaN must be the same."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise AssertionError(f"{found.dtype}{found.shape} where the CPU has {wanted.dtype}{wanted.shape}")
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    if not finite.any():
        return 0.0
    largest = max(float(np.abs(wanted[finite]).max()), 1.0)
    return float(np.abs(found[finite].astype(float) - wanted[finite]).max()) / largest


def compare(f: Callable, args: list[np.ndarray], donated: object, device: str) -> float:
    to_device, to_numpy, wait = arrays_for(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = flat(pb.jit(f)(*args), np.asarray)
        found = pb.jit(f, donate_argnums=donated)(*[to_device(a) for a in args])
        wait()
    return max((off(a, b) for a, b in zip(flat(found, to_numpy), wanted, strict=True)), default=0.0)


def judge(f: Callable, args: list[np.ndarray], donated: object, device: str, dtype: str) -> None:
    """Raises where the results in a half type differ by more than rounding explains."""
    to_device, _, wait = arrays_for(device)
    narrow = [to_device(np.ascontiguousarray(a).astype(getattr(pb, dtype))) for a in args]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        pb.jit(f, donate_argnums=donated, check=True)(*narrow)
        wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--dtype", default="", choices=("", "bfloat16", "float16"), help="half types; else float32, 64")
    parser.add_argument("--seconds", type=float, default=240.0, help="stops after so long and says how far it came")
    options = parser.parse_args()
    print(machine(options.device))
    begin, tried, faults = perf_counter(), 0, Counter()
    for seed in range(options.start, options.start + options.count):
        if perf_counter() - begin > options.seconds:
            break
        for name, f, args, donated in cases(seed):
            limit = 1e-4 if args and args[0].dtype == np.float32 else 1e-9
            try:
                if options.dtype:
                    judge(f, args, donated, options.device, options.dtype)
                    continue
                error = compare(f, args, donated, options.device)
                if not error <= limit:
                    raise AssertionError(f"off by {error:.1e}")
            except Exception as error:
                faults[last_lines(error)[:90]] += 1
                if faults.total() <= 30:
                    print(f"seed {seed}, {name}: {last_lines(error)}", flush=True)
        tried += 1
    print(f"{tried} programs, {faults.total()} faults, {perf_counter() - begin:.0f} s")
    for kind, count in faults.most_common(12):
        print(f"  {count} x {kind}")


if __name__ == "__main__":
    main()
