"""`import pullback` against `import numpy`, each in a fresh interpreter, taking turns; the least of many.

The limit: 1.5 times the time of NumPy's import.
"""

import math
import os
import subprocess
import sys

from contest import OURS, Limit, machine, report, start

CODE = "from time import perf_counter as now; begin = now(); import {}; print(now() - begin)"


def seconds_to_import(module):
    """The time the import statement takes in a new process that may keep compiled bytecode."""
    command = [sys.executable, "-c", CODE.format(module)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main():
    options = start(__doc__)
    print(machine())
    best = {OURS: math.inf, "numpy": math.inf}
    for _ in range(5 if options.quick else 40):
        for module in best:
            best[module] = min(best[module], seconds_to_import(module))
    report("import, fresh interpreter", best, (Limit("numpy", 1.5),), reference="numpy")


if __name__ == "__main__":
    main()
