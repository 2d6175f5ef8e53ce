"""Compiled programs with all their memory beside pages that nobody may touch; run by `test_guard_pages.py`.

`python guarded.py PLACE MACHINE FIRST STEP PROGRAMS [varying]`: memory at the "start" or the "end" of its pages, code
for one of MACHINES, every STEP-th sample of the ops from FIRST on, and so many random and composed programs; with
"varying", in code in which everything varies that could. A touch kills the process; its last line says what ran.
"""

import ctypes
import mmap
import sys

import numpy as np

#: The processor code is made for, and its vectors in bytes.
MACHINES = {"this": (None, None), "avx2": ("haswell", 32), "sse": ("x86-64", 16)}
PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """Hands out arrays that touch a forbidden page, and takes them all back."""

    def __init__(self, place):
        self.place = place
        self.regions = []
        self.count = 0

    def bytes(self, size, spare=0):
        """An address with `size` bytes behind it, the last `spare` of which lie in the forbidden page."""
        inside = -(-max(size - spare, 1) // PAGE) * PAGE
        whole = inside + 2 * PAGE
        base = _libc.mmap(None, whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        assert not _libc.mprotect(base, PAGE, 0)
        assert not _libc.mprotect(base + PAGE + inside, PAGE, 0)
        self.regions.append((base, whole))
        self.count += 1
        return base + PAGE if self.place == "start" else base + PAGE + inside - (size - spare)

    def empty(self, shape, dtype=np.float64):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        # the arena is asked for with 64 bytes to spare for its alignment, which it has here
        spare = 64 if dtype == np.uint8 and isinstance(shape, int) else 0
        memory = (ctypes.c_uint8 * size).from_address(self.bytes(size, spare))
        return np.frombuffer(memory, np.uint8, size).view(dtype).reshape(shape)

    def copy(self, x):
        x = np.asarray(x)
        found = self.empty(x.shape, x.dtype)
        found[...] = x
        return found

    def ascontiguousarray(self, x, *rest):
        return self.copy(np.asarray(x, *rest))

    def free(self):
        for base, size in self.regions:
            _libc.munmap(base, size)
        self.regions.clear()


class Numpy:
    """NumPy as a module of the package sees it, with memory from elsewhere."""

    def __init__(self, **changed):
        self.__dict__.update(changed)

    def __getattr__(self, name):
        return getattr(np, name)


def build_for(machine):
    """Have code made for another processor than this one."""
    from pullback.compile.cpu import target
    from pullback.compile.cpu.runtime import link

    cpu, width = MACHINES[machine]
    if cpu is None:
        return
    target.vector_bytes = link.vector_bytes = lambda: width

    def other(llvm, level=3):
        return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features="", opt=level)

    link._target_machine = other


def samples(first, step):
    """Ops on samples of their arguments: what it is, the function and its arguments."""
    from records import cases
    from test_compiled import is_stageable

    from pullback.ops.dispatch import apply

    for number, case in enumerate(cases(is_stageable)):
        if number % step == first:
            yield f"{case.op.name} {number}", lambda *a, c=case: apply(c.op, *a, **c.static), case.args


def programs(count):
    from random_programs import program

    import pullback as pb

    for seed in range(count):
        f, args = program(seed)
        yield f"program {seed}", f, args

        def scalar(*args, f=f):
            a, b = f(*args)
            return pb.sum(pb.sin(a)) + pb.sum(pb.cos(b))

        yield f"gradient of program {seed}", pb.grad(scalar, argnums=tuple(range(len(args)))), args


def composed(count):
    """Chains of forms and random programs of the generators, with the gradients of those that have one."""
    from composed_modes import Run, all_of, weighed
    from composed_programs import drawn, drawn_chain

    import pullback as pb

    for number in range(count):
        for kind, found in (("chain", drawn_chain(number)), ("composed", drawn(number, 3, 8))):
            run = Run(found)
            yield f"{kind} {number}", run.f, run.args
            if run.is_smooth():
                yield (
                    f"gradient of {kind} {number}",
                    pb.grad(weighed(run.smooth, run.bars()), all_of(run.point)),
                    run.point,
                )


def products():
    """Matrix products by tiles, with rows, columns and depths that fill no vector."""
    rng = np.random.default_rng(0)
    for m, n, k in ((17, 47, 35), (8, 10, 64), (20, 64, 19)):
        a, b, c = (rng.normal(size=s).astype("f") for s in ((m, k), (k, n), (n, k)))
        yield f"product {m} {n} {k}", lambda a, b: a @ b, (a, b)
        yield f"turned product {m} {n} {k}", lambda a, c: a @ c.T, (a, c)
    a, b = rng.normal(size=(90, 71)), rng.normal(size=(71, 1))
    yield "products with a column and a row", lambda a, b: (a @ b, b.T @ a.T), (a, b)


def factors():
    """Vectors by reflections, in rows that fill no vector and that do."""
    import pullback as pb

    rng = np.random.default_rng(0)
    for n in (3, 8, 13, 30):
        a = rng.normal(size=(n, n)) + np.diag(np.arange(n))
        yield f"eigh {n}", lambda a: tuple(pb.linalg.eigh(a)), (a,)
        yield f"svd {n}", lambda a: tuple(pb.linalg.svd(a)), (a,)
    yield "svd 9 by 7", lambda a: tuple(pb.linalg.svd(a)), (rng.normal(size=(9, 7)),)


def step_rows(guarded):
    """Steps of an optimizer over parameters of many lengths, which read, write and sum up rows."""
    import pullback as pb
    from pullback.compile.cpu import row_table
    from pullback.compile.cpu.rows import CHUNK
    from pullback.optim.stateful import native_step

    rng = np.random.default_rng(0)
    sizes = [*range(1, 20), *range(CHUNK - 2, CHUNK + 3), 3 * CHUNK - 1, 3 * CHUNK]
    rule = pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.adam(0.1))
    for dtype in ("f", "d"):
        print("rows", dtype, flush=True)
        values, grads = ([rng.normal(size=n).astype(dtype) for n in sizes] for _ in range(2))
        found = []
        for jit in (None, False):
            tensors = [pb.tensor(x, requires_grad=True) for x in values]
            opt = pb.optim.Optimizer(rule, tensors, jit=jit)
            held = [t.value for t in tensors]  # so that the step works on copies
            native_step.np = Numpy(array=lambda x, *rest, **how: guarded.copy(x)) if jit is None else np
            row_table.np = Numpy(zeros=guarded.empty) if jit is None else np
            opt.apply_gradients(list(zip(tensors, grads, strict=True)))
            assert (opt.groups[0]._native is not None) == (jit is None)
            found.append([t.value.copy() for t in tensors])
            del held, opt, tensors
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        guarded.free()


def main(place, machine, first, step, count, how=""):
    from marked import everything_varies
    from test_compiled import same

    from pullback.compile.cpu import runner
    from pullback.compile.jit import jit
    from pullback.compile.lower import fuse

    build_for(machine)
    if how == "varying":
        everything_varies()
    guarded = Guarded(place)
    for what, f, args in (
        *products(),
        *factors(),
        *samples(int(first), int(step)),
        *programs(int(count)),
        *composed(int(count) // 3),
    ):
        print(what, flush=True)
        args = [np.asarray(a) for a in args]
        wanted = f(*args)
        runner.np = Numpy(empty=guarded.empty)
        fuse.np = Numpy(ascontiguousarray=guarded.ascontiguousarray)
        entry = jit(f).lower(*args)
        entry.captured = [guarded.copy(c) for c in entry.captured]
        found = entry.run([guarded.copy(a) for a in args])
        runner.np = fuse.np = np
        single = any(np.asarray(a).dtype == np.float32 for a in args)
        same(found, wanted if isinstance(wanted, (tuple, list)) else [wanted], 3e-4 if single else 1e-9)
        del entry, found
        guarded.free()
    if how != "varying":  # rows have one code for all sizes already
        step_rows(guarded)
    assert guarded.count > 10
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
