"""Embeddings whose gradients are rows, and `SparseAdam`, against dense gradients and PyTorch's update written out."""

import threading

import numpy as np
import pytest

import pullback as pb
from pullback.sparse import RowSparse

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(50, 4))
INDICES = rng.integers(0, 50, size=(6, 5))
WEIGHTS = rng.normal(size=(6, 5, 4))
close = np.testing.assert_allclose
SETTINGS = [{}, {"padding_idx": int(INDICES[0, 0])}, {"max_norm": 1.0}]


def loss(table, sparse=True, **settings):
    return pb.sum(pb.sin(pb.nn.embedding(INDICES, table, sparse=sparse, **settings)) * WEIGHTS)


def leaf():
    return pb.tensor(TABLE, requires_grad=True)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients_are_rows_and_add_up(settings):
    dense, table = leaf(), leaf()
    loss(dense, False, **settings).backward()
    wanted = dense.grad.numpy()
    for _ in range(6):  # steps of the pass are generated after a few calls
        table.grad = None
        loss(table, **settings).backward()
        assert type(table.grad) is RowSparse
    close(table.grad.todense(), wanted)
    loss(table, **settings).backward()
    assert table.grad.rows.size == 2 * INDICES.size
    assert table.grad.coalesce().rows.tolist() == sorted(set(INDICES.reshape(-1).tolist()))
    close(table.grad.coalesce().todense(), 2 * wanted)
    (pb.sum(table**2) + loss(table, **settings)).backward()  # a dense share makes the whole dense
    close(table.grad.numpy(), 3 * wanted + 2 * TABLE)
    loss(table, **settings).backward()
    close(table.grad.numpy(), 4 * wanted + 2 * TABLE)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_everything_else_sees_dense_gradients(settings):
    dense = leaf()
    loss(dense, False, **settings).backward()
    wanted = dense.grad.numpy()

    def function(table):
        return loss(table, **settings)

    close(pb.grad(function)(TABLE), wanted)
    close(pb.jit(pb.grad(function))(TABLE), wanted)
    close(pb.jvp(function, (TABLE,), (TABLE,))[1], np.sum(wanted * TABLE))
    table = leaf()
    close(pb.gradients(function(table), table)[0].numpy(), wanted)
    for run in (
        lambda x: function(x * 1.0).backward(),
        lambda x: pb.jit(function)(x).backward(),
        lambda x: function(x).backward(create_graph=True),
        lambda x: (x.register_hook(lambda g: g * 1.0), function(x).backward()),
    ):
        table = leaf()
        run(table)
        close(table.grad.detach().numpy(), wanted)
    table = leaf()
    pb.checkpoint(function)(table).backward()
    close(table.grad.todense(), wanted)
    table = leaf()
    first = pb.gradients(function(table), table, create_graph=True)[0]
    pb.sum(first * TABLE).backward()
    close(table.grad.todense(), pb.hvp(lambda x: loss(x, False, **settings), (TABLE,), (TABLE,)))


def test_vmap_of_lookups():
    two = np.stack([TABLE, 2 * TABLE])
    look = lambda i, t: pb.nn.embedding(i, t, sparse=True)  # noqa: E731
    close(pb.vmap(look)(INDICES[:2], two), np.stack([TABLE[INDICES[0]], 2 * TABLE[INDICES[1]]]))
    close(pb.vmap(look, (0, None))(INDICES, TABLE), TABLE[INDICES])
    close(pb.vmap(look, (None, 0))(INDICES, two), np.stack([TABLE[INDICES], 2 * TABLE[INDICES]]))


@pytest.mark.parametrize(
    "run",
    [lambda f: pb.jvp(f, (np.ones(2),), (np.ones(2),)), lambda f: pb.vmap(f)(np.ones((2, 2)))],
)
def test_leaves_of_transforms_have_dense_gradients(run):
    made = []

    def inside(x):
        made.append(leaf())
        loss(made[-1]).backward()
        return x * 1.0

    run(inside)
    assert isinstance(made[-1].grad, pb.Tensor)


def test_a_failed_pass_leaves_rows_as_they_were():
    table = leaf()
    loss(table).backward()
    before = table.grad
    other = pb.tensor(np.ones(3), requires_grad=True)

    def fail(gradient):
        raise RuntimeError("no")

    other.register_hook(fail)
    with pytest.raises(RuntimeError):
        (loss(table) + pb.sum(other)).backward()
    assert table.grad is before


def test_threads_add_to_one_table():
    table = leaf()
    threads = [threading.Thread(target=lambda: loss(table).backward()) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    close(table.grad.todense(), 4 * pb.grad(lambda x: loss(x, False))(TABLE))
    table.grad = None
    loss(table).backward(workers=2)
    close(table.grad.todense(), pb.grad(lambda x: loss(x, False))(TABLE))


def test_dense_rules_take_rows_as_a_dense_gradient():
    one, other = leaf(), leaf()
    for table, sparse in ((one, True), (other, False)):
        optimizer = pb.optim.Adam([table], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss(table, sparse).backward()
            optimizer.step()
    close(one.detach().numpy(), other.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_adam_updates_touched_rows(dtype):
    """The update of torch.optim.SparseAdam, by whole arrays and a mask."""
    table = pb.tensor(TABLE.astype(dtype), requires_grad=True)
    optimizer = pb.optim.SparseAdam({"t": table}, lr=0.1, betas=(0.8, 0.95), eps=1e-6)
    wanted, mean, square = TABLE.astype(dtype), np.zeros((50, 4)), np.zeros((50, 4))
    for step in range(1, 8):
        rows = rng.integers(0, 50, size=7)
        optimizer.zero_grad()
        pb.sum(pb.sin(pb.nn.embedding(rows, table, sparse=True))).backward()
        address = table.value.ctypes.data
        optimizer.step()
        assert step == 1 or table.value.ctypes.data == address  # in place: the table may be large
        g = np.zeros((50, 4))
        np.add.at(g, rows, np.cos(wanted[rows]))
        touched = np.isin(np.arange(50), rows)[:, None]
        mean = np.where(touched, 0.8 * mean + 0.2 * g, mean)
        square = np.where(touched, 0.95 * square + 0.05 * g * g, square)
        rate = 0.1 * np.sqrt(1 - 0.95**step) / (1 - 0.8**step)
        wanted = wanted - np.where(touched, rate * mean / (np.sqrt(square) + 1e-6), 0.0)
        close(table.detach().numpy(), wanted, rtol=1e-4 if dtype is np.float32 else 1e-12, atol=1e-6)


def test_sparse_adam_writes_nothing_that_others_see():
    table = leaf()
    seen, twin = table.detach().numpy(), table.detach()
    optimizer = pb.optim.SparseAdam([table], lr=0.5)
    loss(table).backward()
    optimizer.step()
    close(seen, TABLE)
    close(twin.numpy(), TABLE)
    assert not np.allclose(table.detach().numpy(), TABLE)


def test_sparse_adam_resumes():
    def train(steps, saved=None):
        table = leaf() if saved is None else pb.tensor(saved[0], requires_grad=True)
        optimizer = pb.optim.SparseAdam([table], lr=0.1)
        if saved is not None:
            optimizer.load_state_dict(saved[1])
        for _ in range(steps):
            optimizer.zero_grad()
            loss(table).backward()
            optimizer.step()
        return table.detach().numpy(), optimizer.state_dict()

    close(train(2, train(3))[0], train(5)[0], rtol=1e-12)
    with pytest.raises(pb.errors.ArgumentError, match="same tables"):
        pb.optim.SparseAdam([pb.tensor(np.ones((2, 2)), requires_grad=True)]).load_state_dict(train(1)[1])


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_rows_are_clipped_as_the_dense_gradient_is(norm_type):
    found = []
    for sparse in (True, False):
        table, bias = leaf(), pb.tensor(np.ones(3), requires_grad=True)
        (loss(table, sparse) + pb.sum(bias**2)).backward()
        norm = pb.optim.clip_grad_norm_([table, bias], 0.5, norm_type)
        clipped = table.grad
        pb.optim.clip_grad_value_([table, bias], 0.05)
        found.append([norm, clipped, table.grad, bias.grad])
    assert [type(g) for g in found[0]] == [pb.Tensor, RowSparse, RowSparse, pb.Tensor]
    for rows, dense in zip(*found, strict=True):
        close(np.asarray(rows.todense() if type(rows) is RowSparse else rows), np.asarray(dense), rtol=1e-12)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_leave_rows(mode):
    one, other = leaf(), leaf()
    for table, sparse in ((one, True), (other, False)):
        bags = pb.nn.embedding_bag(INDICES, table, mode=mode, sparse=sparse, padding_idx=int(INDICES[0, 0]))
        pb.sum(pb.sin(bags)).backward()
    assert type(one.grad) is RowSparse
    close(one.grad.todense(), other.grad.numpy(), rtol=1e-12)


def test_a_loss_scale_is_undone_in_rows():
    tables = [pb.tensor(TABLE.astype(np.float32), requires_grad=True) for _ in range(2)]
    for table, sparse in zip(tables, (True, False), strict=True):
        optimizer, scaler = pb.optim.SGD([table], lr=0.1), pb.amp.GradScaler(init_scale=8.0)
        scaler.scale(loss(table, sparse)).backward()
        scaler.step(optimizer)
    close(*[table.detach().numpy() for table in tables], rtol=1e-6)


def test_refusals():
    table = leaf()
    optimizer = pb.optim.SparseAdam([table])
    pb.sum(table**2).backward()
    with pytest.raises(pb.errors.GraphError, match="dense"):
        optimizer.step()
    table.grad = None
    loss(table).backward()
    with pytest.raises(pb.errors.ConversionError, match="todense"):
        np.abs(table.grad)
    with pytest.raises(pb.errors.ShapeError, match="grad"):
        pb.tensor(np.ones((2, 4)), requires_grad=True).grad = table.grad
    with pytest.raises(pb.errors.ArgumentError, match="sparse adam"):
        pb.amp.GradScaler().step(optimizer)
    for bad in ([], [table, table], [TABLE], [pb.tensor(TABLE)], [pb.tensor(np.float64(1.0), requires_grad=True)]):
        with pytest.raises(pb.errors.ArgumentError):
            pb.optim.SparseAdam(bad)
    for settings in ({"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}):
        with pytest.raises(pb.errors.ArgumentError):
            pb.optim.SparseAdam([table], **settings)
    net = pb.nn.Embedding(10, 3, 2, sparse=True)
    pb.sum(net(np.array([1, 2, 1]))).backward()
    assert net.weight.grad.todense()[2].tolist() == [0.0] * 3
    assert net.weight.grad.todense()[1].tolist() == [2.0] * 3
