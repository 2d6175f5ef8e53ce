"""Compiled functions on a GPU, step by step: what works, what fails and where, and what a call costs.

Prints the first call's time, the largest difference from the CPU and microseconds a call: the best with a
synchronization, the best in a row, and on the host alone. A failure shows the last lines of its traceback.
"""

import argparse
import ctypes
import importlib
import sys
import time
import traceback

import numpy as np
from arena import our_step, plain

import pullback as pb
from pullback.arrays.trees import flatten

MODULES = "tanh_chain,mlp,gelu,cnn,transformer,cross_entropy,lstm,batch_norm,attention"


def attempt(name, f):
    """Run a case; a failure is printed and does not end the others."""
    start = time.perf_counter()
    try:
        found = f()
        print(f"ok    {name}  [{time.perf_counter() - start:.2f} s]  {'' if found is None else found}", flush=True)
    except BaseException as error:
        lines = traceback.format_exception(error)
        print(f"FAIL  {name}  {type(error).__name__}: {str(error)[:1500]}")
        print("      " + "".join(lines[-4:-1]).replace("\n", "\n      "), flush=True)


def best(call, sync, rounds=50, burst=20):
    """Microseconds of one call: the best with a synchronization each, in a row, and until Python has it back."""
    call(), call(), call(), sync()
    alone, host = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
        sync()
        alone.append(time.perf_counter() - begin)
    row = []
    for _ in range(5):
        sync()
        begin = time.perf_counter()
        for _ in range(burst):
            call()
        sync()
        row.append((time.perf_counter() - begin) / burst)
    return tuple(round(min(x) * 1e6, 1) for x in (alone, row, host))


def basics(cp):
    from pullback.compile.cuda.runtime import driver, nvrtc

    d = driver.find_driver(0)
    print("machine", d.machine, "NVRTC", __import__("cupy_backends.cuda.libs.nvrtc", fromlist=["x"]).getVersion())
    text = 'extern "C" __global__ void add1(float* x, int* s) { x[threadIdx.x] += 1; if (x[0] > 2) *s = 1; }'
    attempt("NVRTC", lambda: len(nvrtc.compile_cubin(text, d.architecture, False)[0]))
    module, _ = d.load_module(text, False)
    function = d.find_function(module, "add1", 0)
    x = cp.zeros(32, "float32")
    pinned = cp.cuda.alloc_pinned_memory(64)
    word = np.frombuffer(pinned, np.int32, 1)
    word[:] = 0
    stream = cp.cuda.get_current_stream().ptr
    args = (function, (1, 1, 1), (32, 1, 1), 0, [x.data.ptr, word.ctypes.data])
    attempt("a launch", lambda: (d.launch(*args, stream), float(x[0]))[1])
    made = []
    attempt("a graph", lambda: made.append(d.capture(lambda s: [d.launch(*args, s) for _ in range(5)])))
    attempt("launch it", lambda: (d.launch_graph(made[0], stream), float(x[0]))[1])
    attempt("status word in pinned memory", lambda: (cp.cuda.runtime.deviceSynchronize(), int(word[0]))[1])
    attempt("update it", lambda: d.update_graph(made[0], lambda s: [d.launch(*args, s) for _ in range(5)]))
    attempt("read, write", lambda: (d.write(x.data.ptr, b"\0\0\x80\x3f", stream), d.read(x.data.ptr, 4, stream))[1])
    attempt("time of it", lambda: d.time(lambda: d.launch_graph(made[0], stream)))
    sync = cp.cuda.get_current_stream().synchronize
    attempt("us: launch", lambda: best(lambda: d.launch(*args, stream), sync))
    attempt("us: graph of 5", lambda: best(lambda: d.launch_graph(made[0], stream), sync))
    attempt("us: ndarray()", lambda: best(lambda: cp.ndarray((16,), "float32"), sync))
    attempt("us: current stream", lambda: best(lambda: cp.cuda.get_current_stream().ptr, sync))
    attempt("us: getDevice", lambda: best(cp.cuda.runtime.getDevice, sync))
    attempt("us: x.data.ptr", lambda: best(lambda: x.data.ptr, sync))


def conditionals(cp):
    """Whether a kernel may set the handle of a conditional node: as PTX and as CUDA C."""
    from pullback.compile.cuda.runtime import driver

    d = driver.find_driver(0)
    texts = {
        "declared": 'extern "C" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);\n'
        'extern "C" __global__ void set(unsigned long long h, const bool* p) { cudaGraphSetConditional(h, *p); }'
    }
    from cupy_backends.cuda.libs import nvrtc

    for name, text in texts.items():
        for kind in ("PTX", "CUBIN"):

            def load(text=text, kind=kind):
                program = nvrtc.createProgram(text, "c.cu", (), ())
                arch = d.architecture.replace("sm", "compute") if kind == "PTX" else d.architecture
                nvrtc.compileProgram(program, (f"--gpu-architecture={arch}", "-rdc=true"))
                code = getattr(nvrtc, f"get{kind}")(program)
                code = code.encode() if isinstance(code, str) else code
                module = ctypes.c_void_p()
                d.check(d.slow.cuModuleLoadData(ctypes.byref(module), code))
                return d.find_function(module, "set", 0)

            attempt(f"conditional setter {name} {kind}", load)


def small_cases(cp):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 5)), rng.standard_normal((5, 4))

    def compare(f, *args, **options):
        on_gpu = [cp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        wanted, _ = flatten(pb.jit(f, **options)(*(a.copy() if isinstance(a, np.ndarray) else a for a in args)))
        compiled = pb.jit(f, **options)
        for _ in range(4):
            found, _ = flatten(compiled(*[a.copy() if isinstance(a, cp.ndarray) else a for a in on_gpu]))
        form = compiled.last
        off = max(float(np.max(np.abs(plain(a).get() - b), initial=0)) for a, b in zip(found, wanted, strict=True))
        assert off < 1e-6, f"off by {off}"
        return f"off {off:.1e}, {form.describe_runner()}"

    loss = lambda w, x: pb.sum(pb.tanh(x @ w) ** 2)  # noqa: E731
    cases = {
        "elementwise": lambda: compare(lambda x: pb.tanh(x) * 2 + 1, x),
        "float32": lambda: compare(lambda x: pb.tanh(x) * 2 + 1, x.astype("f4")),
        "sum": lambda: compare(pb.sum, x),
        "softmax": lambda: compare(lambda x: pb.nn.softmax(x, axis=1), x),
        "product": lambda: compare(lambda x, w: x @ w, x, w),
        "product f4": lambda: compare(lambda x, w: x @ w, x.astype("f4"), w.astype("f4")),
        "grad": lambda: compare(pb.grad(loss), w, x),
        "hessian": lambda: compare(pb.hessian(loss), w, x),
        "donated": lambda: compare(lambda w, x: w - 0.1 * pb.grad(loss)(w, x), w, x, donate_argnums=0),
        "gather": lambda: compare(lambda x, i: x[i], x, np.array([0, 5, 2])),
        "scatter": lambda: compare(pb.grad(lambda x, i: pb.sum(x[i] ** 2)), x, np.array([0, 5, 0])),
        "number": lambda: compare(lambda x, a: x * a, x, 2.5),
        "scan": lambda: compare(lambda x: pb.scan(lambda c, r: (c + r, c * r), pb.zeros_like(x[0]), x), x),
        "while": lambda: compare(lambda x: pb.while_loop(lambda a: pb.sum(a * a) < 1e3, lambda a: a * 2, x), x),
        "cond": lambda: compare(lambda x: pb.cond(pb.sum(x) > 0, lambda a: a * 2, lambda a: -a, x), x),
        "host op": lambda: compare(lambda x: pb.sort(pb.sin(x), axis=1) * 2, x),
        "conv": lambda: compare(
            lambda a, b: pb.nn.conv2d(a, b), rng.standard_normal((2, 3, 8, 8)), rng.standard_normal((4, 3, 3, 3))
        ),
        "backward": lambda: backward(cp, loss, w, x),
        "out of range": lambda: out_of_range(cp),
    }  # fmt: skip
    for name, case in cases.items():
        attempt(name, case)


def backward(cp, loss, w, x):
    compiled, wanted = pb.jit(loss), pb.grad(loss)(w, x)
    for _ in range(4):
        t = pb.tensor(cp.asarray(w), requires_grad=True)
        compiled(t, cp.asarray(x)).backward()
    return float(np.max(np.abs(t.grad.numpy() - wanted)))


def out_of_range(cp):
    compiled = pb.jit(lambda x, i: x[i] * 2)
    found = compiled(cp.ones(4), cp.asarray([7, 0]))
    try:
        pb.tensor(found).numpy()
    except IndexError as error:
        return str(error).replace("\n", " ")
    raise AssertionError("no error")


def workload(cp, work, small):
    data = work.data(small)
    step, donate = our_step(work), 0 if work.rate is not None else ()
    wanted = flatten(pb.jit(step)(*data))[0] if small else None
    on_gpu = lambda: [[cp.asarray(a) for a in x] if isinstance(x, list) else cp.asarray(x) for x in data]  # noqa: E731
    compiled, args = pb.jit(step, donate_argnums=donate), on_gpu()
    start = time.perf_counter()
    first = compiled(*args)
    cp.cuda.runtime.deviceSynchronize()
    seconds = time.perf_counter() - start
    form = compiled.last
    text = f"first call {seconds:.2f} s, {form.describe_runner()}"
    if wanted is not None:
        found = [plain(a).get() for a in flatten(first)[0]]
        off = [
            np.max(np.abs(a - b), initial=0) / (np.max(np.abs(b), initial=0) + 1e-30)
            for a, b in zip(found, wanted, strict=True)
        ]
        return f"{text}, off by {max(off):.1e} (relative to the largest)"
    state = [args[0]]

    def call():
        found = compiled(state[0], *args[1:])
        if work.rate is not None:
            state[0] = found[1]

    times = best(call, cp.cuda.get_current_stream().synchronize)
    runner = form.code
    graphs = sum(len(m.graphs) for m in getattr(runner, "streams", {}).values())
    return (
        f"{text}; alone {times[0]}, in a row {times[1]}, host {times[2]} us; wanted {work.must_reach}; {graphs} graphs"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="basics,small,workloads,conditionals")
    parser.add_argument("--modules", default=MODULES)
    options = parser.parse_args()
    import cupy as cp

    wanted = options.only.split(",")
    if "basics" in wanted:
        attempt("basics", lambda: basics(cp))
    if "small" in wanted:
        small_cases(cp)
    if "workloads" in wanted:
        for name in options.modules.split(","):
            for work in importlib.import_module(name).ROWS:
                if "bf16" in work.name:
                    continue
                attempt(f"{work.name}, small", lambda work=work: workload(cp, work, True))
                attempt(f"{work.name}", lambda work=work: workload(cp, work, False))
    if "conditionals" in wanted:
        attempt("conditionals", lambda: conditionals(cp))


if __name__ == "__main__":
    sys.exit(main())
