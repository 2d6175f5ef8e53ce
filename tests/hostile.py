"""Graphs with parameters that no public function would let through; made and run by `test_hostile_graphs.py`.

`python hostile.py PLACE FIRST COUNT`: so many mutated graphs from a seed on. Those that the reader accepts are run on
NumPy and compiled, with all memory of the native code beside forbidden pages ("start" or "end"), under a limit of time
and memory. Errors are ours or the test fails; a touch of a page kills the process, its last line says what ran.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import resource
import signal
import sys

import numpy as np
from guarded import Guarded, Numpy
from records import cases

import pullback as pb
from pullback.arrays.dtypes import NAMES, as_dtype
from pullback.arrays.spec import make_spec, spec_of
from pullback.arrays.trees import flatten
from pullback.errors import PullbackError
from pullback.ops import load_all_ops
from pullback.ops.index.normalize import SLOT
from pullback.program.encoding import closed_scope
from pullback.program.ir import Equation, Symbol
from pullback.program.text import format_program

WHOLE = [-1, 0, 1, 2, 3, 4, 5, 7, 8, 64, 1000, 10**8, 2**31, 2**40, 2**62, 10**19, -2, -3, -1000, -(10**9), -(2**63)]
OTHERS = [None, True, False, 1.5, float("nan"), float("inf"), "", "left", "ij", "zz", (), (0,), (0, 0), [], 1j, {}]
#: What running may raise: errors of ours, and that a decomposition does not converge.
REFUSALS = (PullbackError, np.linalg.LinAlgError)
#: Elements that a declared value may have to be run here: a graph may ask for much memory, openly.
MOST = 1 << 16


def mutate(v, rng):
    """Another value in the place of a static parameter, near or far from it."""
    if rng.random() < 0.1:
        return rng.choice(OTHERS)
    if isinstance(v, (bool, np.bool_)):
        return rng.choice([not v, not v, *WHOLE[:4], "x"])
    if isinstance(v, (int, np.integer)):
        return rng.choice([int(v) + rng.choice([-2, -1, 1, 2]), int(v) * 2, -int(v), *rng.sample(WHOLE, 4)])
    if isinstance(v, slice):
        parts = [v.start, v.stop, v.step]
        parts[rng.randrange(3)] = rng.choice([None, *WHOLE])
        return slice(*parts)
    if isinstance(v, np.dtype):
        return as_dtype(rng.choice(sorted(NAMES)))
    if isinstance(v, str):
        return rng.choice([v[:-1], v + v, v[::-1], v + "a", "ii", "\x00", v.upper(), "backward", "nan"])
    if v is None or v is SLOT:
        return rng.choice([None, SLOT, slice(None), *WHOLE])
    if isinstance(v, tuple):
        return mutate_tuple(list(v), rng)
    return rng.choice(OTHERS)


def mutate_tuple(items, rng):
    way = rng.randrange(8)
    at = rng.randrange(len(items)) if items else 0
    if way == 0 and items:
        del items[at]
    elif way == 1:
        items.insert(at, rng.choice([*items, *WHOLE[:5]]))
    elif way == 2 and items:
        items[at] = rng.choice(items)
    elif way == 3:
        rng.shuffle(items)
    elif way == 4 and items and all(isinstance(n, int) for n in items):
        items = [n * rng.choice([1, 2, 1000]) for n in items]
    elif items:
        items[at] = mutate(items[at], rng)
    else:
        items = [rng.choice(WHOLE)]
    return tuple(items)


def mutate_spec(spec, rng):
    """Another shape or dtype of an argument."""
    shape, dtype = list(spec.shape), spec.dtype
    way = rng.randrange(5)
    if way == 0 and shape:
        del shape[rng.randrange(len(shape))]
    elif way == 1:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice([0, 1, 2, 3]))
    elif way == 2 and shape:
        shape[rng.randrange(len(shape))] = rng.choice([0, 1, 2, 5, 9])
    else:
        dtype = as_dtype(rng.choice(sorted(NAMES)))
    return make_spec(tuple(shape), dtype)


def hostile_graph(seed):
    """A graph of one equation, as a text that an attacker would write: its results are declared as the op's own spec
    function would have them, if that finds any.
    """
    rng = random.Random(seed)
    with_statics = [c for c in CASES if c.static]
    case = rng.choice(with_statics if rng.random() < 0.9 else CASES)
    specs = [spec_of(np.asarray(a)) for a in case.args]
    static = dict(case.static)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if static and rng.random() < 0.85:
            name = rng.choice(sorted(static))
            static[name] = mutate(static[name], rng)
        elif specs:
            at = rng.randrange(len(specs))
            specs[at] = mutate_spec(specs[at], rng)
    if rng.random() < 0.02:
        static["extra"] = 1
    return graph_of(case.op, specs, static, make_spec((1,), np.dtype(float)))


def graph_of(op, specs, static, otherwise):
    scope = closed_scope()
    try:
        with np.errstate(all="ignore"):
            made = op.spec(*specs, **static)
        made = made if type(made) is tuple else (made,)
        assert all(all(type(n) is int and n >= 0 for n in s.shape) for s in made)
    except Exception:
        made = (otherwise,)
    inputs = tuple(Symbol(s, scope, [], {}) for s in specs)
    results = tuple(Symbol(s, scope, [], {}) for s in made)
    return pb.Program(inputs, (Equation(results, op, inputs, static),), results)


CASES = cases(lambda op: op.spec is not None)


def values_for(graph, rng):
    """Arguments of a graph, small numbers of every dtype."""
    return [np.asarray(rng.integers(0, 3, size=s.spec.shape)).astype(s.spec.dtype) for s in graph.inputs]


def looping(x, y):
    """Control flow and indexing, for what one equation does not have: programs inside of equations."""
    chosen = pb.cond(pb.sum(x) > 0, lambda a: pb.sin(a) + y, lambda a: pb.cos(a) * 2, x)
    last, rows = pb.scan(lambda carry, row: (carry * row + y, carry), y, x)
    return chosen, last, rows, pb.take(x, pb.astype(y, int), axis=0), pb.set_at(x, (0,), y)[1:, ::2]


@functools.cache
def looping_json():
    return pb.stage(looping)(np.full((3, 2), 0.5), np.ones(2)).to_json()


SAID = [
    *WHOLE, None, True, 1.5, "x", "float64", "int64", [], {}, [0], {"tuple": []}, {"value": 0}, {"value": 3},
    {"routine": 0}, {"routine": 1}, {"constant": 0}, {"tuple": [{"routine": 0}, {"routine": 1}]},
]  # fmt: skip


def places_in(data):
    """The places in a tree of JSON, each with the container it is in."""
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from places_in(data[key])


def mutated_json(seed):
    rng = random.Random(seed)
    data = json.loads(looping_json())
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = [(where, key) for where, key in places_in(data) if key not in ("format", "version")]
        where, key = rng.choice(places)
        found = where[key]
        if isinstance(found, list) and found and rng.random() < 0.3:
            found.pop(rng.randrange(len(found)))
        elif type(found) is int and rng.random() < 0.5:
            where[key] = found + rng.choice([-1, 1])
        elif rng.random() < 0.3:
            other, at = rng.choice(places)
            where[key] = copy.deepcopy(other[at])
        else:
            where[key] = rng.choice(SAID)
    return json.dumps(data)


def read(seed):
    """The graph of a seed as the reader gives it back, or None where it is refused with an error of ours."""
    if seed % 8 == 7:
        try:
            return pb.Program.from_json(mutated_json(seed))
        except PullbackError:
            return None
    graph = hostile_graph(seed)
    try:
        text = format_program(graph) if seed % 2 else graph.to_json()
    except (PullbackError, ValueError, OverflowError):  # what no writer writes, such as an integer of 64 digits
        return None
    try:
        return pb.Program.parse(text) if seed % 2 else pb.Program.from_json(text)
    except PullbackError:
        return None


def run_native(graph, args, guarded):
    from pullback.compile.cpu import runner
    from pullback.compile.lower import fuse

    runner.np = Numpy(empty=guarded.empty)
    fuse.np = Numpy(ascontiguousarray=guarded.ascontiguousarray)
    try:
        entry = pb.jit(lambda *a: graph.run(*a)).lower(*args)
        entry.captured = [guarded.copy(c) for c in entry.captured]
        return [np.array(x) for x in entry.run([guarded.copy(a) for a in args])]
    finally:
        runner.np = fuse.np = np
        guarded.free()


def run_both(graph, seed, place):
    """Run a graph on NumPy and natively: both give the same, or one of them an error of ours."""
    args = values_for(graph, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        try:
            eager = graph.run(*args)
        except REFUSALS as error:
            eager = error
        try:
            native = run_native(graph, args, Guarded(place))
        except REFUSALS as error:
            native = error
    if isinstance(eager, Exception) or isinstance(native, Exception):
        return
    names = {e.op.name for e in graph.equations}
    for a, b in zip(flatten(eager)[0], native, strict=True):
        a = np.asarray(a)
        assert a.shape == b.shape, (a.shape, b.shape)
        if all(s.spec.dtype.name in SETTLED for s in graph.inputs) and not names & UNSETTLED:
            np.testing.assert_allclose(b.astype(a.dtype), a, rtol=2e-2 if a.dtype.itemsize < 4 else 1e-3, atol=1e-3)


#: Dtypes whose arithmetic is the same everywhere: small integers wrap where the op's public function widens them.
SETTLED = {"float64", "float32", "int64", "uint32", "bool", "int32"}
#: Whose results are not one value: eigenvectors, a cast that does not fit.
UNSETTLED = {"eig", "eigh", "svd", "qr", "astype", "argsort", "reciprocal"}


def too_large(graph):
    symbols = [*graph.inputs, *(s for e in graph.equations for s in e.results)]
    return sum(s.spec.size for s in symbols) > MOST


def main(place, first, count):
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    accepted = 0
    for seed in range(int(first), int(first) + int(count)):
        signal.alarm(60)
        graph = read(seed)
        if graph is None or too_large(graph):
            continue
        accepted += 1
        print(seed, str(graph).replace("\n", " "), flush=True)
        run_both(graph, seed, place)
    signal.alarm(0)
    assert accepted
    print(f"{accepted} of {count} were run")
    print("done")


if __name__ == "__main__":
    assert load_all_ops()
    main(*sys.argv[1:])
