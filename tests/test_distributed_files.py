"""Checkpoints of ranks: what any number of ranks saved, any other number reads to the last bit, whole or not at all."""

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
import threading

import fake_cupy
import gpu
import numpy as np
import pytest

import pullback as pb
from pullback import distributed
from pullback.arrays.spec import spec_of
from pullback.arrays.trees import flatten, map_tree, unflatten
from pullback.distributed import file_index, file_writer, files
from pullback.distributed.file_reader import CheckpointReader
from pullback.distributed.launch import find_launcher, launch_command, launch_environment
from pullback.errors import (
    ArgumentError,
    DtypeError,
    FormatError,
    MismatchError,
    PullbackError,
    ReplicaDriftError,
    ShapeError,
    StorageError,
    WorldError,
)

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn",
]  # fmt: skip
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (5, 3), (2, 3, 4)]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals, links and limits of POSIX")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def outcomes(function, ranks):
    """What each rank returns or raises."""

    def caught():
        try:
            return function()
        except PullbackError as error:
            return error

    return distributed.run(caught, ranks, timeout=20)


def assert_same(found, wanted):
    """Trees are equal to the last bit."""
    (a, structure), (b, other) = flatten(found), flatten(wanted)
    assert structure == other
    for x, y in zip(map(np.asarray, a), map(np.asarray, b), strict=True):
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


# Training that continues


rng = np.random.default_rng(0)
X, Y = rng.normal(size=(8, 5)), rng.normal(size=(8, 3))
PARAMS = {"w": rng.normal(size=(5, 3)), "b": [rng.normal(size=3)], "s": np.array(0.5), "one": rng.normal(size=(1,))}
MATRICES = [rng.normal(size=(3, 2) if i % 2 else (4, 3)) for i in range(12)]
HALVES = {"w": rng.normal(size=(5, 3)).astype(pb.bfloat16), "b": rng.normal(size=7).astype(np.float16)}


def loss(p, x, y):
    return pb.sum((x @ p["w"] * p["s"] + p["b"][0] + p["one"] - y) ** 2), len(x)


def gradient_of_slices(p):
    """Sums go over eight slices, so they have the same bits on 1, 2, 4 and 8 ranks."""
    share = len(X) // distributed.world_size()
    mine = slice(distributed.rank() * share, (distributed.rank() + 1) * share)
    return pb.grad(distributed.data_parallel(loss, slices=8))(p, X[mine], Y[mine])


def gradient_of_each(p):
    """The same on all ranks, and another for each parameter."""
    leaves, structure = flatten(p)
    return unflatten(structure, [np.sin(x.astype(float) * (i + 1)).astype(x.dtype) for i, x in enumerate(leaves)])


def train(rule, steps, gradient, p, state=None):
    state = rule.init(p) if state is None else state
    for _ in range(steps):
        updates, state = rule.update(gradient(p), state, p)
        p = pb.optim.apply_updates(p, updates)
    return p, state


def save_training(path, rule, gradient, params):
    p, state = train(rule, 3, gradient, params)
    distributed.save(path, {"params": p, "state": state, "step": 3})


def continue_training(path, rule, gradient, params):
    like = {"params": map_tree(np.zeros_like, params), "state": rule.init(params), "step": 0}
    found = distributed.load(path, like, verify=True)
    assert found["step"] == 3
    return train(rule, 3, gradient, found["params"], found["state"])[0]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_training_goes_on_bit_for_bit_on_any_number_of_ranks(path, ranks):
    rule = distributed.sharded(pb.optim.adam(0.1))
    wanted, _ = train(pb.optim.adam(0.1), 6, gradient_of_slices, PARAMS)
    distributed.run(lambda: save_training(path, rule, gradient_of_slices, PARAMS), ranks)
    for others in (1, 2, 4, 8):
        for found in distributed.run(lambda: continue_training(path, rule, gradient_of_slices, PARAMS), others):
            assert_same(found, wanted)


@pytest.mark.parametrize("reading", ["sharded", "whole"])
@pytest.mark.parametrize("writing", ["sharded", "whole"])
def test_files_are_the_same_with_and_without_sharding(path, writing, reading):
    rules = {"whole": pb.optim.adam(0.1), "sharded": distributed.sharded(pb.optim.adam(0.1))}
    wanted, _ = train(rules["whole"], 6, gradient_of_each, PARAMS)
    for ranks in (1, 2, 3, 4):
        distributed.run(lambda: save_training(path, rules[writing], gradient_of_each, PARAMS), ranks)
        for others in (1, 2, 3, 4):
            results = distributed.run(lambda: continue_training(path, rules[reading], gradient_of_each, PARAMS), others)
            assert_same(results, [wanted] * others)


def each_one(p):
    return map_tree(lambda x: True, p)


RULES = {
    "muon": (pb.optim.muon(0.1), MATRICES),
    "shampoo": (pb.optim.shampoo(0.1, momentum=0.9, iterations=12), MATRICES[:3]),
    "muon of one": (pb.optim.muon(0.1), MATRICES[0]),
    "nadam": (pb.optim.nadam(0.1), PARAMS),
    "lamb": (pb.optim.lamb(0.1), PARAMS),
    "master weights": (pb.optim.master_weights(pb.optim.adam(0.1)), HALVES),
    "masked": (pb.optim.masked(pb.optim.adam(0.1), each_one), PARAMS),
    "masked by leaves": (pb.optim.masked(pb.optim.muon(0.1), each_one), MATRICES),
    "many": (pb.optim.adam(0.1), [np.full(1 + i % 3, float(i)) for i in range(66)]),
}


@pytest.mark.parametrize("name", RULES)
def test_states_of_sharded_rules(path, name):
    rule, params = RULES[name]
    wanted, _ = train(rule, 6, gradient_of_each, params)
    for ranks, others in [(1, 3), (2, 3), (3, 1), (4, 2)]:
        parted = distributed.sharded(rule)
        distributed.run(lambda: save_training(path, parted, gradient_of_each, params), ranks)  # noqa: B023
        results = distributed.run(
            lambda: continue_training(path, parted, gradient_of_each, params), others  # noqa: B023
        )  # fmt: skip
        assert_same(results, [wanted] * others)
    whole = distributed.load(path, {"state": rule.init(params)})["state"]
    assert_same(whole, train(rule, 3, gradient_of_each, params)[1])


def test_rules_around_sharded_ones(path):
    labels = {"w": "a", "b": "b", "s": "b", "one": "b"}

    def make(wrap):
        inner = {"a": wrap(pb.optim.muon(0.1)), "b": wrap(pb.optim.adam(0.1))}
        return pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.multi_transform(inner, labels))

    wanted, _ = train(make(lambda r: r), 6, gradient_of_each, PARAMS)
    rule = make(distributed.sharded)
    distributed.run(lambda: save_training(path, rule, gradient_of_each, PARAMS), 3)
    for others in (1, 2, 4):
        results = distributed.run(lambda: continue_training(path, rule, gradient_of_each, PARAMS), others)
        assert_same(results, [wanted] * others)
    assert_same(continue_training(path, make(lambda r: r), gradient_of_each, PARAMS), wanted)


def test_compiled_steps_take_and_return_marked_states(path):
    rule = distributed.sharded(pb.optim.adam(0.1))
    wanted, _ = train(pb.optim.adam(0.1), 3, gradient_of_each, PARAMS)

    def compiled():
        update = pb.jit(rule.update)
        p, state = PARAMS, rule.init(PARAMS)
        for _ in range(3):
            updates, state = update(gradient_of_each(p), state, p)
            p = pb.optim.apply_updates(p, updates)
        distributed.save(path, {"params": p, "state": state})
        return p

    for found in distributed.run(compiled, 2):
        for x, y in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    whole = distributed.load(path, {"params": PARAMS})
    assert_same(whole["params"], distributed.run(compiled, 2)[0])


def test_optimizers_of_tensors(path):
    def train_tensors(rule, steps, saved=None):
        w = pb.tensor(PARAMS["w"], requires_grad=True)
        optimizer = pb.optim.Optimizer(rule, {"w": w})
        if saved is not None:
            found = distributed.load(path, {"w": w, "optimizer": optimizer.state_dict()})
            w = found["w"]
            assert w.requires_grad
            optimizer = pb.optim.Optimizer(rule, {"w": w})
            optimizer.load_state_dict(found["optimizer"])
        for _ in range(steps):
            optimizer.zero_grad()
            pb.sum(pb.sin(w) ** 2).backward()
            optimizer.step()
        return w, optimizer

    def first():
        w, optimizer = train_tensors(distributed.sharded(pb.optim.adam(0.1)), 3)
        distributed.save(path, {"w": w, "optimizer": optimizer.state_dict()})

    wanted = train_tensors(pb.optim.adam(0.1), 6)[0].detach().numpy()
    distributed.run(first, 3)
    found = distributed.run(
        lambda: train_tensors(distributed.sharded(pb.optim.adam(0.1)), 3, path)[0].detach().numpy(), 2
    )
    for x in found:
        np.testing.assert_allclose(x, wanted, rtol=1e-12)


def test_parts_of_fully_sharded_parameters(path):
    rule, like = pb.optim.adam(0.1), map_tree(spec_of, PARAMS)

    def parts_and_state(steps, saved=False):
        f = distributed.fully_sharded(lambda p: loss(p, X, Y)[0] / distributed.world_size(), like)
        parts = distributed.shard(PARAMS)
        state = rule.init(parts)
        marked = {"p": distributed.mark_parts(parts, like), "state": distributed.mark_state(state, rule, like)}
        if saved:
            marked = distributed.load(path, map_tree(np.zeros_like, marked))
        parts, state = train(rule, steps, pb.grad(f), marked["p"].tree, marked["state"].tree)
        return {"p": distributed.mark_parts(parts, like), "state": distributed.mark_state(state, rule, like)}

    for ranks in (1, 2, 3):
        wanted = distributed.run(lambda: distributed.unshard(parts_and_state(4)["p"].tree, like), ranks)
        distributed.run(lambda: distributed.save(path, parts_and_state(2)), ranks)
        found = distributed.run(
            lambda: distributed.unshard(parts_and_state(2, True)["p"].tree, like), ranks
        )  # fmt: skip
        assert_same(found, wanted)
        whole = distributed.load(path, {"p": PARAMS, "state": rule.init(PARAMS)})
        for others in (1, 2, 4):
            again = distributed.run(lambda: parts_and_state(0, True), others)
            pieces = [np.concatenate(rows) for rows in zip(*(flatten(a["p"])[0] for a in again), strict=True)]
            flat = [np.asarray(x).reshape(-1) for x in flatten(whole["p"])[0]]
            assert_same([p[: x.size] for p, x in zip(pieces, flat, strict=True)], flat)
            assert int(again[0]["state"].tree[0].steps) == 2


# Values of every kind


def sample(dtype, shape):
    numbers = np.asarray(np.random.default_rng(1).normal(size=shape) * 3)
    return numbers.astype(getattr(pb, dtype) if dtype in ("bfloat16", "float8_e4m3fn") else dtype)


@pytest.mark.parametrize("least", [1, 1 << 16], ids=["divided", "one rank each"])
def test_common_arrays_of_every_dtype_and_shape(path, monkeypatch, least):
    monkeypatch.setattr(file_writer, "_ROW_BYTES", least)
    tree = {f"{d}{s}": sample(d, s) for d in DTYPES for s in SHAPES} | {"big": rng.normal(size=50_001)}
    for ranks, others in [(1, 2), (3, 2), (2, 1)]:
        distributed.run(lambda: distributed.save(path, tree), ranks)
        like = map_tree(np.zeros_like, tree)
        for found in distributed.run(lambda: distributed.load(path, like, verify=True), others):  # noqa: B023
            assert_same(found, tree)
        assert_same(distributed.load(path), tree)


def test_rows_of_every_dtype_and_shape(path):
    tree = {f"{d}{s}": sample(d, s) for d in DTYPES for s in SHAPES if "8_" not in d}

    def parts(x):
        return distributed.mark_parts(map_tree(np.asarray, distributed.shard(x)), x)

    for ranks, others in [(1, 2), (3, 2), (2, 5), (4, 1)]:
        distributed.run(lambda: distributed.save(path, parts(tree)), ranks)
        assert_same(distributed.load(path, tree, verify=True), tree)
        found = distributed.run(lambda: distributed.load(path, parts(map_tree(np.zeros_like, tree))).tree, others)
        assert_same(found, distributed.run(lambda: parts(tree).tree, others))


def test_what_fills_up_a_row_stays_as_it_is(path):
    distributed.save(path, {"w": np.arange(3.0)})

    def padded():
        like = {"w": distributed.mark_parts(np.full(2, 9.0), np.zeros(3))}
        return distributed.load(path, like)["w"].tree.tolist()

    assert distributed.run(padded, 2) == [[0.0, 1.0], [2.0, 9.0]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int32"])
def test_of_summed_values_the_sum_is_kept(path, dtype):
    kind = sample(dtype, ()).dtype
    shapes = {"w": (5, 3), "s": (), "e": (0, 2), "one": (1,)}

    def save():
        own = {n: np.full(s, distributed.rank() + 1.0).astype(kind) for n, s in shapes.items()}
        distributed.save(path, {"codec": [distributed.mark_summed(own)], "common": np.ones(3)})

    def load():
        own = distributed.mark_summed({n: np.full(s, 7).astype(kind) for n, s in shapes.items()})
        return distributed.load(path, {"codec": [own]})["codec"][0].tree

    for ranks in (1, 3, 4):
        distributed.run(save, ranks)
        total = ranks * (ranks + 1) // 2
        wanted = {n: np.full(s, total).astype(kind) for n, s in shapes.items()}
        for others in (1, 2):
            found = distributed.run(load, others)
            assert_same(found, [wanted, *[map_tree(np.zeros_like, wanted)] * (others - 1)])


def test_settings_tensors_and_memory_as_it_may_lie(path):
    base = np.arange(24.0).reshape(2, 3, 4)
    tree = {
        "bool": True, "int": 2**80, "float": 0.1, "nan": float("-inf"), "text": "Größe 🙂", "complex": 1 - 2.5j,
        "dtype": np.dtype("float32"), "none": None, "random": pb.random.state(), "scalar": np.float32(1.5),
        "turned": base.T, "strided": base[:, ::2, ::-1], "swapped": base.astype(">f8"), "many": np.broadcast_to(1.5, 4),
        "tensor": pb.tensor([1.0, 2.0], requires_grad=True), "made": pb.tensor([1.0]) * 2, "empty": {}, "deep": [({},)],
    }  # fmt: skip
    distributed.run(lambda: distributed.save(path, tree), 2)
    for found in distributed.run(lambda: distributed.load(path, tree), 3):
        plain = {n for n, x in tree.items() if not isinstance(x, (np.ndarray, pb.Tensor))}
        assert {n: found[n] for n in plain} == {n: tree[n] for n in plain}
        assert type(found["scalar"]) is np.float32
        assert type(found["random"]) is type(tree["random"])
        for n in ("turned", "strided", "swapped", "many"):
            assert found[n].tolist() == tree[n].tolist()
        assert found["tensor"].requires_grad
        assert not found["made"].requires_grad
        assert found["tensor"].tolist() == [1.0, 2.0]


def test_arrays_of_gpus_come_back_there(path, monkeypatch):
    monkeypatch.setattr(file_writer, "_ROW_BYTES", 1)
    with contextlib.nullcontext(gpu.cupy) if gpu.REAL else fake_cupy.installed() as cupy:
        tree = {"x": cupy.arange(7.0), "z": cupy.arange(3.0) * 1j, "t": pb.tensor(cupy.arange(3.0))}
        marked = {**tree, "own": distributed.mark_summed(cupy.ones(3))}
        distributed.run(lambda: distributed.save(path, marked), 2)
        for found in distributed.run(lambda: distributed.load(path, marked), 2):
            assert isinstance(found["x"], cupy.ndarray)
            assert found["t"].device == "cuda:0"
            assert isinstance(found["own"].tree, cupy.ndarray)
            assert_same({n: found[n].tolist() for n in tree}, {n: tree[n].tolist() for n in tree})


def test_a_bare_array_and_specs(path):
    distributed.save(path, np.arange(3.0))
    assert distributed.load(path, np.zeros(3)).tolist() == [0.0, 1.0, 2.0]
    assert distributed.load(path, pb.tensor(np.zeros(3)).spec).tolist() == [0.0, 1.0, 2.0]
    assert list(distributed.load(path)) == ["array"]


def test_some_of_a_checkpoint(path):
    distributed.save(path, {"params": PARAMS, "more": np.ones(3)})
    assert_same(distributed.load(path, {"params": PARAMS}), {"params": PARAMS})


def test_a_file_of_one_rank_is_one_for_every_reader(path):
    distributed.save(path, {"params": PARAMS, "big": np.zeros((300, 300))})
    (file,) = path.glob("*.safetensors")
    found = pb.load(file)
    assert found["params.w"].tobytes() == PARAMS["w"].tobytes()
    assert found["big"].shape == (300, 300)


def test_pb_load_says_who_reads_a_directory(path):
    distributed.save(path, {"a": 1})
    with pytest.raises(StorageError, match=r"pb\.distributed\.load"):
        pb.load(path)
    pb.save(path.with_name("file"), 1)
    with pytest.raises(StorageError, match=r"with pb\.load"):
        distributed.load(path.with_name("file"), {})
    with pytest.raises(StorageError, match="there is no checkpoint"):
        distributed.load(path.with_name("nothing"), {})


def test_a_marked_tree_is_saved_by_one_process_too(path):
    state = distributed.sharded(pb.optim.adam(0.1)).init(PARAMS)
    pb.save(path, state)
    found = pb.load(path)
    assert found.marks == state.marks
    assert_same(found, state)


def test_each_rank_reads_its_own_file_only(path, monkeypatch):
    rule = distributed.sharded(pb.optim.adam(0.1))
    params = {"w": np.ones((40, 30)), "v": np.ones(77)}
    distributed.run(lambda: distributed.save(path, rule.init(params)), 3)
    opened, read, guard = [], [], threading.Lock()
    open_checked, read_slice = CheckpointReader._open_checked, CheckpointReader.read

    def count_files(self, number):
        with guard:
            opened.append((distributed.rank(), number))
        return open_checked(self, number)

    def count_elements(self, name, start, stop):
        with guard:
            read.append(stop - start)
        return read_slice(self, name, start, stop)

    monkeypatch.setattr(CheckpointReader, "_open_checked", count_files)
    monkeypatch.setattr(CheckpointReader, "read", count_elements)
    distributed.run(lambda: distributed.load(path, rule.init(params)), 3)
    steps = 3  # the one array that all ranks have
    assert sum(read) == 2 * (1200 + 77) + steps
    assert {number for rank, number in opened if rank != number} <= {0}  # where the number of steps is


def test_many_files_are_not_open_at_a_time(path, monkeypatch):
    monkeypatch.setattr(file_writer, "_ROW_BYTES", 1)
    monkeypatch.setattr("pullback.distributed.file_reader._MOST_OPEN", 2)
    tree = {"w": np.arange(800.0), "v": np.arange(300.0)}
    distributed.run(lambda: distributed.save(path, tree), 8)
    assert_same(distributed.load(path, tree, verify=True), tree)


# What does not fit


def test_what_the_checkpoint_does_not_have(path):
    distributed.save(path, {"w": np.ones((2, 3), np.float32), "step": 3})

    def refusal(like, kind):
        for found in outcomes(lambda: distributed.load(path, like), 2):
            assert type(found) is kind
            assert str(path) in str(found)
        return str(found)

    assert "no v; it has w, step" in refusal({"v": np.ones(3)}, ArgumentError)
    assert "(2, 3), and (3, 2) in `like`" in refusal({"w": np.ones((3, 2), np.float32)}, ShapeError)
    assert "is float32, and float64 in `like`" in refusal({"w": np.ones((2, 3))}, DtypeError)
    assert "is an array, and a int" in refusal({"w": 1}, ArgumentError)
    assert "is no array, and float64" in refusal({"step": np.ones(())}, ArgumentError)
    marks = distributed.run(lambda: distributed.mark_parts(np.zeros(2, np.float32), np.zeros((2, 3))), 3)[0]
    assert "none of 2 ranks" in refusal({"w": marks}, ShapeError)


def test_one_rank_that_wants_something_else_stops_all(path):
    distributed.save(path, {"w": np.ones(3)})
    like = {"w": np.ones(3)}, {"v": np.ones(3)}
    found = outcomes(lambda: distributed.load(path, like[distributed.rank() == 1]), 3)
    assert all(type(e) is ArgumentError and "rank 1 of 3" in str(e) for e in found)


def different(*trees):
    """A save of another tree on each rank, and its error."""
    found = outcomes(lambda: distributed.save("/nowhere", trees[distributed.rank()]), len(trees))
    assert len({str(e) for e in found}) == 1
    return found[0]


def test_ranks_that_save_different_things():
    for trees in [
        ({"w": np.ones(3)}, {"w": np.ones(4)}),
        ({"w": np.ones(3)}, {"w": np.ones(3, int)}),
        ({"w": np.ones(3)}, {"v": np.ones(3)}),
        ({"w": np.ones(3), "step": 1}, {"w": np.ones(3), "step": 2}),
        ({"t": "a" * 300}, {"t": "a" * 299 + "b"}),
        ({"w": np.ones(3)}, {"w": distributed.mark_summed(np.ones(3))}),
    ]:
        assert isinstance(different(*trees), MismatchError)
    drift = different({"w": np.ones(3), "v": np.ones(2)}, {"w": np.ones(3), "v": np.zeros(2)})
    assert isinstance(drift, ReplicaDriftError)
    assert "v: rank 0 differs from rank 1" in str(drift)
    assert "mark_parts" in str(drift)


def test_what_cannot_be_saved_stops_all_ranks():
    for bad, kind in [
        (object(), ArgumentError),
        (np.array(["a"]), DtypeError),
        (np.ma.array([1.0], mask=[True]), DtypeError),
        (distributed.mark_summed(3), ArgumentError),
        (distributed.MarkedTree(np.ones(3), distributed.mark_summed([1, 2]).marks), ArgumentError),
    ]:
        error = different({"w": np.ones(3)}, {"w": bad})
        assert type(error) is kind
        assert "rank 1 of 2" in str(error)
    with pytest.raises(ArgumentError, match=r"two leaves have the name 'a\.b'"):
        distributed.save("/nowhere", {"a": {"b": 1}, "a.b": 2})
    with pytest.raises(ArgumentError, match="use the name '__metadata__' themselves"):
        distributed.save("/nowhere", {"__metadata__": np.ones(2)})
    with pytest.raises(ArgumentError, match="path comes first"):
        distributed.save({"w": 1}, "here")
    with pytest.raises(ShapeError, match="is no row of"):
        distributed.run(lambda: distributed.mark_parts(np.ones(3), np.ones(4)), 2)
    with pytest.raises(ArgumentError, match="the state has 1 leaves"):
        distributed.mark_state(np.ones(3), pb.optim.adam(0.1), np.ones(4))
    rule, state = distributed.sharded(pb.optim.adam(0.1)), pb.optim.adam(0.1).init(np.ones(3))
    with pytest.raises(ArgumentError, match="marked tree"):
        rule.update(np.ones(3), state, np.ones(3))


def test_parts_of_another_number_of_ranks_are_refused(path):
    parts = distributed.run(lambda: distributed.mark_parts(distributed.shard(np.ones(8)), np.ones(8)), 4)[0]
    for error in outcomes(lambda: distributed.save(path, parts), 2):
        assert isinstance(error, ShapeError)
    assert not path.exists()


# Faults of disks


OLD, NEW = (
    {"w": np.full((50, 7), x), "v": np.full(3, x), "more": [np.full(i, x) for i in range(5)]} for x in (1.0, 2.0)
)


def contents_of(path):
    return sorted(p.name for p in path.iterdir())


class FailingCalls:
    """A call of the operating system that fails on one rank."""

    def __init__(self, monkeypatch, name, rank, number, code=errno.ENOSPC):
        self.left, self.rank, self.code, self.real = number, rank, code, getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args, **options):
        if distributed.world_size() > 1 and distributed.rank() == self.rank:
            self.left -= 1
            if self.left < 0:
                raise OSError(self.code, os.strerror(self.code))
        return self.real(*args, **options)


FAULTS = [("write", r, n) for r in (0, 1, 2) for n in (0, 1, 3)] + [
    ("fsync", 1, 0), ("fsync", 2, 1), ("replace", 1, 0), ("replace", 0, 1), ("open", 0, 0), ("open", 2, 0),
    ("write", 0, 7),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rank", "number"), FAULTS)
def test_a_full_disk_on_one_rank_raises_on_all_and_changes_nothing(path, monkeypatch, name, rank, number):
    monkeypatch.setattr(file_writer, "_ROW_BYTES", 1)
    distributed.run(lambda: distributed.save(path, OLD), 3)
    before = contents_of(path)
    with monkeypatch.context() as patch:
        FailingCalls(patch, name, rank, number)
        found = outcomes(lambda: distributed.save(path, NEW), 3)
    for error in found:
        assert type(error) is StorageError
        assert f"rank {rank} of 3" in str(error)
        assert os.strerror(errno.ENOSPC) in str(error)
    assert contents_of(path) == before
    assert_same(distributed.load(path, OLD, verify=True), OLD)
    distributed.run(lambda: distributed.save(path, NEW), 2)
    assert_same(distributed.load(path, OLD, verify=True), NEW)


def test_a_first_index_that_cannot_be_written(path, monkeypatch):
    FailingCalls(monkeypatch, "replace", 0, 1)  # the second, after that of the data
    for error in outcomes(lambda: distributed.save(path, NEW), 2):
        assert type(error) is StorageError
        assert os.strerror(errno.ENOSPC) in str(error)
    assert contents_of(path) == []


def test_two_full_disks_are_both_named(path, monkeypatch):
    FailingCalls(monkeypatch, "write", 0, 0)
    FailingCalls(monkeypatch, "write", 2, 0, errno.EIO)
    for error in outcomes(lambda: distributed.save(path, NEW), 3):
        assert "rank 0 of 3" in str(error)
        assert "rank 2 of 3" in str(error)
    assert contents_of(path) == []


def test_an_index_in_place_that_may_not_last_is_told(path, monkeypatch):
    """The directory is synced last: if that fails, the new checkpoint is there, and the files of the old one too."""
    distributed.run(lambda: distributed.save(path, OLD), 2)
    with monkeypatch.context() as patch:
        FailingCalls(patch, "fsync", 0, 4, errno.EIO)  # parent, file, directory, index, directory
        found = outcomes(lambda: distributed.save(path, NEW), 2)
    assert all(type(e) is StorageError and "in place" in str(e) for e in found)
    assert_same(distributed.load(path, OLD, verify=True), NEW)
    assert len(contents_of(path)) == 5
    distributed.run(lambda: distributed.save(path, NEW), 2)
    assert len(contents_of(path)) == 3


def test_other_errors_of_one_rank_are_raised_on_all(path, monkeypatch):
    def fail(*args):
        if distributed.rank() == 1:
            raise RuntimeError("surprise")
        return real(*args)

    real = files.write_pieces
    monkeypatch.setattr(files, "write_pieces", fail)
    for error in outcomes(lambda: distributed.save(path, NEW), 2):
        assert type(error) is WorldError
        assert "rank 1 of 2: surprise" in str(error)
    assert contents_of(path) == []


@posix
def test_a_file_that_may_grow_no_further(path):
    """The real thing: a limit of the system on the size of files."""
    distributed.run(lambda: distributed.save(path, OLD), 2)
    before = contents_of(path)
    program = (
        "import resource, signal, numpy as np, pullback as pb\n"
        "from pullback import distributed\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "def save():\n"
        "    own = {'large' if distributed.rank() else 'small': np.ones(1 << (20 if distributed.rank() else 4))}\n"
        "    marks = distributed.MarkedTree(own, pb.distributed.marks.Marks((pb.distributed.marks.Owned(*own),)))\n"
        f"    try: distributed.save({str(path)!r}, marks)\n"
        "    except pb.errors.StorageError as error: return str(error)\n"
        "for text in distributed.run(save, 2): assert 'rank 1 of 2' in text and 'too large' in text, text\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True, timeout=60)
    assert contents_of(path) == before
    assert_same(distributed.load(path, OLD, verify=True), OLD)


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}


def test_a_directory_that_ranks_do_not_share_is_noticed(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    places = path, tmp_path / "elsewhere"
    found = outcomes(lambda: distributed.save(places[distributed.rank()], NEW), 2)
    assert all(type(e) is StorageError and "rank 0 does not see" in str(e) for e in found)
    assert contents_of(path) == contents_of(places[1]) == []


def test_what_killed_saves_left_is_removed_and_nothing_else(path):
    distributed.run(lambda: distributed.save(path, OLD), 2)
    kept = contents_of(path)
    token = "0123456789abcdef"
    left = [f"{token}-0.safetensors", f".{token}-1.safetensors.00ff00ff00ff.unfinished", ".index.json.0a.unfinished"]
    others = ["model.safetensors", "notes.txt", "index.json.bak"]
    for name in [*left, *others]:
        (path / name).write_text("")
    distributed.run(lambda: distributed.save(path, NEW), 2)
    assert set(others) <= set(contents_of(path))
    assert not {*left, *kept} - {"index.json"} & set(contents_of(path))


def test_a_path_that_is_a_file_is_not_replaced(path):
    path.write_text("mine")
    for error in outcomes(lambda: distributed.save(path, NEW), 2):
        assert type(error) is StorageError
        assert "is a file" in str(error)
    assert path.read_text() == "mine"


def test_a_reader_whose_files_are_replaced_meanwhile_reads_the_new_ones(path, monkeypatch):
    distributed.save(path, OLD)
    real, waiting = files.read_index, [True]

    def read_and_replace(directory, what):
        raw = real(directory, what)
        if waiting:
            waiting.clear()
            distributed.save(path, NEW)
        return raw

    monkeypatch.setattr(files, "read_index", read_and_replace)
    assert_same(distributed.load(path, OLD), NEW)


# Damage


def damaged(path, kind, text="", **options):
    found = outcomes(lambda: distributed.load(path, OLD, **options), 2)
    assert all(type(e) is kind for e in found), found
    assert text in str(found[0])


def test_damaged_files(path):
    distributed.run(lambda: distributed.save(path, OLD), 2)
    file = max(path.glob("*.safetensors"), key=lambda p: p.stat().st_size)
    raw = file.read_bytes()
    flipped = bytearray(raw)
    flipped[-5] ^= 1
    file.write_bytes(flipped)
    distributed.load(path, OLD)  # numbers are compared with their digests on request
    damaged(path, FormatError, "are damaged", verify=True)
    file.write_bytes(raw[:-1])
    damaged(path, FormatError, "the index says")
    file.write_bytes(b"\0" * len(raw))
    damaged(path, FormatError)
    file.unlink()
    damaged(path, StorageError, "is missing")
    file.write_bytes(raw)
    damaged_index = (path / "index.json").read_bytes()
    for changed in (b"", b"{}", damaged_index[:-1], damaged_index.replace(b"50", b"51"), b"[" * 100_000):
        (path / "index.json").write_bytes(changed)
        damaged(path, FormatError, "index.json")
    distributed.run(lambda: distributed.save(path, NEW), 2)  # over a damaged one
    assert_same(distributed.load(path, OLD, verify=True), NEW)
    assert len(contents_of(path)) == 3


def rewrite_index(path, change):
    """An index with something changed, and the digest that it then has."""
    body = json.loads((path / "index.json").read_bytes())
    body.pop("digest")
    change(body)
    (path / "index.json").write_bytes(json.dumps({"digest": file_index._digest_of(body), **body}).encode())


def test_hostile_indices(path):
    def write(change):
        distributed.save(path, OLD)
        rewrite_index(path, change)

    def set_array(**fields):
        return lambda body: body["arrays"]["w"].update(fields)

    huge = 1 << 50
    for change in [
        lambda body: body["files"].__setitem__(0, ["../secret", 10]),
        lambda body: body["files"].__setitem__(0, ["/etc/passwd", 10]),
        lambda body: body["files"].__setitem__(0, ["0123456789abcdef-0.safetensors/..", 10]),
        lambda body: body["files"].__setitem__(0, 3),
        lambda body: body["files"].append(body["files"][0]),
        lambda body: body.update(version=2),
        lambda body: body.update(ranks="many"),
        lambda body: body.update(more=1),
        lambda body: body.update(arrays=[]),
        lambda body: body["values"].update(w=1),
        set_array(shape=[huge]),
        set_array(shape=[huge], stops=[huge]),
        set_array(shape=[1 << 61, 1 << 61]),
        set_array(shape=[-1]),
        set_array(shape=[50.0, 7]),
        set_array(shape=[1] * 70),
        set_array(dtype="object"),
        set_array(dtype=["float64"]),
        set_array(dtype="complex128"),
        set_array(files=[7]),
        set_array(files=[0, 0], stops=[100, 350], digests=["", ""]),
        set_array(stops=[]),
        set_array(stops=[351]),
        set_array(digests=[3]),
        set_array(files=None),
    ]:
        write(change)
        for error in outcomes(lambda: distributed.load(path, OLD), 2):
            assert isinstance(error, (FormatError, ShapeError, DtypeError))
        with pytest.raises(FormatError):
            distributed.load(path)
    write(lambda body: body["values"].update(x={"node": ["os:system", None, []]}))
    with pytest.raises(FormatError, match="not known here"):
        distributed.load(path, {"x": 1})


@posix
def test_links_and_pipes_are_not_followed(path, tmp_path):
    distributed.save(path, OLD)
    (file,) = path.glob("*.safetensors")
    outside = file.rename(tmp_path / "outside.safetensors")
    file.symlink_to(outside)
    damaged(path, FormatError, "link out of the directory")
    file.unlink()
    os.mkfifo(file)
    damaged(path, StorageError, "regular file")
    (path / "index.json").unlink()
    os.mkfifo(path / "index.json")
    damaged(path, StorageError, "regular file")


def fuzz(path, seeds):
    """Indices and files in which something is changed are read, or refused by an error of ours."""
    distributed.run(lambda: distributed.save(path, {**OLD, "step": 3}), 2)
    raw, parts = (path / "index.json").read_bytes(), sorted(path.glob("*.safetensors"))
    originals = [p.read_bytes() for p in parts]
    read = 0
    for seed in seeds:
        own = random.Random(seed)
        (path / "index.json").write_bytes(raw)
        if seed % 3:
            changed = bytearray(raw)
            digits = [i for i, c in enumerate(changed) if chr(c).isdigit()]
            at = own.choice(digits)
            changed[at : at + 1] = own.choice(
                [b"-1", b"0", b"9", b"1e9", b"9" * 30, b"null", b"[]", b'""', b"0.5", b""]
            )
            try:
                body = json.loads(changed)
                body.pop("digest", None)
                (path / "index.json").write_bytes(json.dumps({"digest": file_index._digest_of(body), **body}).encode())
            except (ValueError, AttributeError):
                (path / "index.json").write_bytes(changed)
        else:
            number = own.randrange(len(parts))
            changed = bytearray(originals[number])
            changed[own.randrange(len(changed))] = own.randrange(256)
            parts[number].write_bytes(changed)
        try:
            distributed.load(path, verify=bool(seed % 2))
            read += 1
        except PullbackError:
            pass
        for p, original in zip(parts, originals, strict=True):
            p.write_bytes(original)
    return read


def test_changed_checkpoints_are_read_or_refused(path):
    assert fuzz(path, range(300)) < 300


@pytest.mark.sweep
def test_many_changed_checkpoints_are_read_or_refused(path):
    assert fuzz(path, range(300, 20_000)) < 20_000


# Kills


KILLED = """
import itertools, os, shutil, signal, sys
import numpy as np
import pullback as pb
from pullback import distributed
from pullback.distributed import file_writer

file_writer._ROW_BYTES = 1  # each rank writes something of every array
template, place, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
make = lambda x: {"w": np.full((50, 7), x), "v": np.full(3, x), "more": [np.full(i + 2, x) for i in range(34)]}
old, new = make(1.0), make(2.0)
distributed.run(lambda: distributed.save(template, old), 3)


def die_before(point):
    calls = itertools.count()
    for name in ("open", "write", "fsync", "close", "replace", "unlink", "mkdir"):
        def call(*args, real=getattr(os, name), **options):
            if next(calls) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)
        setattr(os, name, call)


found = []
for point in itertools.count(0, step):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place)
    child = os.fork()
    if not child:
        die_before(point)
        distributed.run(lambda: distributed.save(place, new), 2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    read = distributed.load(place, old, verify=True)
    values = {float(x) for array in (read["w"], read["v"], *read["more"]) for x in array.flat}
    assert len(values) == 1, values
    found.append(values.pop())
    if os.WIFEXITED(status):
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    if point % 7 == 0:  # the next save is not disturbed by what is left
        distributed.run(lambda: distributed.save(place, new), 2)
        assert distributed.load(place, old, verify=True)["v"][0] == 2.0
        assert len(os.listdir(place)) == 3
assert found == sorted(found) and set(found) == {1.0, 2.0}, found
print(len(found) - 1, found.count(1.0))
"""


def kill_saves(tmp_path, step):
    """Kills before calls of the system in a save over another one; how many, and after how many the old one is read."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "template"), str(tmp_path / "place"), str(step)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [int(x) for x in done.stdout.split()]


@posix
def test_a_kill_leaves_the_old_checkpoint_or_the_new_one(tmp_path):
    kills, old = kill_saves(tmp_path, 9)
    assert kills >= 10
    assert 0 < old <= kills


@posix
@pytest.mark.sweep
def test_a_kill_before_any_call_leaves_the_old_checkpoint_or_the_new_one(tmp_path):
    assert kill_saves(tmp_path, 1)[0] >= 100


# Ranks that are processes


def launched(tmp_path, ranks, program, *arguments):
    """Run a program on ranks that MPI starts."""
    pytest.importorskip("mpi4py")
    try:
        launcher = find_launcher()
    except WorldError as error:
        pytest.skip(str(error))
    script = tmp_path / "program.py"
    script.write_text(program)
    command = launch_command(launcher, ranks, [sys.executable, "-u", str(script), *map(str, arguments)])
    return subprocess.run(
        command, env=launch_environment(ranks, environment()), capture_output=True, text=True, timeout=120
    )


SAVING = """
import errno, os, sys, numpy as np, pullback as pb
from pullback import distributed
distributed.init(timeout=20)
rank, path = distributed.rank(), sys.argv[1]


def fail(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


write, os.write = os.write, fail if rank == 1 else os.write
try:
    distributed.save(path, {"w": np.ones(100_000)})
except pb.errors.StorageError as error:
    assert "rank 1 of 2" in str(error) and "No space left" in str(error), error
    print("rank", rank, "knows", os.listdir(path))
os.write = write
rule = distributed.sharded(pb.optim.adam(0.1))
params = {"w": np.arange(15.0).reshape(5, 3), "big": np.arange(200_001.0)}
state = rule.init(params)
own = distributed.mark_summed(np.full(4, 1.0 + rank))
for step in range(2):
    updates, state = rule.update(params, state, params)
    distributed.save(path, {"params": params, "state": state, "own": own, "step": step})
"""
LOADING = """
import sys, numpy as np, pullback as pb
from pullback import distributed
distributed.init(timeout=20)


def load(path):
    rule = distributed.sharded(pb.optim.adam(0.1))
    params = {"w": np.arange(15.0).reshape(5, 3), "big": np.arange(200_001.0)}
    like = {"params": params, "state": rule.init(params), "own": distributed.mark_summed(np.zeros(4)), "step": 0}
    found = distributed.load(path, like, verify=True)
    state = rule.init(params)
    for _ in range(2):
        updates, state = rule.update(params, state, params)
    ours, theirs = (pb.tree.leaves(t) for t in (state, found["state"]))
    assert all(np.array_equal(x, y) for x, y in zip(ours, theirs)), "another state"
    assert found["step"] == 1 and np.array_equal(found["params"]["big"], params["big"])
    assert found["own"].tree.tolist() == ([3.0] * 4 if distributed.rank() == 0 else [0.0] * 4)
    print("rank", distributed.rank(), "has it")


if __name__ == "__main__":
    load(sys.argv[1])
"""


def save_by_processes(tmp_path, path):
    done = launched(tmp_path, 2, SAVING, path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("knows []") == 2
    assert len(contents_of(path)) == 3


def test_processes_save_and_know_of_a_full_disk(tmp_path, path, capsys):
    save_by_processes(tmp_path, path)
    program = {"__name__": "program"}
    exec(LOADING.replace("distributed.init(timeout=20)", ""), program)
    distributed.run(lambda: program["load"](path), 3)
    assert capsys.readouterr().out.count("has it") == 3


@pytest.mark.sweep
def test_processes_load_what_others_saved(tmp_path, path):
    save_by_processes(tmp_path, path)
    for ranks in (1, 2, 3, 4):
        done = launched(tmp_path, ranks, LOADING, path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("has it") == ranks


DYING = """
import itertools, os, signal, sys, numpy as np, pullback as pb
from pullback import distributed
distributed.init(timeout=5)
rank, point = int(sys.argv[2]), int(sys.argv[3])
calls = itertools.count()
if distributed.rank() == rank:
    for name in ("open", "write", "fsync", "replace", "unlink"):
        def call(*args, real=getattr(os, name), **options):
            if next(calls) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)
        setattr(os, name, call)
make = lambda x: {"w": np.full((50, 7), x), "v": np.full(3, x), "more": [np.full(i, x) for i in range(5)]}
try:
    distributed.save(sys.argv[1], make(2.0))
except pb.errors.WorldError as error:
    os.write(1, f"survivor: {type(error).__name__}\\n".encode())
"""


def kill_one_process(tmp_path, path, rank, point):
    """Kill one of two processes in its save; the other one must know, and the checkpoint must be whole."""
    distributed.run(lambda: distributed.save(path, OLD), 3)
    done = launched(tmp_path, 2, DYING, path, rank, point)
    found = distributed.load(path, OLD, verify=True)
    assert float(found["v"][0]) in (1.0, 2.0)
    assert_same(found, OLD if found["v"][0] == 1.0 else NEW)
    assert found["v"][0] == 2.0 or "survivor: " in done.stdout, done.stderr[-2000:]
    return float(found["v"][0])


@posix
def test_a_process_that_is_killed_leaves_a_whole_checkpoint(tmp_path, path):
    assert kill_one_process(tmp_path, path, 1, 4) == 1.0


@posix
@pytest.mark.sweep
def test_a_process_that_is_killed_anywhere_leaves_a_whole_checkpoint(tmp_path, path):
    points = [(rank, point) for rank in (0, 1) for point in range(0, 26, 2)]
    assert {kill_one_process(tmp_path, path, *p) for p in points} == {1.0, 2.0}
