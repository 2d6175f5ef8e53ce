"""Where the time of a row goes: each launch of its compiled step alone, in a CUDA graph, with the bytes it must move.

python benchmarks/gpu/launches.py [--tf32] [--all] batch_norm cnn attention
With --all every way of a choice is timed, not only the one that was taken.
"""

import importlib
import sys

import cupy as cp
from arena import our_step

import pullback as pb
from pullback.compile.cuda.launch_plan import Choice, HostCall, Launch, NestedPlans
from pullback.compile.cuda.runtime.nvrtc import split_functions

COPIES, ROUNDS = 10, 4


def compile_row(work):
    """The runner of a row, and the addresses of a call."""
    data = work.data(False)
    on_gpu = [[cp.asarray(a) for a in x] if isinstance(x, list) else cp.asarray(x) for x in data]
    compiled = pb.jit(our_step(work), donate_argnums=0 if work.rate is not None else ())
    state = on_gpu[0]
    for _ in range(4):
        found = compiled(state, *on_gpu[1:])
        state = found[1] if work.rate is not None else state
    cp.cuda.runtime.deviceSynchronize()
    runner = compiled.last.code
    (memory,) = runner.streams.values()
    addresses = next(iter([*memory.graphs, *memory.repeats]))
    return runner, memory.addresses(runner, addresses), (compiled, state, on_gpu, found)


def time_ways(runner, at, actions):
    """Microseconds of actions one after the other, in a graph."""
    driver = runner.driver
    stream = cp.cuda.get_current_stream().ptr

    def issue(stream):
        for _ in range(COPIES):
            for action in actions:
                runner.issuer.run_action(action, runner.steps, at, stream)

    for action in actions:
        runner.issuer.run_action(action, runner.steps, at, stream)
    graph = driver.capture(issue)
    driver.launch_graph(graph, stream)
    took = min(driver.time(lambda: driver.launch_graph(graph, stream)) for _ in range(ROUNDS))
    driver.destroy_graph(graph)
    return took / COPIES


def describe(action, functions):
    if isinstance(action, Launch):
        mib = sum(b.nbytes for b in action.buffers) / 2**20
        body = functions[action.function]
        calls = [line.strip() for line in body.splitlines() if "_tile_<" in line]
        text = calls[0].partition("(")[0][:100] if calls else f"{body.count(chr(10))} lines"
        blocks, threads = action.grid, action.block
        return f"{action.function} {text} grid {blocks[0]}x{blocks[1]} of {threads[0]}x{threads[1]}, {mib:.1f} MiB"
    product = action.product
    return f"library {action.algorithm}: {product.out.shape} K {product.depth}"


def show(work, all_ways):
    runner, at, held = compile_row(work)
    _, functions = split_functions(runner.text)
    print(f"\n{work.title}: {len(runner.code.plan.actions)} actions", flush=True)
    total = 0.0
    for number, action in enumerate(runner.code.plan.actions):
        if isinstance(action, (HostCall, NestedPlans)):
            print(f"{number:4} {type(action).__name__}")
            continue
        ways = action.ways if isinstance(action, Choice) else ((action,),)
        taken = runner.issuer.choose(action) if isinstance(action, Choice) else 0
        for i, way in enumerate(ways):
            if i == taken or all_ways:
                took = time_ways(runner, at, way)
                total += took if i == taken else 0
                mark = "" if len(ways) == 1 else " *" if i == taken else " -"
                print(f"{number:4}{mark} {took:8.2f} us  {'; '.join(describe(x, functions) for x in way)}", flush=True)
    whole = [a for a in runner.code.plan.actions if not isinstance(a, (HostCall, NestedPlans))]
    print(f"     sum {total:.1f} us, all in one graph {time_ways(runner, at, whole):.1f} us", flush=True)
    del held


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    if "--tf32" in sys.argv:
        pb.set_matmul_precision("tf32")
    for name in names or ["batch_norm", "cnn", "attention"]:
        for work in importlib.import_module(name).ROWS:
            show(work, "--all" in sys.argv)


if __name__ == "__main__":
    main()
