"""Machine code on disk: found again by other processes, never trusted further than its checksum, never in the way."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.compile import cache
from pullback.compile.cpu.runtime import link
from pullback.compile.cpu.runtime.entry import load_entry

pytest.importorskip("llvmlite")

AS_ROOT = sys.platform == "win32" or os.geteuid() == 0


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A directory of the test's own. The entry, which all programs share, is not counted."""
    load_entry(link.link)
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept" / "code"


@pytest.fixture
def made(monkeypatch):
    """How many times LLVM made code."""
    texts = []
    original = link.compile_object
    monkeypatch.setattr(link, "compile_object", lambda text, *effort: texts.append(text) or original(text, *effort))
    return texts


def program(x, scale=2.0):
    return pb.sum(pb.tanh(x) * scale)


def run(scale=2.0):
    """The program compiled anew, as another process would."""
    x = np.linspace(-1, 1, 37)
    value, slope = pb.jit(pb.value_and_grad(lambda x: program(x, scale)))(x)
    np.testing.assert_allclose(value, np.sum(np.tanh(x) * scale), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, scale * (1 - np.tanh(x) ** 2), rtol=1e-12)


def files(place):
    return sorted(place.glob("*.code"))


def test_code_is_made_once(place, made):
    run()
    run()
    assert (len(made), len(files(place))) == (1, 1)
    run(scale=3.0)
    assert (len(made), len(files(place))) == (2, 2)


def test_the_directory_and_its_files_are_private(place):
    run()
    assert place.stat().st_mode & 0o777 == 0o700
    assert all(f.stat().st_mode & 0o077 == 0 for f in files(place))


def damage_middle(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-10])


def empty(path):
    path.write_bytes(b"")


def another_form(path):
    path.write_bytes(path.read_bytes().replace(b"form 2", b"form 0"))


@pytest.mark.parametrize("harm", [damage_middle, cut_short, empty, another_form])
def test_a_damaged_file_is_made_again(place, made, harm):
    run()
    (path,) = files(place)
    good = path.read_bytes()
    harm(path)
    run()
    assert len(made) == 2
    assert path.read_bytes() == good


def test_a_file_under_another_name_is_not_taken(place, made):
    run()
    (path,) = files(place)
    run(scale=3.0)
    (other,) = set(files(place)) - {path}
    path.write_bytes(other.read_bytes())
    run()
    assert len(made) == 3


def test_other_versions_and_processors_have_other_keys(place, made, monkeypatch):
    run()
    real = link.code_environment()
    for i in range(len(real)):
        changed = (*real[:i], real[i] + "another", *real[i + 1 :])
        monkeypatch.setattr(link, "code_environment", lambda changed=changed: changed)
        run()
    assert len(made) == len(files(place)) == 1 + len(real)


def test_the_key_names_what_code_depends_on():
    said = " ".join(link.code_environment())
    versions = (np.__version__, pb.__version__, sys.modules["llvmlite"].__version__, sys.implementation.cache_tag)
    assert all(v in said for v in versions)
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")


@pytest.mark.skipif(AS_ROOT, reason="nothing is read-only to this user")
def test_a_directory_that_cannot_be_written(place, made):
    place.mkdir(parents=True, mode=0o700)
    place.chmod(0o500)
    run()
    run()
    assert (len(made), files(place)) == (2, [])
    place.chmod(0o700)


def test_a_write_that_fails_leaves_nothing_behind(place, made, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    run()
    assert len(made) == 1
    assert list(place.iterdir()) == []


def test_where_no_directory_can_be(place, made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "file"))
    run()
    run()
    assert len(made) == 2
    assert cache.list_files() == []
    assert cache.clear() == (0, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="no such bits")
def test_a_directory_others_may_write_to_is_not_used(place, made):
    run()
    place.chmod(0o777)
    assert cache.why_refused(place) == "others may write to it"
    run()
    assert len(made) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no such owners")
def test_what_another_user_wrote_is_not_used(place, made, monkeypatch):
    run()
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    assert cache.why_refused(place) == "it belongs to another user"
    run()
    assert len(made) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no such bits")
def test_a_file_others_may_write_to_is_made_again(place, made):
    run()
    (path,) = files(place)
    path.chmod(0o666)
    run()
    assert len(made) == 2
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("word", ["", "0", "off", "OFF", " no "])
def test_it_can_be_turned_off(word, place, made, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", word)
    assert cache.directory() is None
    run()
    run()
    assert (len(made), place.exists()) == (2, False)


def test_without_a_word_it_lies_under_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("PULLBACK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "pullback" / "code"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert (tmp_path / "home") in cache.directory().parents


def test_no_home_is_no_cache(monkeypatch):
    def nobody():
        raise RuntimeError("no home")

    monkeypatch.delenv("PULLBACK_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert cache.directory() is None


def test_cleared_while_in_use(place, made):
    f = pb.jit(lambda x: pb.sum(pb.exp(x)))
    x = np.linspace(0, 1, 11)
    first = f(x)
    assert cache.clear().files == 1
    assert f(x) == first
    assert files(place) == []
    assert pb.jit(lambda x: pb.sum(pb.exp(x)))(x) == first
    assert (len(made), len(files(place))) == (2, 1)


def test_the_oldest_go_when_there_are_too_many(place, monkeypatch):
    for i in range(8):
        cache.store(f"{i:064x}", bytes(1000))
        os.utime(place / f"{i:064x}.code", (1000 + i, 1000 + i))
    assert cache.fetch(f"{0:064x}") == bytes(1000)  # used just now
    monkeypatch.setattr(cache, "MAX_BYTES", 6000)
    monkeypatch.setattr(cache, "_WRITES_BETWEEN_CHECKS", 1)
    cache.store(f"{8:064x}", bytes(1000))
    left = [int(f.stem, 16) for f in files(place)]
    assert sum(f.stat().st_size for f in files(place)) <= 6000
    assert {0, 8} <= set(left)
    assert 1 not in left


def test_reading_takes_the_memory_of_the_file(place):
    cache.store(f"{0:064x}", bytes(1000))
    tracemalloc.start()
    try:
        assert cache.fetch(f"{0:064x}") == bytes(1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_few_writes_look_at_all_files(place, monkeypatch):
    scans = []
    monkeypatch.setattr(cache, "_evict", scans.append)
    keys = [cache.key_of(str(i)) for i in range(2000)]
    monkeypatch.setattr(cache, "_replace", lambda path, data: None)
    for key in keys:
        cache.store(key, b"code")
    assert 1 <= len(scans) <= 2000 // 64


def test_what_was_never_finished_is_removed_in_time(place, monkeypatch):
    cache.store("00" * 32, b"code")
    old, new = place / ".a.part", place / ".b.part"
    old.write_bytes(b"")
    new.write_bytes(b"")
    os.utime(old, (1000, 1000))
    monkeypatch.setattr(cache, "_WRITES_BETWEEN_CHECKS", 1)
    cache.store("11" * 32, b"code")
    assert (old.exists(), new.exists()) == (False, True)
    assert cache.clear().files == 2
    assert list(place.iterdir()) == []


PROCESS = """
import sys
import numpy as np, pullback as pb
from pullback.compile.cpu.runtime import link
made = []
original = link.compile_object
link.compile_object = lambda text, *effort: made.append(text) or original(text, *effort)
x = np.linspace(-1, 1, 50)
for n in range(2, 10):
    f = pb.jit(lambda x: pb.sum(pb.sin(x) ** n))
    assert abs(float(f(x)) - np.sum(np.sin(x) ** n)) < 1e-9
w, known = np.ones((3, 4)), np.arange(100.0).reshape(50, 2)
pb.jit(pb.value_and_grad(lambda w: pb.sum(pb.tanh(np.eye(3) @ w))))(w)  # a matrix product
pb.jit(lambda x: pb.sum(x[:, None] * known) + pb.sum(pb.sort(x)))(x)  # a constant, and an op of the array library
pb.jit(lambda x: pb.scan(lambda c, y: (c * 0.5 + y, c), 0.0, x))(x)  # a loop
print(len(made))
"""


def started(seed):
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.Popen([sys.executable, "-c", PROCESS], env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_at_once_and_after_each_other(place):
    both = [started(seed) for seed in (1, 2)]
    assert [(p.communicate()[0] != "", p.returncode) for p in both] == [(True, 0)] * 2
    assert len(files(place)) == 12  # with the entry, which all share
    assert list(place.glob("*.part")) == list(place.glob(".*.part")) == []
    assert started(3).communicate()[0] == "0\n"
