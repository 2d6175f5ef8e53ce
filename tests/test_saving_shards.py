"""Files of limited size with an index: read as a whole, by name and by other readers; old until they are new."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, FormatError, StorageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors.index.json"


def arrays_of(number):
    return {f"w{i}": np.full((10, i + 1), number + i, "f4") for i in range(6)}


def files_of(path):
    return sorted(p.name for p in path.parent.iterdir() if p != path)


@pytest.mark.parametrize("mmap", [False, True])
def test_a_tree_comes_back_from_several_files(path, mmap):
    shared = np.arange(3.0)
    tree = {
        "layers": [arrays_of(0), (shared, shared)], "w": pb.tensor([1.0, 2.0], requires_grad=True),
        "z": np.ones(2) * 1j, "nothing": None, "empty": np.zeros((0, 3)), "rate": 0.1, "flags": np.array([True, False]),
    }  # fmt: skip
    pb.save(path, tree, {"about": "é"}, max_shard_bytes=200)
    found = pb.load(path, mmap=mmap)
    assert len(files_of(path)) > 4
    assert found["layers"][1][0] is found["layers"][1][1]
    assert found["w"].requires_grad
    assert found["rate"] == 0.1
    assert found.keys() == tree.keys()
    for a, b in zip(pb.tree.leaves(found), pb.tree.leaves(tree), strict=True):
        assert np.array_equal(*(x.detach() if isinstance(x, pb.Tensor) else x for x in (a, b)))
    assert pb.load_metadata(path) == {"about": "é"}


def test_no_file_holds_more_than_it_may_but_for_one_array(path):
    pb.save(path, arrays_of(0), max_shard_bytes="130 B")
    index = json.loads(path.read_text())
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in arrays_of(0).values())
    held = {}
    for name, file in index["weight_map"].items():
        held.setdefault(file, []).append(arrays_of(0)[name].nbytes)
    assert sorted(held) == files_of(path)
    assert all(sum(sizes) <= 130 or len(sizes) == 1 for sizes in held.values())
    assert list(held.values()) == [[40, 80], [120], [160], [200], [240]], "as many as fit, in order"


def test_other_programs_read_and_write_them(path):
    numpy = pytest.importorskip("safetensors.numpy")
    pb.save(path, arrays_of(1), max_shard_bytes=300)
    for name, file in json.loads(path.read_text())["weight_map"].items():
        assert np.array_equal(numpy.load_file(path.with_name(file))[name], arrays_of(1)[name])
    for number in (1, 2):
        numpy.save_file({f"x{number}": np.full(2, number)}, path.with_name(f"part-{number}.safetensors"))
    path.write_text(json.dumps({"weight_map": {"x2": "part-2.safetensors", "x1": "part-1.safetensors"}}))
    found = pb.load(path)
    assert list(found) == ["x2", "x1"]
    assert found["x2"].tolist() == [2, 2]


def test_arrays_are_read_by_name(path, tmp_path, monkeypatch):
    pb.save(path, {"a": arrays_of(0), "t": pb.tensor([1.0])}, {"about": "x"}, max_shard_bytes=200)
    pb.save(tmp_path / "one.safetensors", {"a": arrays_of(0), "t": pb.tensor([1.0])}, {"about": "x"})
    for file in (path, tmp_path / "one.safetensors"):
        arrays = pb.StoredArrays(file, mmap=file is path)
        assert sorted(arrays) == [*(f"a.w{i}" for i in range(6)), "t"]
        assert np.array_equal(arrays["a.w3"], arrays_of(0)["w3"])
        assert arrays["a.w3"].flags.writeable == (file is not path)
        assert "a.w9" not in arrays
        assert arrays.metadata == {"about": "x"}
        with pytest.raises(KeyError):
            arrays["a.w9"]
    arrays = pb.StoredArrays(path)
    for other in files_of(path):
        if other != json.loads(path.read_text())["weight_map"]["t"]:
            path.with_name(other).unlink()
    assert arrays["t"].tolist() == [1.0], "no other file is opened"
    pb.save(path, {"t": np.zeros(1)})
    with pytest.raises(StorageError, match="is gone"):
        arrays["t"]


def test_files_of_the_save_before_are_removed_and_no_others(path):
    others = ["model-00001-of-00002.safetensors", "model.safetensors", "other-01234567-00001-of-00001.safetensors"]
    for name in others:
        path.with_name(name).write_bytes(b"x")
    pb.save(path, arrays_of(0), max_shard_bytes=100)
    before = files_of(path)
    path.with_name(".model-01234567-00001-of-00002.safetensors.abc.unfinished").write_bytes(b"x")
    pb.save(path, arrays_of(1), max_shard_bytes=500)
    assert set(before) & set(files_of(path)) == set(others)
    assert sorted({*json.loads(path.read_text())["weight_map"].values(), *others}) == files_of(path)
    pb.save(path, {"step": 3})
    assert files_of(path) == sorted(others)
    assert pb.load(path) == {"step": 3}


def test_a_save_that_fails_leaves_the_one_before(path, monkeypatch):
    pb.save(path, arrays_of(0), max_shard_bytes=100)
    before, write, calls = files_of(path), os.write, []

    def full(*args):
        calls.append(args)
        if len(calls) > 5:
            raise OSError(28, "No space left on device")
        return write(*args)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        pb.save(path, arrays_of(1), max_shard_bytes=100)
    assert files_of(path) == before
    assert np.array_equal(pb.load(path)["w1"], arrays_of(0)["w1"])


KILLED = """
import os, signal, sys
import numpy as np, pullback as pb
path, limit, kind, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], 0

def watched(function):
    def call(*args, **more):
        global count
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        return function(*args, **more)
    return call

for name in ("open", "fsync", "replace", "unlink"):
    setattr(os, name, watched(getattr(os, name)))
tree = {"a": np.full(3, 2.0), "b": np.full(3, 2.0), "step": 2}
if kind == "async":
    pb.save_async(path, tree, max_shard_bytes=24)
else:
    pb.save(path, tree, max_shard_bytes=24)
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_kill_at_any_point_leaves_all_of_one_save(path, kind):
    pb.save(path, {"a": np.ones(3), "b": np.ones(3), "step": 1}, max_shard_bytes=24)
    seen = []
    for limit in range(0, 100, 3 if kind == "sync" else 8):
        if pb.load(path)["step"] == 2:
            pb.save(path, {"a": np.ones(3), "b": np.ones(3), "step": 1}, max_shard_bytes=24)
        done = subprocess.run([sys.executable, "-c", KILLED, path, str(limit), kind], check=False)
        found = pb.load(path)
        assert (found["a"] == found["step"]).all()
        assert (found["b"] == found["step"]).all()
        seen.append(found["step"])
        if done.returncode == 0:
            break
        assert done.returncode == -9
    assert len(seen) > 2
    assert seen == sorted(seen), "old until it is new"
    assert (seen[0], seen[-1]) == (1, 2)
    pb.save(path, {"step": 3})
    assert files_of(path) == [], "what killed processes left is removed"


INDEXES = {
    "no JSON": b"{",
    "no dict": b"[]",
    "no map": b"{}",
    "a map that is a list": b'{"weight_map": ["a"]}',
    "a file elsewhere": b'{"weight_map": {"a": "../a.safetensors"}}',
    "an absolute path": b'{"weight_map": {"a": "/a.safetensors"}}',
    "a drive": b'{"weight_map": {"a": "c:a.safetensors"}}',
    "no file of arrays": b'{"weight_map": {"a": "index.json"}}',
    "a file that is missing": b'{"weight_map": {"a": "b.safetensors"}}',
    "a file that is none": b'{"weight_map": {"a": 3}}',
    "an array that is not there": b'{"weight_map": {"missing": "part.safetensors"}}',
    "metadata that is a list": b'{"weight_map": {}, "metadata": []}',
    "a structure that is no text": b'{"weight_map": {}, "metadata": {"pullback": 3}}',
    "a structure without sense": b'{"weight_map": {}, "metadata": {"pullback": "{}"}}',
    "a name twice": b'{"weight_map": {"a": "part.safetensors", "a": "part.safetensors"}}',
    "nesting without end": b'{"weight_map": ' + b"[" * 10000,
    "an array without a place": b'{"weight_map": {"a": "part.safetensors"}, "metadata": {"pullback": '
    b'"{\\"version\\":1,\\"tree\\":[]}"}}',
}  # fmt: skip


@pytest.mark.parametrize("what", INDEXES)
def test_hostile_indexes_raise(path, what):
    pb.save(path.with_name("part.safetensors"), {"a": np.ones(3)})
    path.write_bytes(INDEXES[what])
    with pytest.raises(FormatError):
        pb.load(path)


def test_every_cut_of_an_index_or_its_file_is_noticed(path):
    pb.save(path, {"a": np.ones(3), "b": 1})
    (file,) = files_of(path)
    for target in (path, path.with_name(file)):
        whole = target.read_bytes()
        for size in range(0, len(whole), 7):
            target.write_bytes(whole[:size])
            with pytest.raises(FormatError):
                pb.load(path)
        target.write_bytes(whole)
    assert pb.load(path)["b"] == 1


def test_what_makes_no_sense_is_refused(path, tmp_path):
    with pytest.raises(ArgumentError, match=r"end in \".safetensors.index.json\""):
        pb.save(tmp_path / "model.safetensors", {}, max_shard_bytes=100)
    with pytest.raises(ArgumentError, match="max_shard_bytes"):
        pb.save(path, {}, max_shard_bytes=0)
    with pytest.raises(ArgumentError, match="max_shard_bytes"):
        pb.save(path, {}, max_shard_bytes="many")
    with pytest.raises(ArgumentError, match="total_size"):
        pb.save(path, {}, {"total_size": "3"})
    with pytest.raises(ArgumentError, match="metadata maps text"):
        pb.save(path, {}, {"pullback": "3"})
    with pytest.raises(ArgumentError, match="half a character"):
        pb.save(path, {"\ud800": np.ones(2)})
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        pb.load(path)
    with pytest.raises(FileNotFoundError):
        pb.StoredArrays(path)
