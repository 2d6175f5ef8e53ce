"""`pb.data.batches`: every row once, the same order again, errors and threads that end."""

import threading

import numpy as np
import pytest

import pullback as pb

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10)


class Squares:
    """A data set that is no array."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at

    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == self.fails_at:
            raise RuntimeError("row is gone")
        return {"x": np.full(2, float(i)), "y": i * i}


def rows_of(loader):
    return [y.tolist() for _, y in loader]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_comes_once_in_each_epoch(prefetch, shuffle):
    loader = pb.data.batches((X, Y), 4, shuffle=shuffle, prefetch=prefetch)
    assert len(loader) == 3
    epochs = [rows_of(loader) for _ in range(2)]
    for epoch in epochs:
        assert [len(b) for b in epoch] == [4, 4, 2]
        assert sorted(i for batch in epoch for i in batch) == list(range(10))
    assert (epochs[0] != epochs[1]) == shuffle
    for x, y in loader:
        np.testing.assert_array_equal(x[:, 0], 2 * y)


def test_the_order_depends_on_seed_and_epoch_alone():
    one, two, other = (pb.data.batches((X, Y), 3, seed=s, prefetch=p) for s, p in ((5, 0), (5, 2), (6, 0)))
    pb.random.seed(1)
    first = [rows_of(one) for _ in range(3)]
    pb.random.seed(2)
    state = pb.random.state()
    assert [rows_of(two) for _ in range(3)] == first
    assert pb.random.state() == state
    assert rows_of(other) != first[0]


def test_short_batches_may_be_dropped():
    loader = pb.data.batches((X, Y), 4, drop_last=True)
    assert len(loader) == 2
    assert [len(b) for b in rows_of(loader)] == [4, 4]
    assert rows_of(pb.data.batches((X, Y), 11, drop_last=True)) == []
    assert [len(b) for b in rows_of(pb.data.batches((X, Y), 11))] == [10]
    assert list(pb.data.batches(np.zeros((0, 2)), 4)) == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_goes_on_where_another_stopped(prefetch):
    whole = pb.data.batches((X, Y), 3, seed=2)
    wanted = [rows_of(whole), rows_of(whole)]
    for stop in range(5):
        loader = pb.data.batches((X, Y), 3, seed=2, prefetch=prefetch)
        seen = []
        for _, y in loader:
            if len(seen) == stop:
                break
            seen.append(y.tolist())
            state = loader.state_dict()
        if not seen:
            continue
        other = pb.data.batches((X, Y), 3, seed=9, prefetch=prefetch)
        other.load_state_dict(state)
        rest = rows_of(other)
        if stop < 4:
            assert seen + rest == wanted[0]
            assert rows_of(other) == wanted[1]
        else:
            assert seen == wanted[0]
            assert rest == wanted[1]


def test_a_loop_that_was_left_is_followed_by_a_new_epoch():
    loader = pb.data.batches((X, Y), 3)
    first = rows_of(pb.data.batches((X, Y), 3))
    for _, y in loader:
        assert y.tolist() == first[0]
        break
    second = rows_of(loader)
    assert len(second) == 4
    assert second != first
    assert loader.epoch == 1


def test_the_state_is_saved(tmp_path):
    loader = pb.data.batches((X, Y), 3)
    next(iter(loader))
    pb.save(tmp_path / "state", loader.state_dict())
    other = pb.data.batches((X, Y), 3)
    other.load_state_dict(pb.load(tmp_path / "state"))
    assert (other.epoch, other.batch) == (0, 1)
    with pytest.raises(pb.errors.ArgumentError, match="wants what state_dict returned"):
        other.load_state_dict({})
    with pytest.raises(pb.errors.ArgumentError, match="no batch 7 of 4"):
        other.load_state_dict({"seed": 0, "epoch": 0, "batch": 7})


def test_trees_tensors_and_datasets():
    data = {"x": pb.tensor(X, requires_grad=True), "rest": [Y, (X.astype(np.float32),)]}
    for batch in pb.data.batches(data, 4):
        assert isinstance(batch["x"], pb.Tensor)
        np.testing.assert_array_equal(batch["rest"][0] * 2, batch["x"].detach().numpy()[:, 0])
        assert batch["rest"][1][0].dtype == np.float32
    pb.sum(batch["x"]).backward()
    assert data["x"].grad.numpy().sum() == 4
    for batch in pb.data.batches(Squares(), 4, prefetch=1):
        np.testing.assert_array_equal(batch["x"][:, 0] ** 2, batch["y"])
    (only,) = pb.data.batches(X, 10, shuffle=False)
    only[:] = 0
    assert X[1, 0] == 2


def threads():
    return [t for t in threading.enumerate() if t.name == "pullback batches"]


def test_the_thread_ends_with_the_loop():
    for batch in pb.data.batches((X, Y), 1, prefetch=2):
        assert len(batch[1]) == 1
        break
    assert threads() == []

    def fail():
        for _ in pb.data.batches((X, Y), 1, prefetch=2):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert threads() == []
    list(pb.data.batches((X, Y), 1, prefetch=2))
    assert threads() == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_of_the_data_is_raised_where_its_batch_would_come(prefetch):
    seen = []
    loader = pb.data.batches(Squares(5), 2, shuffle=False, prefetch=prefetch)
    with pytest.raises(RuntimeError, match="row is gone"):
        seen.extend(batch["y"].tolist() for batch in loader)
    assert seen == [[0, 1], [4, 9]]
    assert threads() == []


def test_modes_hold_in_the_thread():
    data = (pb.tensor(X, requires_grad=True), Y)
    with pb.no_grad():
        for x, _ in pb.data.batches(data, 4, prefetch=1):
            assert not x.requires_grad


def test_progress(capsys):
    seen = []
    list(pb.data.batches(Y, 4, progress=lambda done, count: seen.append((done, count))))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    list(pb.data.batches(Y, 4, progress=True))
    assert "epoch 0: batch 3 of 3" in capsys.readouterr().err


def test_mistakes_are_explained():
    with pytest.raises(pb.errors.ShapeError, match="as many rows, got shapes"):
        pb.data.batches((X, Y[:3]), 2)
    with pytest.raises(pb.errors.ShapeError, match="as many rows"):
        pb.data.batches((X, np.array(1.0)), 2)
    for wrong in ([1, 2, 3], "text", 3, iter(X)):
        with pytest.raises(TypeError, match="wants arrays, a tree of arrays"):
            pb.data.batches(wrong, 2)
    for size in (0, -1, 2.0, True, None):
        with pytest.raises(TypeError, match="size is an integer, 1 or more"):
            pb.data.batches(X, size)


def test_training_in_batches_resumes_bit_by_bit():
    def start():
        net = pb.nn.Sequential(
            pb.nn.Linear(2, 4, key=pb.random.key(0)), pb.nn.Tanh(), pb.nn.Linear(4, 1, key=pb.random.key(1))
        )
        return net, pb.optim.Adam(net.parameters(), lr=0.05), pb.data.batches((X.astype(np.float32), Y), 3, seed=4)

    def train(net, opt, loader, steps):
        for x, y in loader:
            opt.zero_grad()
            pb.mean((net(x)[:, 0] - y) ** 2).backward()
            opt.step()
            steps -= 1
            if not steps:
                break

    whole, half = start(), start()
    train(*whole, 4)
    train(*half, 2)
    resumed = start()
    for mine, theirs in zip(resumed, half, strict=True):
        mine.load_state_dict(theirs.state_dict())
    train(*resumed, 4)
    for a, b in zip(whole[0].parameters(), resumed[0].parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
