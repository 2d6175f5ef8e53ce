"""Matrix products on a GPU: tiles of our own, cuBLASLt and PyTorch, checked against NumPy; us each, in a CUDA graph.

python benchmarks/gpu/products.py [--quick] [--no-corners] [--only-float32] [beginnings of names...]
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from pullback.compile.cuda.preamble import PREAMBLE
from pullback.compile.cuda.products.choose import choose_shape, middle_shape, tile_shape
from pullback.compile.cuda.products.instructions import tiles_text
from pullback.compile.cuda.products.library import CANDIDATES, WORKSPACE_BYTES, LibraryPlan, can_take
from pullback.compile.cuda.products.tile import (
    GroupShape,
    PanelShape,
    PlainShape,
    TensorShape,
    TileShape,
    render_tile,
    store_product,
)
from pullback.compile.cuda.runtime.driver import find_driver
from pullback.compile.loop_ir import Buffer, Layout, Product

#: (batch, rows, K, columns), whether the left and the right matrix are transposed in memory.
SHAPES = {
    "mlp forward 1": (1, 64, 784, 256, False, False),
    "mlp forward 2": (1, 64, 256, 128, False, False),
    "mlp forward 3": (1, 64, 128, 10, False, False),
    "mlp back 2": (1, 64, 10, 128, False, True),
    "mlp back 1": (1, 64, 128, 256, False, True),
    "mlp weights 3": (1, 128, 64, 10, True, False),
    "mlp weights 2": (1, 256, 64, 128, True, False),
    "mlp weights 1": (1, 784, 64, 256, True, False),
    "qkv": (1, 1024, 128, 384, False, False),
    "up": (1, 1024, 128, 512, False, False),
    "down": (1, 1024, 512, 128, False, False),
    "up weights": (1, 128, 1024, 512, True, False),
    "scores": (64, 64, 32, 64, False, True),
    "mixture": (64, 64, 64, 32, False, False),
    "patches": (1, 64, 288, 6272, False, False),
    "patches, weights": (1, 64, 6272, 288, False, True),
    "resnet patches": (1, 100352, 576, 64, False, False),
    "square 1024": (1, 1024, 1024, 1024, False, False),
    "float64 256": (1, 256, 256, 256, False, False),
}
MORE_SHAPES = (
    TensorShape(1, 4, (1, 1, 8)), TensorShape(2, 4, (1, 1, 4)), TensorShape(2, 4, (1, 1, 8)),
    TensorShape(4, 4, (1, 1, 4)), TensorShape(2, 4, (2, 1, 4)), PanelShape(2, 4, (2, 2)), PanelShape(4, 4, (2, 2)),
    GroupShape(32, 2), GroupShape(64, 2), GroupShape(64, 4),
)  # fmt: skip

driver = find_driver(0)
rng = np.random.default_rng(0)


@dataclass
class Case:
    product: Product
    arrays: dict[Buffer, Any]
    want: np.ndarray[Any, Any]

    @property
    def result(self) -> Any:
        return self.arrays[self.product.out.buffer]

    def error(self) -> float:
        return float(np.abs(cp.asnumpy(self.result) - self.want).max() / np.abs(self.want).max())


def make_case(batch: int, m: int, k: int, n: int, turn_left: bool, turn_right: bool, dtype: str) -> Case:
    def matrix(rows: int, columns: int, turned: bool) -> tuple[Layout, Any]:
        shape = (batch, columns, rows) if turned else (batch, rows, columns)
        values = cp.asarray(rng.standard_normal(shape).astype(dtype))
        strides = (rows * columns, 1, rows) if turned else (rows * columns, columns, 1)
        buffer = Buffer("input", values.size, np.dtype(dtype))
        return Layout(buffer, (batch, rows, columns), strides), values

    (left, a), (right, b), (out, c) = matrix(m, k, turn_left), matrix(k, n, turn_right), matrix(m, n, False)
    x, y = (cp.asnumpy(v).astype(np.float64) for v in (a, b))
    want = (x.swapaxes(1, 2) if turn_left else x) @ (y.swapaxes(1, 2) if turn_right else y)
    return Case(Product(out, left, right), {left.buffer: a, right.buffer: b, out.buffer: c}, want)


def time_in_graph(work: Callable[[int], None], copies: int = 50, rounds: int = 5) -> float:
    stream = cp.cuda.get_current_stream().ptr
    work(stream)  # what is loaded or set up at first use
    graph = driver.capture(lambda to: [work(to) for _ in range(copies)])
    best = min(driver.time(lambda: driver.launch_graph(graph, stream)) for _ in range(rounds))
    driver.destroy_graph(graph)
    return best / copies


def time_library(case: Case, tf32: bool) -> tuple[float, float]:
    workspace = cp.empty(WORKSPACE_BYTES, np.uint8)
    matrices = (case.product.out, case.product.left, case.product.right)
    addresses = [case.arrays[m.buffer].data.ptr for m in matrices]
    found = []
    for algorithm in range(CANDIDATES):
        plan = LibraryPlan(case.product, tf32, (256, 256, 256), algorithm)
        case.result[...] = 0
        took = time_in_graph(lambda to, p=plan: p.launch(*addresses, workspace.data.ptr, to), copies=30)
        found.append((took, case.error()))
    return min(found)


def time_tiles(case: Case, digits: int, shapes: list[TileShape]) -> Iterator[tuple[TileShape, float, float]]:
    tail = store_product(case.product)
    functions = [render_tile(case.product, tail, shape, digits) for shape in shapes]
    text = PREAMBLE + tiles_text() + "".join(f.text.replace("NAME", f"tile{i}") for i, f in enumerate(functions))
    module, _ = driver.load_module(text, False)
    for i, (shape, f) in enumerate(zip(shapes, functions, strict=True)):
        function = driver.find_function(module, f"tile{i}", f.shared_bytes)
        given = (function, f.grid, f.block, f.shared_bytes, [case.arrays[b].data.ptr for b in f.buffers])
        case.result[...] = 0
        took = time_in_graph(lambda to, x=given: driver.launch(*x, to))
        yield shape, took, case.error()


def time_torch(case: Case, turned: tuple[bool, bool], tf32: bool) -> float:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    product = case.product
    a, b = (torch.from_dlpack(case.arrays[m.buffer]) for m in (product.left, product.right))
    a, b = (x.transpose(1, 2) if t else x for x, t in zip((a, b), turned, strict=True))
    out = torch.from_dlpack(case.result)
    if out.shape[0] == 1:
        a, b, out = a[0], b[0], out[0]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(50):
            torch.matmul(a, b, out=out)
    best = float("inf")
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 50 * 1e3)
    return best


def report(text: str) -> None:
    print(text, flush=True)


def shape_name(shape: TileShape) -> str:
    if isinstance(shape, PlainShape):
        return f"plain{shape.high}x{shape.wide}"
    if isinstance(shape, GroupShape):
        return f"group{shape.columns}x{shape.groups}"
    panel = "panel" if isinstance(shape, PanelShape) else ""
    return f"{panel}{shape.high}x{shape.wide}w{'.'.join(map(str, shape.warps))}"


def measure(name: str, size: tuple[Any, ...], quick: bool) -> None:
    dtype = "float64" if "float64" in name else "float32"
    case = make_case(*size, dtype)
    batch, m, k, n = size[:4]
    line = f"{name:16s} {batch}x {m}x{k}x{n}:"
    for tf32 in (False, True) if dtype == "float32" and "--only-float32" not in sys.argv else (False,):
        for what, run in (
            ("lt", lambda t=tf32: time_library(case, t)),
            ("torch", lambda t=tf32: (time_torch(case, size[4:], t), 0.0)),
        ):
            try:
                took, error = run()
                line += f" {what}{'/tf32' if tf32 else ''} {took:.2f}" + (f" ({error:.0e})" if error else "")
            except Exception as error:
                line += f" {what} FAILED {error!r:.200}"
    report(line)
    chosen = tile_shape(case.product)
    wanted = [chosen]
    if dtype == "float32":
        wanted = list(dict.fromkeys((chosen, choose_shape(case.product), middle_shape(case.product))))
    if dtype == "float32" and not quick:
        _, rows, columns = case.product.out.shape
        wanted += [s for s in MORE_SHAPES if s not in wanted and s.rows < 2 * rows and s.columns < 2 * columns]
    for digits in (3, 1) if dtype == "float32" and "--only-float32" not in sys.argv else (3,):
        found = list(time_tiles(case, digits, wanted))
        best = sorted(found, key=lambda row: row[1])[:4]
        text = ", ".join(f"{shape_name(s)} {t:.2f} ({e:.0e})" for s, t, e in best)
        own = next(t for s, t, _ in found if s == chosen)
        worst = max(e for *_, e in found)
        report(f"    own x{digits}: by rule {shape_name(chosen)} {own:.2f}; best {text}; worst error {worst:.0e}")


def check_corners() -> None:
    """Sizes that are ragged or one, infinities, and strides the library cannot take."""
    for sizes in ((1, 1, 1, 1), (3, 17, 5, 9), (2, 33, 70, 65), (1, 1, 300, 1), (1, 100, 1, 7)):
        for turns in ((False, False), (True, True)):
            case = make_case(*sizes, *turns, "float32")
            worst = max(
                e
                for *_, e in time_tiles(
                    case, 3, [*{choose_shape(case.product), *MORE_SHAPES, PlainShape(1, 1), PlainShape(4, 4)}]
                )
            )
            library = time_library(case, False)[1] if can_take(case.product) else float("nan")
            report(f"corner {sizes} {turns}: own {worst:.1e}, library {library:.1e}")
    case = make_case(1, 20, 30, 20, False, False, "float32")
    case.arrays[case.product.left.buffer][0, 3, 4] = np.inf
    case.arrays[case.product.right.buffer][0, 5, 6] = 3.4e38
    list(time_tiles(case, 3, [choose_shape(case.product)]))
    left, right = (cp.asnumpy(case.arrays[m.buffer])[0] for m in (case.product.left, case.product.right))
    with np.errstate(all="ignore"):
        want = left @ right
    got = cp.asnumpy(case.result)[0]
    same = (np.isnan(got) == np.isnan(want)) & (np.isinf(got) == np.isinf(want))
    report(f"infinities: {'right' if same.all() else f'WRONG at {int((~same).sum())}'}")


def main() -> None:
    quick = "--quick" in sys.argv
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    report(
        f"{cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}: us each in a graph "
        "(largest error relative to the largest entry)"
    )
    try:
        if "--no-corners" not in sys.argv:
            check_corners()
    except Exception:
        report(traceback.format_exc()[-1500:])
    for name, size in SHAPES.items():
        if names and not any(name.startswith(start) for start in names):
            continue
        try:
            measure(name, size, quick)
        except Exception:
            report(f"{name} FAILED\n{traceback.format_exc()[-1500:]}")


if __name__ == "__main__":
    main()
