"""Runs ONNX models by onnxruntime in a process of its own: `run(programs)` of (model, arrays) returns the results of
each, None where it has no kernel for some node.

It starts threads, and a fault in its code ends the process: neither is for the process of other tests.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys


def is_available():
    return importlib.util.find_spec("onnxruntime") is not None


def run(programs):
    """The results of each model, as arrays."""
    command = [sys.executable, "-W", "ignore", __file__]
    child = subprocess.run(command, input=pickle.dumps(programs), capture_output=True, check=False, timeout=300)
    assert child.returncode == 0, (child.returncode, child.stderr.decode()[-3000:])
    return pickle.loads(child.stdout)


def main():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    missing, found = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, []
    for model, arrays in pickle.load(sys.stdin.buffer):
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except missing:
            found.append(None)
            continue
        names = [x.name for x in session.get_inputs()]
        found.append(session.run(None, dict(zip(names, arrays, strict=True))))
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
