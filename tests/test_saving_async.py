"""Saves that go on beside the program: they write what was given when they began, and their errors are heard."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ArgumentTypeError, StorageError
from pullback.saving import atomic_write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


@pytest.fixture
def gate(monkeypatch):
    """Nothing is written before it is opened."""
    opened, write = threading.Event(), atomic_write._write_all

    def wait_and_write(*args):
        assert opened.wait(60)
        write(*args)

    monkeypatch.setattr(atomic_write, "_write_all", wait_and_write)
    yield opened
    opened.set()


def bits(tree):
    """Copies of all arrays of a tree."""
    return [np.array(x.detach() if isinstance(x, pb.Tensor) else x) for x in pb.tree.leaves(tree)]


def same(found, wanted):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True))


def _momentum(parameters, lr):
    return pb.optim.SGD(parameters, lr=lr, momentum=0.9)


def make_training(kind, size):
    """(step, state) of a training whose optimizer updates in place."""
    rng = np.random.default_rng(0)
    w = pb.tensor(rng.normal(size=size), requires_grad=True)
    b = pb.tensor(rng.normal(size=3), requires_grad=True)
    optimizer = kind([w, b], lr=0.1)

    def step():
        optimizer.zero_grad()
        (pb.sum(w**4) + pb.sum(pb.sin(b))).backward()
        optimizer.step()

    return step, lambda: {"w": w, "b": b, "optimizer": optimizer.state_dict()}, w


def address(w):
    return w.value.ctypes.data


@pytest.mark.parametrize("size", [3, (300, 400)])
@pytest.mark.parametrize(
    "kind", [pb.optim.Adam, lambda p, lr: pb.optim.SGD(p, lr=lr, momentum=0.9)], ids=["Adam", "SGD"]
)
def test_an_optimizer_steps_during_the_save(path, gate, kind, size):
    step, state, _ = make_training(kind, size)
    step()
    step()
    wanted = bits(state())
    saving = pb.save_async(path, state())
    for _ in range(3):
        step()
    after = bits(state())
    assert not same(after[:1], wanted[:1]), "the training went on"
    assert not saving.is_finished()
    gate.set()
    saving.wait()
    assert same(bits(pb.load(path)), wanted)
    assert same(bits(state()), after)


def test_steps_are_in_place_when_nothing_is_saved():
    """Without this the test above would show nothing."""
    step, _, w = make_training(pb.optim.Adam, (300, 400))
    step()
    step()
    before = address(w)
    step()
    assert address(w) == before


def test_tensors_that_are_updated_by_hand_are_saved_as_they_were(path, gate):
    w = pb.tensor(np.ones(1000), requires_grad=True)
    views = {"w": w, "part": w.detach()[10:20], "complex": pb.tensor(np.ones(3) * 1j)}
    wanted = bits(views)
    saving = pb.save_async(path, views)
    with pb.no_grad():
        w *= 3.0
        views["complex"] *= 2.0
    gate.set()
    saving.wait()
    assert same(bits(pb.load(path)), wanted)
    assert w.value[0] == 3.0


def test_plain_arrays_are_copied(path, gate):
    x = np.arange(6.0)
    tree = {"x": x, "part": x[2:4], "transposed": x.reshape(2, 3).T, "list": [1, 2], "again": x}
    wanted = bits(tree)
    saving = pb.save_async(path, tree)
    x[:] = -1
    tree["list"].append(3)
    gate.set()
    saving.wait()
    found = pb.load(path)
    assert same(bits(found), wanted)
    assert found["again"] is found["x"]


def test_a_compiled_step_that_overwrites_its_arguments(path, gate):
    step = pb.jit(lambda w, m: (w - 0.1 * m, 0.9 * m + w), donate_argnums=(0, 1))
    state = step(pb.tensor(np.ones(50_000)), pb.tensor(np.ones(50_000)))
    wanted = bits(state)
    saving = pb.save_async(path, list(state))
    for _ in range(3):
        state = step(*state)
    gate.set()
    saving.wait()
    assert same(bits(pb.load(path)), wanted)


def test_memory_is_let_go_when_the_save_has_ended(path):
    w = pb.tensor(np.ones(10), requires_grad=True)
    before = sys.getrefcount(w.value)
    saving = pb.save_async(path, {"w": w})
    saving.wait()
    after = sys.getrefcount(w.value)
    assert after == before
    assert "finished" in repr(saving)


def test_errors_are_raised_where_one_waits_and_by_the_next_save(path, tmp_path):
    nowhere = tmp_path / "nowhere" / "x.safetensors"
    with pytest.raises(StorageError, match="cannot write"):
        pb.save_async(nowhere, 1).wait()
    pb.save(path, 1)  # it was seen
    failed = pb.save_async(nowhere, 2)
    with pytest.raises(StorageError, match="cannot write"):
        pb.save(path, 2)
    assert pb.load(path) == 1
    failed.wait()  # it was seen
    pb.save_async(nowhere, 3)
    with pytest.raises(StorageError, match="cannot write"):
        pb.save_async(path, 3)
    pb.save_async(path, 4).wait()
    assert pb.load(path) == 4


def test_arguments_are_checked_at_once(path):
    with pytest.raises(ArgumentTypeError, match="The path comes first"):
        pb.save_async({"w": 1}, str(path))
    with pytest.raises(ArgumentError, match="cannot be written as data"):
        pb.save_async(path, {"x": object()})
    with pytest.raises(ArgumentError, match="max_shard_bytes"):
        pb.save_async(path, {}, max_shard_bytes=3)
    assert not path.exists()


def test_saves_follow_each_other(path):
    for number in range(5):
        pb.save_async(path, {"x": np.full(1000, number)})
    pb.save(path.with_name("other"), 1)
    assert pb.load(path)["x"][0] == 4
    threads = [threading.Thread(target=pb.save_async, args=(path, n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pb.save_async(path.with_name("other"), 2).wait()
    assert pb.load(path) in range(8)
    assert sorted(os.listdir(path.parent)) == ["other", path.name]


def test_an_index_of_several_files(tmp_path):
    path = tmp_path / "m.safetensors.index.json"
    pb.save_async(path, {"a": np.ones(3), "b": np.ones(3)}, {"about": "x"}, max_shard_bytes=24).wait()
    assert len(os.listdir(tmp_path)) == 3
    assert pb.load_metadata(path) == {"about": "x"}


def test_checkpoints(tmp_path, gate):
    checkpoints = pb.Checkpoints(tmp_path, keep=2)
    saving = checkpoints.save_async(0, {"step": 0})
    assert checkpoints.steps() == []
    gate.set()
    for step in range(1, 5):
        saving = checkpoints.save_async(step, {"step": step})
    saving.wait()
    assert checkpoints.steps() == [3, 4]


EXIT = """
import sys, numpy as np, pullback as pb
pb.save_async(sys.argv[1], {"x": np.ones(100_000)})
"""


def test_python_waits_for_a_save_and_tells_of_its_error(path, tmp_path):
    done = subprocess.run([sys.executable, "-c", EXIT, path], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert pb.load(path)["x"].sum() == 100_000
    done = subprocess.run(
        [sys.executable, "-c", EXIT, tmp_path / "nowhere" / "x"], check=True, capture_output=True, text=True
    )
    assert "the save of" in done.stderr
    assert "cannot write" in done.stderr


FORK = """
import os, sys, threading, numpy as np, pullback as pb
from pullback.saving import atomic_write
opened, write = threading.Event(), atomic_write._write_all
atomic_write._write_all = lambda *args: opened.wait(60) and write(*args)
saving = pb.save_async(sys.argv[1], {"by": "parent"})
if (child := os.fork()) == 0:
    opened.set()
    pb.save(sys.argv[2], {"by": "child"})
    try:
        saving.wait()
    except pb.errors.StorageError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
opened.set()
"""


def test_a_save_whose_thread_does_not_start_is_not_waited_for(path, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            pb.save_async(path, {"x": 1})
    pb.save(path, {"x": 2})
    assert pb.load(path) == {"x": 2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_saves_on_its_own(path, tmp_path):
    other = tmp_path / "child.safetensors"
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, path, other], check=True, timeout=60)
    assert (pb.load(path)["by"], pb.load(other)["by"]) == ("parent", "child")
