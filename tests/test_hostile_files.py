"""Files, texts and capsules that are damaged, hostile or strange: errors of ours, bounded memory, no code run."""

import ctypes
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.compile import cache
from pullback.errors import ArgumentError, DtypeError, FormatError, PullbackError, StorageError

HERE = Path(__file__).parent


def safetensors(head, data=b""):
    """The bytes of a file with a head of one's own."""
    raw = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def written(path, *parts):
    path.write_bytes(b"".join(parts))
    return path


def structured(tree, entries=None, data=b""):
    said = json.dumps({"version": 1, "tree": tree})
    return safetensors({"__metadata__": {"pullback": said}, **(entries or {})}, data)


posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes and permissions of POSIX")


@posix
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="regular file"):
        pb.load(tmp_path / "pipe")
    with pytest.raises(StorageError, match="regular file"):
        pb.load_metadata(tmp_path / "pipe")
    with pytest.raises(StorageError, match="regular file"):
        pb.save(tmp_path / "pipe", 1)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@posix
def test_a_device_is_not_replaced_by_a_file():
    with pytest.raises(StorageError, match="regular file"):
        pb.save("/dev/null", {"a": 1})
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@posix
def test_a_cache_file_that_is_a_pipe_or_too_large_counts_as_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    key = cache.key_of("a")
    cache.store(key, b"code")
    assert cache.fetch(key) == b"code"
    place = cache.directory() / f"{key}.code"
    place.unlink()
    os.mkfifo(place, 0o600)
    assert cache.fetch(key) is None
    place.unlink()
    with open(place, "wb") as file:
        os.truncate(file.fileno(), 60 << 30)  # sparse
    os.chmod(place, 0o600)
    assert cache.fetch(key) is None


@posix
def test_overwriting_keeps_the_permissions(tmp_path):
    path = tmp_path / "a"
    pb.save(path, 1)
    path.chmod(0o600)
    pb.save(path, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert pb.load(path) == 2


def test_paths_may_be_bytes(tmp_path):
    path = os.fsencode(tmp_path / "a")
    pb.save(path, [1])
    assert pb.load(path) == [1]
    assert pb.load_metadata(path) == {}
    for use in (pb.load, lambda p: pb.save(p, 1)):
        with pytest.raises(ArgumentError, match="a path must be text"):
            use(3.5)


@pytest.mark.parametrize("number", [10**5000, -(10**5000), 2**14285], ids=["long", "negative", "just longer"])
def test_integers_of_any_size(tmp_path, number):
    pb.save(tmp_path / "a", {"n": number})
    assert pb.load(tmp_path / "a") == {"n": number}
    with pytest.raises(ArgumentError, match="keys are strings or integers"):
        pb.save(tmp_path / "a", {number: 1})


def test_a_masked_array_is_refused(tmp_path):
    with pytest.raises(DtypeError, match="mask would be lost"):
        pb.save(tmp_path / "a", {"x": np.ma.array([1.0, 2.0], mask=[True, False])})


def test_no_metadata_may_be_null(tmp_path):
    entry = {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    path = written(tmp_path / "a", safetensors({"__metadata__": None, **entry}, np.float32(3).tobytes()))
    assert pb.load(path)["x"].tolist() == [3.0]


@pytest.mark.parametrize(
    ("word", "name"), [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"), ("F8_E8M0", "float8_e8m0fnu")]
)
def test_numbers_of_eight_bits_are_read(tmp_path, word, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    wanted = np.array([1.0, 2.0, 4.0]).astype(getattr(ml_dtypes, name))
    entry = {"x": {"dtype": word, "shape": [3], "data_offsets": [0, 3]}}
    found = pb.load(written(tmp_path / "a", safetensors(entry, wanted.tobytes())))["x"]
    assert found.dtype == wanted.dtype
    assert found.astype(float).tolist() == [1.0, 2.0, 4.0]


def test_a_tracked_tensor_of_integers_is_a_fault_of_the_file(tmp_path):
    entry = {"x": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}
    with pytest.raises(FormatError):
        pb.load(written(tmp_path / "a", structured({"tensor": ["x", True]}, entry, bytes(8))))


def test_a_file_imports_nothing_for_its_classes(tmp_path):
    """A module's lazy attributes once imported hundreds of modules at a file's wish."""
    names = ["scipy:stats.norm", "pullback.demo.training:Result", "pullback.interop.scipy:minimize"]
    paths = [str(written(tmp_path / str(i), structured({"node": [n, None, []]}))) for i, n in enumerate(names)]
    program = (
        "import sys, scipy, pullback as pb; before = set(sys.modules)\n"
        f"for path in {paths!r}:\n"
        "    try: pb.load(path); raise SystemExit('read')\n"
        "    except pb.errors.FormatError: pass\n"
        "more = [m for m in sys.modules if m not in before and not m.startswith('pullback.saving')]\n"
        "assert len(more) < 40 and not any(m.startswith(('scipy', 'pullback.demo')) for m in more), more"
    )
    pytest.importorskip("scipy")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by Linux's calls")
@pytest.mark.parametrize("where", ["structure", "head"])
def test_a_head_of_empty_lists_takes_no_memory(tmp_path, where):
    """14 MiB of `[],` once took 669 MiB."""
    lists = b"[" + b"[]," * 4_900_000 + b"[]]"
    tree = b'{"version": 1, "tree": ' + lists + b"}"
    head = b'{"__metadata__": {"pullback": ' + json.dumps(tree.decode()).encode() + b"}}"
    written(tmp_path / "a", safetensors(head if where == "structure" else b'{"x": ' + lists + b"}"))
    program = (
        "import resource, pullback as pb\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: pb.load({str(tmp_path / 'a')!r}); raise SystemExit('read')\n"
        "except pb.errors.FormatError as error: assert 'containers' in str(error), error\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]


def a_file(tmp_path):
    tree = {
        "w": pb.tensor([[1.0, 2.0]], requires_grad=True), "n": (1, 2.5, None, True, "text", 1j, float("nan")),
        "c": np.ones(2, complex), "b": np.array([True, False]), "s": np.float32(3), "d": np.dtype("int8"),
        "state": pb.random.state(), "deep": [[[{"a": []}]]],
    }  # fmt: skip
    pb.save(tmp_path / "seed", tree, metadata={"about": "seed"})
    return (tmp_path / "seed").read_bytes()


NUMBERS = [
    b"-1", b"0", b"1", b"2", b"7", b"255", b"1e9", b"1e400", b"9" * 30, b"9" * 4000, b"9223372036854775807", b"NaN",
    b"null", b"true", b'""', b"[]", b"{}", b"0.5",
]  # fmt: skip


def mutate(raw, rng):
    """Bytes changed, cut, doubled, or a number in them replaced by another."""
    found = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at, way = rng.randrange(len(found) or 1), rng.randrange(6)
        if way == 0:
            found[at : at + 1] = bytes([rng.randrange(256)])
        elif way == 1:
            del found[at : at + rng.choice([1, 2, 8, 64])]
        elif way == 2:
            found[at:at] = found[at : at + rng.choice([1, 4, 32])]
        elif way == 3:
            found = found[: at or 1]
        else:
            digits = [i for i, c in enumerate(found[8:4000], 8) if chr(c).isdigit()]
            if digits:
                at = rng.choice(digits)
                found[at : at + 1] = rng.choice(NUMBERS)
    return bytes(found)


def with_length(raw):
    """The same with a length of the head that fits, so that the head itself is read."""
    end = raw.rfind(b"}") + 1
    return max(end - 8, 0).to_bytes(8, "little") + raw[8:]


def fuzz_load(tmp_path, seeds):
    raw, path, read = a_file(tmp_path), tmp_path / "fuzz", 0
    for seed in seeds:
        rng = random.Random(seed)
        changed = mutate(raw, rng)
        path.write_bytes(with_length(changed) if seed % 2 else changed)
        try:
            pb.load(path, mmap=seed % 5 == 0)
            read += 1
        except FormatError:
            pass
    return read


def fuzz_cache(tmp_path, seeds):
    key = cache.key_of("fuzz")
    cache.store(key, bytes(range(256)) * 4)
    place = cache.directory() / f"{key}.code"
    raw = place.read_bytes()
    for seed in seeds:
        changed = mutate(raw, random.Random(seed))
        place.write_bytes(changed)
        assert cache.fetch(key) == (None if changed != raw else bytes(range(256)) * 4)


def graph_seeds():
    def f(x, y):
        kept = pb.where(x > 0, x, 0.0)
        return {"a": pb.sum(kept[1:] @ y, axis=0), "b": pb.cond(pb.sum(x) > 0, pb.sin, pb.cos, x)}

    graph = pb.stage(f)(np.ones((3, 2)), np.ones((2, 2)))
    return graph.to_json().encode(), pb.stage(lambda x: pb.nn.softmax(pb.reshape(x, (2, -1))) * 2.0)(np.ones(6)).text()


def fuzz_graphs(seeds):
    as_json, text = graph_seeds()
    read = 0
    for seed in seeds:
        rng = random.Random(seed)
        try:
            if seed % 2:
                pb.Program.from_json(mutate(as_json, rng))
            else:
                pb.Program.parse(mutate(text.encode(), rng).decode("utf-8", "replace"))
            read += 1
        except PullbackError:
            pass
    return read


def test_mutated_files_are_refused_or_read(tmp_path):
    assert fuzz_load(tmp_path, range(2000)) < 1000


def test_mutated_cache_files_count_as_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    fuzz_cache(tmp_path, range(500))


def test_mutated_texts_of_graphs_are_refused_or_read():
    assert fuzz_graphs(range(3000)) < 2000


class Managed(ctypes.Structure):
    """DLManagedTensor of DLPack 0."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class Exporter:
    """An object that hands out a capsule of one's own making over real memory."""

    def __init__(self, memory, shape, code=2, bits=64, lanes=1, ndim=None, device=(1, 0), name=b"dltensor"):
        self.memory, self.device, self.name = memory, device, name
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.managed = Managed(
            memory.ctypes.data, 1, 0, len(shape) if ndim is None else ndim, code, bits, lanes, self.shape, None, 0,
        )  # fmt: skip

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self.managed), self.name, None)


def test_capsules_of_strange_arrays_are_refused_or_read():
    memory, read = np.arange(16.0), 0
    assert pb.from_dlpack(Exporter(memory, (4, 4))).shape == (4, 4)
    rng = random.Random(0)
    for _ in range(3000):
        given = {
            "shape": rng.choice([(), (2,), (4, 4), (0,), (16,), (2, 0, 5)]), "code": rng.randrange(8),
            "bits": rng.choice([0, 1, 7, 8, 16, 32, 64, 128, 255]), "lanes": rng.choice([0, 1, 1, 1, 2, 4]),
            "device": rng.choice([(1, 0), (1, 0), (1, 0), (2, 0), (99, 3), (), None, "cpu"]),
            "name": rng.choice([b"dltensor", b"dltensor", b"dltensor", b"used_dltensor", b"other"]),
        }  # fmt: skip
        if np.prod(given["shape"]) * given["bits"] * given["lanes"] > 1024:
            continue  # NumPy believes what a capsule says of its memory, as it must
        try:
            pb.from_dlpack(Exporter(memory, **given))
            read += 1
        except (PullbackError, BufferError):
            pass
    assert read > 50


@pytest.mark.parametrize("thing", [3, None, "text", object()])
def test_what_is_no_exporter_is_refused(thing):
    with pytest.raises(ArgumentError, match="from_dlpack"):
        pb.from_dlpack(thing)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(10))
def test_a_million_mutated_inputs(part, tmp_path, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    first = 10_000_000 + 100_000 * part
    fuzz_load(tmp_path, range(first, first + 50_000))
    fuzz_cache(tmp_path, range(first, first + 10_000))
    fuzz_graphs(range(first, first + 40_000))
