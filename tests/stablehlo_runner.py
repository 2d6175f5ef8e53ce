"""Runs StableHLO by XLA in a process of its own: `run(programs)` of (text, arrays) returns the results of each.

XLA starts threads, and its package warns when it is imported: neither is for the process of other tests.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys

#: How many programs are compiled as one: each module costs XLA a tenth of a second.
AT_ONCE = 80


def is_available():
    return importlib.util.find_spec("jaxlib") is not None and importlib.util.find_spec("jax") is not None


def run(programs):
    """The results of each program, as arrays."""
    command = [sys.executable, "-W", "ignore", __file__]
    quick = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}
    child = subprocess.run(
        command,
        input=pickle.dumps(programs),
        capture_output=True,
        check=False,
        timeout=600,
        env={**os.environ, **quick},
    )
    assert child.returncode == 0, child.stderr.decode()[-6000:]
    return pickle.loads(child.stdout)


def merge(texts):
    """Programs as functions of one module, whose main takes the arguments of all and returns the results of all."""
    functions, taken, types, calls, returned = [], [], [], [], []
    for number, text in enumerate(texts):
        arguments, results = re.search(r"@main\((.*)\) -> \((.*)\) \{", text).groups()
        names = [f"%a{number}_{i}" for i in range(len(arguments.split(", ")) if arguments else 0)]
        kinds = [a.partition(": ")[2] for a in arguments.split(", ")] if arguments else []
        made = results.split(", ") if results else []
        body = text.replace("func.func public @main", f"func.func private @p{number}")
        functions += body.split("\n")[1:-2]
        taken += [f"{n}: {k}" for n, k in zip(names, kinds, strict=True)]
        head = f"%r{number}:{len(made)} = " if made else ""
        calls.append(f"{head}func.call @p{number}({', '.join(names)}) : ({', '.join(kinds)}) -> ({results})")
        returned += [f"%r{number}#{i}" for i in range(len(made))]
        types += made
    kinds = ", ".join(types)
    main = f"func.func public @main({', '.join(taken)}) -> ({kinds}) {{"
    end = f"func.return {', '.join(returned)} : {kinds}" if types else "func.return"
    return "\n".join(["module @m {", *functions, main, *calls, end, "}", "}"])


def execute(client, jax, text, arrays):
    from jaxlib import xla_client

    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    program = client.compile_and_load(text.encode(), devices, xla_client.CompileOptions())
    found = program.execute_sharded([jax.device_put(x) for x in arrays])
    return [parts[0] for parts in found.disassemble_into_single_device_arrays()]


def main():
    import jax
    import numpy as np
    from jax.extend.backend import get_backend

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    client, found = get_backend("cpu"), []
    programs = pickle.load(sys.stdin.buffer)
    for start in range(0, len(programs), AT_ONCE):
        some = programs[start : start + AT_ONCE]
        try:
            results = execute(client, jax, merge([t for t, _ in some]), [x for _, arrays in some for x in arrays])
        except Exception:
            for text, arrays in some:
                try:
                    execute(client, jax, text, arrays)
                except Exception as error:
                    raise RuntimeError(text) from error
            raise
        at = 0
        for text, _ in some:
            many = len([r for r in re.search(r"-> \((.*)\) \{", text)[1].split(", ") if r])
            found.append([np.asarray(x) for x in results[at : at + many]])
            at += many
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
