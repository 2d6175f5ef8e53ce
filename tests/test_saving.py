"""What is saved comes back as it was, whole or not at all; a file that is not as it must be raises an error of ours."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, FormatError, StorageError
from pullback.saving import class_names

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
]  # fmt: skip
SHAPES = [(), (3,), (0,), (2, 0, 3), (2, 3, 4)]


class Pair(NamedTuple):
    left: object
    right: object


class Line:
    def __init__(self, slope, height, name):
        self.slope, self.height, self.name = slope, height, name


pb.register_tree(Line, lambda line: ((line.slope, line.height), line.name), lambda name, both: Line(*both, name))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.safetensors"


def round_trip(path, tree, **options):
    pb.save(path, tree)
    return pb.load(path, **options)


def same(a, b):
    assert type(a) is type(b)
    assert a.dtype == b.dtype.newbyteorder("=")
    assert a.dtype is np.dtype(a.dtype.type), "the object that NumPy itself uses"
    assert a.shape == b.shape
    assert a.tobytes() == b.astype(b.dtype.newbyteorder("=")).tobytes()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype_and_shape(path, dtype, shape, mmap):
    rng = np.random.default_rng(0)
    array = np.asarray(rng.normal(size=shape) * 3).astype(pb.bfloat16 if dtype == "bfloat16" else dtype)
    found = round_trip(path, {"x": array, "y": [array[..., None]]}, mmap=mmap)
    same(found["x"], array)
    same(found["y"][0], array[..., None])


def test_memory_as_it_may_lie(path):
    base = np.arange(24.0).reshape(2, 3, 4)
    frozen = base.copy()
    frozen.flags.writeable = False
    for array in (
        base.T,
        base[:, ::2, ::-1],
        base.astype(">f8"),
        base.astype(">c16"),
        np.broadcast_to(1.5, (2, 2)),
        frozen,
    ):
        same(round_trip(path, array), np.asarray(array))
    assert round_trip(path, base).flags.writeable


def test_special_numbers_keep_their_bits(path):
    array = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])
    same(round_trip(path, array), array)


def test_settings_and_containers(path):
    tree = {
        "none": None, "bool": True, "int": 2**80, "float": 0.1, "text": "Größe 🙂", "complex": 1 - 2.5j, 3: "whole key",
        None: "no key", "list": [1, [2, []]], "tuple": ((), (1, "a")), "dict": {}, "inf": float("-inf"),
        "pair": Pair(1, Pair([2.0], None)), "dtype": np.dtype("float32"), "a.b": 1, "": 2,
    }  # fmt: skip
    found = round_trip(path, tree)
    assert found == tree
    assert list(found) == list(tree)
    assert type(found["bool"]) is bool
    assert type(found["pair"]) is Pair
    assert type(found["list"]) is list
    assert type(found["tuple"][0]) is tuple
    assert np.isnan(round_trip(path, float("nan")))


def test_numpy_scalars(path):
    for x in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1 + 2j)):
        found = round_trip(path, [x])[0]
        assert type(found) is type(x)
        assert found == x


def test_keys_that_read_the_same_as_text(path):
    tree = {"a": {"b": np.ones(1)}, "a.b": np.zeros(2), 1: np.ones(3), "1": np.zeros(4), "__metadata__": np.ones(5)}
    found = round_trip(path, tree)
    assert [found["a"]["b"].size, *(found[k].size for k in ("a.b", 1, "1", "__metadata__"))] == [1, 2, 3, 4, 5]
    names = round_trip(path, {"complex x": np.ones(2), "x": np.ones(2) * 1j})
    same(names["complex x"], np.ones(2))


def test_tensors_come_back_as_tensors(path):
    w = pb.tensor([1.0, 2.0], requires_grad=True)
    found = round_trip(path, {"w": w, "tied": w, "c": pb.tensor(3), "made": w * 2})
    assert found["w"] is found["tied"]
    assert found["w"].requires_grad
    assert found["w"].is_leaf
    assert not found["c"].requires_grad
    assert not found["made"].requires_grad
    pb.sum(found["w"] * found["tied"]).backward()
    assert found["w"].grad.tolist() == [2.0, 4.0]
    assert found["made"].tolist() == [2.0, 4.0]


def test_the_same_array_twice_is_written_once(path):
    array = np.zeros(1000)
    found = round_trip(path, [array, array])
    assert found[0] is found[1]
    assert path.stat().st_size < 10_000


def test_registered_classes(path):
    found = round_trip(path, Line(np.ones(2), 3.0, ("name", 1)))
    assert type(found) is Line
    assert (found.slope.tolist(), found.height, found.name) == ([1.0, 1.0], 3.0, ("name", 1))


def test_a_class_that_is_not_loaded_is_asked_for(path):
    pb.save(path, Pair(1, 2))
    raw = path.read_bytes().replace(b"test_saving:Pair", b"not_loaded_:Pair")
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="not known here"):
        pb.load(path)
    assert "not_loaded_" not in sys.modules
    moved = namedtuple("Pair", "left right", module="not_loaded_")
    assert pb.load(path, kinds=[moved]) == (1, 2)


def test_a_class_of_the_file_must_be_a_tuple_or_registered(path):
    for name in ("builtins:str", "os:system", "builtins:eval", "subprocess:Popen", "test_saving:Line"):
        write(path, structure={"named": [name, [["a", 1]]]})
        with pytest.raises(FormatError):
            pb.load(path)
        write(path, structure={"node": [name if name[0] != "t" else "test_saving:Pair", None, []]})
        with pytest.raises(FormatError):
            pb.load(path)


def test_the_state_of_the_package_is_found_by_a_new_process(path):
    pb.random.seed(3)
    pb.save(path, pb.random.state())
    program = "import sys, pullback as pb; print(pb.load(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "State(words=(0, 3), drawn=0)\n"


def test_metadata(path):
    pb.save(path, {"w": np.ones(2)}, metadata={"author": "Ä", "step": "3"})
    assert pb.load_metadata(path) == {"author": "Ä", "step": "3"}
    for wrong in ({"a": 1}, {1: "a"}, {"pullback": "x"}):
        with pytest.raises(ArgumentError, match="metadata"):
            pb.save(path, {}, metadata=wrong)


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        ({"a": [object()]}, ArgumentError), ({"a": {1.5: 2}}, ArgumentError), (np.array(["a"]), DtypeError),
        ({"f": print}, ArgumentError), (b"bytes", ArgumentError), ({"\ud800": np.ones(1)}, ArgumentError),
        (np.array([None]), DtypeError), (np.zeros(2, "i4,f4"), DtypeError), (np.zeros(2, np.longdouble), DtypeError),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_said_and_leaves_nothing(path, tree, error):
    pb.save(path, 1)
    with pytest.raises(error, match="save"):
        pb.save(path, tree)
    assert pb.load(path) == 1
    assert os.listdir(path.parent) == [path.name]


def test_trees_without_end_and_values_of_transforms(path):
    tree = []
    tree.append(tree)
    with pytest.raises(ArgumentError, match="deeply"):
        pb.save(path, tree)
    with pytest.raises(ConversionError, match="transform"):
        pb.vmap(lambda x: pb.save(path, {"x": x}) or x)(np.ones(2))

    class Local(NamedTuple):
        a: int

    with pytest.raises(ArgumentError, match="inside a function"):
        pb.save(path, Local(1))


def test_other_readers_and_writers(path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {f"x{d}": np.ones((2, 3), d) for d in DTYPES if d not in ("bfloat16", "complex64", "complex128")}
    pb.save(path, {"model": arrays, "empty": np.ones((0, 2)), "number": np.array(1.5)})
    read = numpy.load_file(path)
    assert read.keys() == {*(f"model.{name}" for name in arrays), "empty", "number"}
    for name, array in arrays.items():
        same(read[f"model.{name}"], array)
    numpy.save_file({**arrays, "number": np.array(2.5)}, path, metadata={"by": "others"})
    for mmap in (False, True):
        found = pb.load(path, mmap=mmap)
        assert found.keys() == {*arrays, "number"}
        same(found["number"], np.array(2.5))
        for name, array in arrays.items():
            same(found[name], array)
    assert pb.load_metadata(path) == {"by": "others"}


def test_mapped_arrays_are_views_and_outlive_the_name(path):
    array = np.arange(1e6)
    pb.save(path, {"x": array, "t": pb.tensor(array, requires_grad=True)})
    tracemalloc.start()
    found = pb.load(path, mmap=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert not found["x"].flags.writeable
    assert found["x"].ctypes.data % 64 == 0
    pb.save(path, None)
    path.unlink()
    assert np.array_equal(found["x"], array)
    pb.sum(found["t"] ** 2).backward()
    assert np.array_equal(found["t"].grad, 2 * array)


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    pb.save(real, 1)
    link.symlink_to(real)
    pb.save(link, 2)
    assert link.is_symlink()
    assert pb.load(real) == 2


def test_where_nobody_can_write(tmp_path, path, monkeypatch):
    with pytest.raises(StorageError, match="cannot write"):
        pb.save(tmp_path / "nowhere" / "x", 1)
    with pytest.raises(FileNotFoundError):
        pb.load(tmp_path / "nothing")
    pb.save(path, 1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        pb.save(path, 2)
    assert os.listdir(tmp_path) == [path.name]
    assert pb.load(path) == 1


KILLED = """
import os, signal, sys
import numpy as np, pullback as pb
from pullback.saving import atomic_write
path, limit, count = sys.argv[1], int(sys.argv[2]), 0
atomic_write._CHUNK_BYTES = 100_000

def watched(function):
    def call(*args):
        global count
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        return function(*args)
    return call

for name in ("open", "write", "fsync", "close", "replace"):
    setattr(os, name, watched(getattr(os, name)))
pb.save(path, {"w": np.full(40_000, 2.0), "step": 2})
"""


def test_a_kill_at_any_point_leaves_the_last_complete_file(path):
    pb.save(path, {"w": np.full(40_000, 1.0), "step": 1})
    seen = []
    for limit in range(100):
        if pb.load(path)["step"] == 2:
            pb.save(path, {"w": np.full(40_000, 1.0), "step": 1})
        done = subprocess.run([sys.executable, "-c", KILLED, path, str(limit)], check=False)
        found = pb.load(path)
        assert (found["w"] == found["step"]).all()
        seen.append(found["step"])
        if done.returncode == 0:
            break
        assert done.returncode == -9
    assert len(seen) > 8
    assert seen == sorted(seen), "old until it is new"
    assert (seen[0], seen[-1]) == (1, 2)


def write(path, head=None, data=b"", structure=None, length=None):
    """A file with a head of one's own."""
    head = {} if head is None else head
    if structure is not None:
        head["__metadata__"] = {"pullback": json.dumps({"version": 1, "tree": structure})}
    raw = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)


def entry(shape, start, stop, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop], **more}


NOTHING = b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
HOSTILE = {
    "no bytes": (b"", None),
    "a huge head": ({}, {"length": 2**63}),
    "the longest head": ({}, {"length": 2**64 - 1}),
    "a head beyond the file": ({}, {"length": 3}),
    "no JSON": (b"{'a'}", None),
    "no dict": (b"[1]", None),
    "wrong UTF-8": (b'{"\xff\xfe":1}', None),
    "deep nesting": (b"[" * 200_000, None),
    "deep nesting in a dict": (b'{"a":' * 100_000, None),
    "a name twice": (b"{" + NOTHING + b"," + NOTHING + b"}", None),
    "a long number": (b'{"a":' + b"9" * 10_000 + b"}", None),
    "not a number": (b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}', None),
    "metadata that is no text": ({"__metadata__": {"a": 1}}, None),
    "metadata that is a list": ({"__metadata__": []}, None),
    "a hole before": ({"a": entry([1], 4, 8)}, {"data": b"12345678"}),
    "a hole between": ({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, {"data": b"123456789012"}),
    "an overlap": ({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, {"data": b"12345678"}),
    "the same bytes twice": ({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, {"data": b"1234"}),
    "bytes at the end": ({"a": entry([1], 0, 4)}, {"data": b"12345"}),
    "bytes missing": ({"a": entry([1], 0, 4)}, {"data": b"123"}),
    "an offset below zero": ({"a": entry([1], -4, 0)}, {"data": b"1234"}),
    "offsets turned round": ({"a": entry([1], 4, 0)}, {"data": b"1234"}),
    "huge offsets": ({"a": entry([2**60], 0, 2**62)}, {"data": b"1234"}),
    "offsets beyond any integer": ({"a": entry([1], 2**70, 2**70 + 4)}, {"data": b"1234"}),
    "sizes whose product overflows": ({"a": entry([2**32, 2**32], 0, 0)}, None),
    "nothing times too much": ({"a": entry([0, 2**61, 2**61], 0, 0)}, None),
    "a negative size": ({"a": entry([-1], 0, 4)}, {"data": b"1234"}),
    "a size that is true": ({"a": entry([True], 0, 4)}, {"data": b"1234"}),
    "a size that is a fraction": ({"a": entry([1.0], 0, 4)}, {"data": b"1234"}),
    "too many axes": ({"a": entry([1] * 65, 0, 4)}, {"data": b"1234"}),
    "an unknown dtype": ({"a": entry([1], 0, 4, "F128")}, {"data": b"1234"}),
    "a dtype that is a list": ({"a": entry([1], 0, 4, ["F32"])}, {"data": b"1234"}),
    "more than is known": ({"a": entry([1], 0, 4, x=1)}, {"data": b"1234"}),
    "three offsets": ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}}, {"data": b"1234"}),
    "an entry that is a number": ({"a": 1}, None),
    "a truth of two": ({"a": entry([1], 0, 1, "BOOL")}, {"data": b"\x02"}),
    "a structure that is no JSON": ({"__metadata__": {"pullback": "{"}}, None),
    "a structure without a version": ({"__metadata__": {"pullback": '{"tree": 1}'}}, None),
    "a structure of tomorrow": ({"__metadata__": {"pullback": '{"version": 9, "tree": 1}'}}, None),
    "a deep structure": ({"__metadata__": {"pullback": '{"version":1,"tree":' + "[" * 50_000}}, None),
    "a structure that is a list": ({"__metadata__": {"pullback": "[]"}}, None),
    "a word nobody knows": ({}, {"structure": {"code": "import os"}}),
    "a word of the reader's own": ({}, {"structure": {"class": "os:system"}}),
    "two words": ({}, {"structure": {"tuple": [], "dict": []}}),
    "an array that is not there": ({}, {"structure": {"array": "a"}}),
    "an array named by a list": ({}, {"structure": {"array": ["a"]}}),
    "an array without a place": ({"a": entry([1], 0, 4)}, {"data": b"1234", "structure": 1}),
    "pairs that are none": ({"a": entry([1], 0, 4)}, {"data": b"1234", "structure": {"array": {"pairs": "a"}}}),
    "pairs of whole numbers": ({"a": entry([2], 0, 2, "U8")}, {"data": b"12", "structure": {"array": {"pairs": "a"}}}),
    "a scalar of two": ({"a": entry([2], 0, 8)}, {"data": b"12345678", "structure": {"scalar": "a"}}),
    "a gradient of bytes": ({"a": entry([1], 0, 1, "U8")}, {"data": b"1", "structure": {"tensor": ["a", True]}}),
    "a float that is code": ({}, {"structure": {"float": "__import__('os')"}}),
    "a complex that is text": ({}, {"structure": {"complex_": ["a", 1]}}),
    "a dict with a list as key": ({}, {"structure": {"dict": [[[1], 2]]}}),
    "a dict of triples": ({}, {"structure": {"dict": [[1, 2, 3]]}}),
    "a tuple that is a number": ({}, {"structure": {"tuple": 3}}),
    "fields that are others": ({}, {"structure": {"named": ["test_saving:Pair", [["left", 1], ["wrong", 2]]]}}),
    "a class by a number": ({}, {"structure": {"node": [3, None, []]}}),
    "a dtype that is none": ({}, {"structure": {"dtype": "O"}}),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_raise_without_large_allocation(path, what):
    head, options = HOSTILE[what]
    if head == b"" and options is None:
        path.write_bytes(b"")
    else:
        write(path, head, **(options or {}))
    for mmap in (False, True):
        tracemalloc.start()
        try:
            with pytest.raises(pb.errors.PullbackError):
                pb.load(path, mmap=mmap)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 20_000_000


def test_every_cut_is_noticed(path):
    pb.save(path, {"w": np.arange(5.0), "b": np.ones(3, bool), "n": [1, None]})
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(FormatError):
            pb.load(path)


def test_every_damaged_byte_raises_ours_or_reads_something(path):
    """No byte of a head, whatever it turns into, gets anything but an error of ours or a tree."""
    pb.save(path, {"w": np.arange(2.0), "pair": Pair(1, 2.5), "c": np.ones(1) * 1j})
    raw = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    noticed = 0
    for at in range(len(raw)):
        damaged = raw.copy()
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            pb.load(path)
        except pb.errors.PullbackError:
            noticed += 1
    assert noticed > len(raw) // 2


def test_checkpoints_keep_the_newest(tmp_path):
    kept = pb.Checkpoints(tmp_path / "run" / "a", keep=2)
    assert kept.latest() is None
    with pytest.raises(StorageError, match="no step"):
        kept.restore()
    (kept.directory / ".step-0000000001.safetensors.abc.unfinished").write_bytes(b"")
    (kept.directory / "notes.txt").write_text("mine")
    for step in (1, 5, 30):
        path = kept.save(step, {"step": step}, metadata={"loss": "0.5"})
    assert kept.steps() == [5, 30]
    assert kept.restore() == {"step": 30}
    assert kept.restore(5) == {"step": 5}
    assert pb.load_metadata(path) == {"loss": "0.5"}
    assert sorted(p.name for p in kept.directory.iterdir()) == [
        "notes.txt", "step-0000000005.safetensors", "step-0000000030.safetensors"]  # fmt: skip
    with pytest.raises(StorageError, match="there are: 5, 30"):
        kept.restore(1)
    for wrong in (-1, True, 1.5):
        with pytest.raises(ArgumentError):
            kept.save(wrong, None)
    with pytest.raises(ArgumentError):
        pb.Checkpoints(tmp_path, keep=0)


def test_keeping_one(tmp_path):
    kept = pb.Checkpoints(tmp_path, keep=1)
    for step in range(3):
        kept.save(step, step)
    assert kept.steps() == [2]


def noisy_loss(w, x):
    noise = pb.random.normal(size=x.shape, dtype=np.float32)
    return pb.mean(pb.square(pb.tanh((x + 0.1 * noise) @ w)))


def tape_step(state):
    """A step with momentum on the tape, whose noise comes from the default generator."""
    w, x = state["w"], np.ones((4, 3), np.float32)
    noisy_loss(w, x).backward()
    velocity = 0.9 * state["v"] + w.grad.numpy()
    with pb.no_grad():
        w -= np.float32(0.1) * velocity
    w.grad = None
    return {"w": w, "v": velocity, "step": state["step"] + 1}


@pb.jit
def compiled_step(state, key):
    x = np.ones((4, 3), np.float32) + 0.1 * pb.random.normal(size=(4, 3), dtype=np.float32, key=key)
    g = pb.grad(lambda w: pb.mean(pb.square(pb.tanh(x @ w))))(state["w"])
    velocity = 0.9 * state["v"] + g
    return {"w": state["w"] - np.float32(0.1) * velocity, "v": velocity}


def jitted_step(state):
    new = compiled_step({"w": state["w"], "v": state["v"]}, pb.random.fold_in(pb.random.key(7), state["step"]))
    return {**new, "step": state["step"] + 1}


@pytest.mark.parametrize("step", [tape_step, jitted_step])
def test_training_continues_bit_for_bit(tmp_path, step):
    def start():
        w = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
        made = pb.tensor(w, requires_grad=True) if step is tape_step else w
        return {"w": made, "v": np.zeros((3, 2), np.float32), "step": 0}

    pb.random.seed(1)
    state = start()
    for _ in range(10):
        state = step(state)
    expected = np.asarray(pb.stop_gradient(state["w"]) if step is not tape_step else state["w"].detach())

    pb.random.seed(1)
    kept, state = pb.Checkpoints(tmp_path), start()
    for _ in range(4):
        state = step(state)
    kept.save(state["step"], {"state": state, "random": pb.random.state()})
    pb.random.seed(99)
    found = kept.restore()
    pb.random.restore(found["random"])
    state = found["state"]
    while state["step"] < 10:
        state = step(state)
    assert expected.tobytes() == np.asarray(state["w"].detach() if step is tape_step else state["w"]).tobytes()


@pytest.mark.gpu
def test_arrays_of_a_gpu_come_back_on_the_host(path):
    cupy = pytest.importorskip("cupy")
    found = round_trip(path, {"x": cupy.arange(3.0), "z": cupy.ones(2) * 1j})
    same(found["x"], np.arange(3.0))
    same(found["z"], np.ones(2) * 1j)


def test_files_name_our_classes_so_that_their_modules_may_move(path):
    net = pb.nn.Sequential(pb.nn.Linear(2, 3), pb.nn.BatchNorm(3))
    state = pb.optim.adam(1e-3).init(net.arrays())
    tree = {"net": net, "state": state, "random": pb.random.state(), "svd": pb.linalg.svd(np.eye(2))}
    pb.save(path, tree)
    header = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])

    def names(data):
        if isinstance(data, dict):
            found = {data[tag][0] for tag in ("named", "node") if tag in data}
            return found.union(*map(names, data.values()))
        return set().union(*map(names, data)) if isinstance(data, list) else set()

    assert names(json.loads(header["__metadata__"]["pullback"])) == {
        "pullback.nn:Sequential", "pullback.nn:Linear", "pullback.nn:BatchNorm", "pullback.optim:State",
        "module.container", "module.slot", "module.static", "random.state", "linalg.SVD",
    }  # fmt: skip
    found = pb.load(path)
    assert type(found["net"][0]) is pb.nn.Linear
    assert type(found["svd"]) is type(tree["svd"])
    assert found["random"] == tree["random"]


@pytest.mark.parametrize("name", class_names.PRIVATE_CLASSES)
def test_every_short_name_of_a_class_is_found(name):
    found = class_names.find_class(name)
    assert isinstance(found, type)
    assert class_names.class_name(found, "it") == name
