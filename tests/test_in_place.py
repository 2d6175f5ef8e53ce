"""Writing: a tensor that is written to points at a new value, and no write anywhere reaches what a graph keeps."""

import subprocess
import sys

import numpy as np
import pytest

import pullback as pb
from pullback import errors, grad, vmap


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def assign(x, index, value):
    x[index] = value
    return x


def add(x, y):
    x += y
    return x


def subtract(x, y):
    x -= y
    return x


def multiply(x, y):
    x *= y
    return x


def divide(x, y):
    x /= y
    return x


def raise_to(x, y):
    x **= y
    return x


def matmul(x, y):
    x @= y
    return x


IN_PLACE = {
    "+=": (add, pb.add),
    "-=": (subtract, pb.subtract),
    "*=": (multiply, pb.multiply),
    "/=": (divide, pb.divide),
    "**=": (raise_to, pb.power),
    "@=": (matmul, pb.matmul),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("tracks", ["both", "target", "source"])
def test_in_place_operator_is_the_op_on_the_tape(name, tracks):
    in_place, op = IN_PLACE[name]
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, (2, 2)), rng.uniform(1, 2, (2, 2))

    def run(f):
        x, y = pb.tensor(a, requires_grad=tracks != "source"), pb.tensor(b, requires_grad=tracks != "target")
        target = x * 1.0
        out = f(target, y)
        pb.sum(out * out).backward()
        return [out.detach(), *(None if t.grad is None else t.grad for t in (x, y))], target, out

    written, target, out = run(in_place)
    assert out is target
    for mine, other in zip(written, run(op)[0], strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or np.array_equal(mine.numpy(), other.numpy())


@pytest.mark.parametrize(
    ("f", "start", "source", "of_source"),
    [
        (add, [1.0, 2.0], [3.0], [2.0]),
        (multiply, [1.0, 2.0], [3.0, 4.0], [1.0, 2.0]),
        (divide, [1.0, 2.0], [2.0, 4.0], [-0.25, -0.125]),
    ],
)
def test_untracked_target_tracks_once_a_tracked_source_is_written(f, start, source, of_source):
    x, s = pb.tensor(start), leaf(source)
    f(x, s)
    assert x.requires_grad
    pb.sum(x).backward()
    assert s.grad.tolist() == of_source


def test_target_that_is_no_leaf():
    x, s = leaf([4.0, 9.0]), leaf([2.0, 3.0])
    y = x + 1
    alias = y
    y *= s
    assert alias.node is y.node
    pb.sum(alias).backward()
    assert (x.grad.tolist(), s.grad.tolist()) == ([2.0, 3.0], [5.0, 10.0])


def test_what_was_computed_before_a_write_keeps_its_value_and_derivative():
    a = leaf([1.0, 2.0, 3.0])
    x = a * 1.0
    before = [f(x) for f in (pb.square, pb.exp, pb.tanh, lambda v: v / (v + 1), lambda v: pb.max(v, keepdims=True))]
    x[1] = 0.0
    x += 10.0
    x.fill_(5.0)
    for value, wanted in zip(
        before,
        (lambda v: v * 2, np.exp, lambda v: 1 - np.tanh(v) ** 2, lambda v: 1 / (v + 1) ** 2, lambda v: [0, 0, 1]),
        strict=True,
    ):
        a.grad = None
        pb.sum(value).backward(retain_graph=True)
        np.testing.assert_allclose(a.grad.numpy(), wanted(np.array([1.0, 2.0, 3.0])), rtol=1e-14)


def test_writing_to_the_result_of_an_op_that_keeps_its_result():
    x = leaf([4.0, 9.0])
    y = pb.sqrt(x)
    y.detach().fill_(100.0)
    y += 1.0
    x.detach().fill_(100.0)
    pb.sum(y).backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.25, 1 / 6], rtol=1e-15)


INDEXED = {
    "element": ((1,), 7.0),
    "slice": (slice(0, 2), [7.0, 8.0]),
    "step": (slice(None, None, -2), [7.0, 8.0]),
    "scalar over a slice": (slice(None), 7.0),
    "integer array": ([2, 0], [7.0, 8.0]),
    "integer twice: the last one stays": ([1, 1], [7.0, 8.0]),
    "mask": (np.array([True, False, True]), [7.0, 8.0]),
    "empty mask": (np.zeros(3, bool), []),
    "ellipsis": (..., [7.0, 8.0, 9.0]),
    "extra axis of size one": (slice(0, 2), np.array([[7.0, 8.0]])),
}


@pytest.mark.parametrize("case", INDEXED)
@pytest.mark.parametrize("tracks", ["target", "source", "both"])
def test_assignment_writes_as_numpy_does_and_cuts_the_path_it_overwrites(case, tracks):
    index, values = INDEXED[case]
    start = np.array([1.0, 2.0, 3.0])
    wanted = start.copy()
    wanted[index] = values
    untouched = np.ones(3)
    untouched[index] = 0.0
    a, v = pb.tensor(start, requires_grad=tracks != "source"), pb.tensor(values, requires_grad=tracks != "target")
    x = a * 1.0
    x[index] = v
    assert x.tolist() == wanted.tolist()
    weight = np.array([1.0, 10.0, 100.0])
    pb.sum(x * weight).backward()
    if a.requires_grad:
        assert a.grad.tolist() == (untouched * weight).tolist()
    if v.requires_grad:
        stayed = np.zeros(3)
        stayed[index] = 1.0
        assert np.sum(v.grad.numpy()) == np.sum(stayed * weight)
        assert v.grad.shape == v.shape


def test_repeated_index_gives_the_gradient_to_the_value_that_stayed():
    x, v = pb.zeros(2), leaf([3.0, 4.0, 5.0])
    x[[0, 0, 1]] = v
    pb.sum(x).backward()
    assert (x.tolist(), v.grad.tolist()) == ([4.0, 5.0], [0.0, 1.0, 1.0])


def test_part_of_a_tensor_is_updated_in_one_statement():
    a = leaf([1.0, 2.0, 3.0])
    x = a * 1.0
    x[:2] *= 10.0
    x[x > 15] += 1.0
    assert x.tolist() == [10.0, 21.0, 3.0]
    pb.sum(x).backward()
    assert a.grad.tolist() == [10.0, 10.0, 1.0]


@pytest.mark.parametrize("value", [7.0, np.array(7.0), [7.0, 7.0]])
def test_fill_points_at_a_constant(value):
    a = leaf([1.0, 2.0])
    x = a * 1.0
    assert x.fill_(value) is x
    assert x.tolist() == [7.0, 7.0]
    assert not x.requires_grad


def test_fill_with_a_tracked_value_passes_its_gradient():
    x, w = pb.zeros((2, 3)), leaf(5.0)
    x.fill_(w)
    pb.sum(x).backward()
    assert w.grad.item() == 6.0


def test_leaf_written_where_ops_are_recorded_passes_the_gradient_to_itself():
    x = leaf([1.0, 2.0])
    x *= 3.0
    assert not x.is_leaf
    pb.sum(x * x).backward()
    assert x.grad.tolist() == [18.0, 36.0]


@pytest.mark.parametrize(
    "write",
    [lambda x: add(x, 1.0), lambda x: assign(x, 0, 9.0), lambda x: x.fill_(2.0), lambda x: multiply(x, np.ones(2))],
)
def test_parameter_update_keeps_leaf_hooks_and_grad(write):
    x, seen = leaf([1.0, 2.0]), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    pb.sum(x * x).backward()
    with pb.no_grad():
        write(x)
    assert x.is_leaf
    assert x.grad.tolist() == [2.0, 4.0]
    values = x.tolist()
    pb.sum(x * x).backward()
    assert seen == [[2.0, 4.0], [2 * v for v in values]]


def test_retain_grad_follows_the_variable_to_its_new_value():
    x = leaf(1.0)
    y = x * 3.0
    y.retain_grad()
    y *= 2.0
    (y * y).backward()
    assert (y.item(), y.grad.item(), x.grad.item()) == (6.0, 12.0, 72.0)


def test_tracked_value_written_where_nothing_is_recorded_becomes_a_constant():
    x = leaf([1.0, 2.0])
    y = x * 3.0
    with pb.no_grad():
        y += 1.0
    assert not y.requires_grad
    assert y.tolist() == [4.0, 7.0]


NEW_VALUES = {
    "slice": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "same shape": lambda x: x.reshape((2, 2)),
    "reshape": lambda x: x.reshape(4),
    "flatten": lambda x: x[0].flatten(),
    "transpose": lambda x: x.T,
    "transpose of one axis": lambda x: x[0].T,
    "same dtype": lambda x: x.astype(np.float64),
    "squeeze": lambda x: pb.squeeze(x),
    "broadcast": lambda x: pb.broadcast_to(x, (2, 2)),
    "same order": lambda x: pb.permute_dims(x, (0, 1)),
    "moveaxis": lambda x: pb.moveaxis(x, 0, 0),
    "einsum": lambda x: pb.einsum("ij->ij", x),
    "tile": lambda x: pb.tile(x, (1, 1)),
    "copy": lambda x: x.copy(),
    "plus": lambda x: +x,
    "detach": lambda x: x.detach(),
    "real": lambda x: x.real,
    "stop_gradient": pb.stop_gradient,
    "a row by iterating": lambda x: next(iter(x)),
    "part of a split": lambda x: pb.split(x, 2)[0],
    "concat of one": lambda x: pb.concat([x]),
    "sum over no axis": lambda x: pb.sum(x, axis=()),
    "clip without bounds": lambda x: pb.clip(x),
}


#: What NumPy would share memory with: writing to it is refused while its source lives.
VIEWS = (
    "slice", "ellipsis", "same shape", "reshape", "transpose", "transpose of one axis", "real", "a row by iterating",
)  # fmt: skip


@pytest.mark.parametrize("make", NEW_VALUES.values(), ids=NEW_VALUES)
@pytest.mark.parametrize("tracked", [False, True])
def test_result_of_an_op_is_a_value_of_its_own(make, tracked):
    x = pb.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=tracked) * 1.0
    y, z = make(x), make(x)
    before = z.tolist()
    if make in map(NEW_VALUES.get, VIEWS):
        with pytest.raises(errors.GraphError, match="slice"):
            y += 100.0
    else:
        y += 100.0
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    x += 100.0
    assert z.tolist() == before


@pytest.mark.parametrize("name", sorted(set(NEW_VALUES) - {"detach", "stop_gradient"}))
@pytest.mark.parametrize("of", ["leaf", "result"])
def test_result_of_an_op_has_a_gradient_of_its_own(name, of):
    """Also where shape or dtype were that already: what a gradient means must not hang on a shape."""
    x, seen = leaf([[1.0, 2.0], [3.0, 4.0]]), []
    start = x if of == "leaf" else x * 1.0
    y = NEW_VALUES[name](start)
    y.register_hook(lambda g: seen.append(np.unique(g.numpy()).tolist()))
    loss = pb.sum(y * 2.0) + pb.sum(start * 3.0)
    assert np.unique(pb.gradients(loss, y, retain_graph=True)[0].numpy()).tolist() == [2.0]
    loss.backward()
    assert seen == [[2.0], [2.0]]
    assert x.grad.numpy().max() == 5.0


def test_copy_of_booleans_is_a_value_of_its_own():
    x = pb.tensor([True, False])
    for y in (x.copy(), +x):
        y[0] = False
        assert x.tolist() == [True, False]


def test_chained_assignment_would_be_lost_and_raises():
    x = pb.zeros((2, 2))
    with pytest.raises(errors.GraphError, match="would be lost"):
        x[0][1] = 5.0
    assert x.tolist() == [[0.0, 0.0], [0.0, 0.0]]


class Holder:
    """Tensors live in other places than local names."""

    def __init__(self):
        self.w = pb.zeros(2)

    @property
    def made(self):
        return self.w


MODULE_LEVEL = pb.zeros(2)


def test_tensors_in_containers_can_be_written():
    holder, listed, keyed, pair = Holder(), [pb.zeros(2)], {"w": pb.zeros(2)}, (pb.zeros(2),)
    closed = pb.zeros(2)

    def write():
        closed[0] = 1.0

    holder.w[0] = listed[0][0] = keyed["w"][0] = pair[0][0] = MODULE_LEVEL[0] = 1.0
    write()
    holder.made[1] = 2.0
    for x in listed:
        x[1] = 3.0
    [y for y in [closed] if assign(y, 1, 2.0) is not None]
    assert [holder.w.tolist(), listed[0].tolist(), keyed["w"].tolist(), pair[0].tolist(), closed.tolist()] == [
        [1.0, 2.0], [1.0, 3.0], [1.0, 0.0], [1.0, 0.0], [1.0, 2.0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "write",
    [
        lambda x: add(x, np.ones((3, 2))),
        lambda x: multiply(x, pb.ones((2, 2))),
        lambda x: assign(x, 0, np.ones(2)),
        lambda x: assign(x, slice(None), np.ones(3)),
        lambda x: x.fill_(np.ones(3)),
    ],
)
def test_shape_of_a_tensor_never_changes(write):
    x = pb.ones(2)
    with pytest.raises(errors.ShapeError):
        write(x)
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "write",
    [lambda x: add(x, 0.5), lambda x: divide(x, 2), lambda x: assign(x, 0, np.array(0.5)), lambda x: add(x, 1j)],
)
def test_values_of_another_kind_do_not_fit(write):
    x = pb.tensor([1, 2])
    with pytest.raises(errors.DtypeError):
        write(x)
    assert x.tolist() == [1, 2]
    assert x.dtype == np.int64


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.full(2, 0.5), pb.full(2, 0.5)])
def test_wider_floats_are_narrowed_to_the_target(value):
    w = leaf([1.0, 2.0], np.float32)
    x = w * 1
    x += value
    x[:] = value * x
    assert x.dtype == np.float32
    pb.sum(x).backward()
    assert (w.grad.dtype, w.grad.tolist()) == (np.float32, [0.5, 0.5])


def test_index_that_does_not_fit_is_an_index_error():
    x = pb.zeros(2)
    for index in (5, (0, 0), [0, 7], 1.5, np.ones(3, bool)):
        with pytest.raises(errors.IndexingError):
            x[index] = 1.0
    assert x.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: x * a,
        lambda x, a: pb.divide(x, a),
        lambda x, a: a**x,
        lambda x, a: pb.maximum(x, a),
        lambda x, a: pb.where(a > 1, x, a),
        lambda x, a: pb.matmul(x, a),
        lambda x, a: pb.einsum("i,i->i", x, a),
        lambda x, a: pb.atan2(x, a),
        lambda x, a: pb.clip(x, a, a + 1),
    ],
)
def test_array_beside_a_tensor_may_be_written_after_the_op(f):
    a = np.array([1.5, 0.5])
    x, twin = leaf([2.0, 1.0]), leaf([2.0, 1.0])
    loss = pb.sum(f(x, a))
    pb.sum(f(twin, a.copy())).backward()
    a[:] = 1e6
    loss.backward()
    assert x.grad.tolist() == twin.grad.tolist()


def test_read_only_view_beside_a_tensor_may_change_through_its_owner():
    a, x = np.array([2.0, 3.0]), leaf([[1.0, 1.0], [1.0, 1.0]])
    frozen = a.view()
    frozen.flags.writeable = False
    loss = pb.sum(x * np.broadcast_to(a, (2, 2)) + x * frozen)
    a[:] = 100.0
    loss.backward()
    assert x.grad.tolist() == [[4.0, 6.0], [4.0, 6.0]]


@pytest.mark.parametrize("index", [np.array([0, 1]), np.array([True, True])])
def test_index_array_may_be_written_after_the_op(index):
    x = leaf([2.0, 1.0])
    kept = index.copy()
    loss = pb.sum(x[index] * x[index])
    index[:] = 0
    loss.backward()
    assert x.grad.tolist() == [4.0, 2.0]
    assert kept.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda a: pb.tensor(a),
        lambda a: pb.asarray(a),
        lambda a: pb.asarray(a, copy=True),
        lambda a: pb.from_dlpack(a),
        lambda a: pb.full(2, a[0]),
    ],
)
def test_creation_copies(make):
    a = np.array([2.0, 2.0])
    x = make(a).requires_grad_()
    loss = pb.sum(x * x)
    a[:] = 100.0
    loss.backward()
    assert (x.tolist(), x.grad.tolist()) == ([2.0, 2.0], [4.0, 4.0])


def shared_with(w, a, through=lambda s: s):
    return pb.sum(w * through(pb.asarray(a, copy=False)))


@pytest.mark.parametrize("end", ["backward", "dropped", "gradients", "error"])
def test_shared_array_is_locked_while_a_graph_needs_it(end):
    a, w = np.array([1.0, 2.0]), leaf([3.0, 4.0])
    x = pb.asarray(a, copy=False)
    assert np.shares_memory(x.numpy(), a)
    a[0] = 5.0
    loss = pb.sum(w * x)
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 100.0
    if end == "backward":
        loss.backward()
        assert w.grad.tolist() == [5.0, 2.0]
    elif end == "gradients":
        assert pb.gradients(loss, w)[0].tolist() == [5.0, 2.0]
    elif end == "error":
        loss.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 100.0
    del loss
    a[0] = 7.0
    assert x.tolist() == [7.0, 2.0]


def test_array_is_locked_until_the_last_graph_is_gone():
    a, w = np.array([1.0, 2.0]), leaf([3.0, 4.0])
    first, second = shared_with(w, a), shared_with(w, a)
    first.backward()
    assert not a.flags.writeable
    second.backward(retain_graph=True)
    assert not a.flags.writeable
    del second
    assert a.flags.writeable


def test_lock_of_a_linked_gradient():
    a, w = np.array([1.0, 2.0]), leaf([3.0, 4.0])
    (g,) = pb.gradients(pb.sum(pb.sin(w * pb.asarray(a, copy=False))), w, create_graph=True)
    assert not a.flags.writeable
    del g
    assert a.flags.writeable


def test_array_that_was_read_only_stays_so():
    a = np.array([1.0, 2.0])
    a.flags.writeable = False
    shared_with(leaf([3.0, 4.0]), a).backward()
    assert not a.flags.writeable


def test_view_given_to_share_is_locked_with_its_owner_and_given_back():
    a, w = np.arange(4.0), leaf([3.0, 4.0])
    view = a[::2]
    loss = shared_with(w, view)
    assert not view.flags.writeable
    assert not a.flags.writeable
    loss.backward()
    assert a.flags.writeable
    assert view.flags.writeable


THROUGH = {
    "itself": lambda s: s,
    "slice": lambda s: s[:],
    "reshape": lambda s: s.reshape((2, 1)).reshape(2),
    "detach": lambda s: s.detach(),
    "split": lambda s: pb.split(s, 1)[0],
    "stop_gradient": pb.stop_gradient,
    "real": pb.real,
    "flip": lambda s: pb.flip(pb.flip(s)),
    "einsum": lambda s: pb.einsum("i->i", s),
    "copy": lambda s: s.copy(),
    "asarray": pb.asarray,
    "astype": lambda s: s.astype(np.float64),
    "broadcast": lambda s: pb.broadcast_to(s, (2,)),
    "squeeze": lambda s: pb.squeeze(s),
    "iteration": lambda s: pb.stack(list(s)),
    "requires_grad": lambda s: s.detach().requires_grad_(),
    "sharing numpy()": lambda s: pb.asarray(s.numpy(), copy=False),
}


@pytest.mark.parametrize("through", THROUGH.values(), ids=THROUGH)
def test_write_behind_any_view_of_shared_memory_raises_or_has_no_effect(through):
    a, w = np.array([1.0, 2.0]), leaf([3.0, 4.0])
    loss = shared_with(w, a, through)
    try:
        a[0] = 100.0
    except ValueError as error:
        assert "read-only" in str(error)  # noqa: PT017 - both ends are right, a wrong gradient is not
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0]
    del loss
    a[0] = 9.0


def test_filling_with_an_array_takes_its_values_not_its_memory():
    a, w = np.array([1.0, 2.0]), leaf([3.0, 4.0])
    x = pb.zeros(2)
    x.fill_(a)
    loss = pb.sum(w * x)
    a[:] = 100.0
    loss.backward()
    assert (x.tolist(), w.grad.tolist()) == ([1.0, 2.0], [1.0, 2.0])


def test_sharing_needs_an_array_of_the_wanted_dtype():
    for data, dtype in (([1.0], None), (3.0, None), (np.ones(2), np.float32)):
        with pytest.raises(errors.ArgumentError, match="copy=False"):
            pb.asarray(data, dtype=dtype, copy=False)


def test_writing_to_a_tensor_that_shares_leaves_the_array_alone():
    a = np.array([1.0, 2.0])
    x = pb.asarray(a, copy=False)
    x += 1.0
    x[0] = 7.0
    assert (a.tolist(), x.tolist()) == ([1.0, 2.0], [7.0, 3.0])
    y = pb.sum(leaf([1.0, 1.0]) * x)
    assert a.flags.writeable
    y.backward()


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x.numpy(),
        np.asarray,
        lambda x: x.T.numpy(),
        lambda x: x[0:1].numpy(),
        lambda x: np.from_dlpack(x, copy=False),
    ],
)
def test_arrays_handed_out_cannot_be_written(take):
    x = pb.tensor([1.0, 2.0])
    w = leaf([1.0, 1.0])
    loss = pb.sum(w * x)
    with pytest.raises(ValueError, match="read-only"):
        take(x)[0] = 100.0
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_cycle_collected_while_an_array_is_being_locked_does_not_hang():
    """The collector may run anywhere, also where the table of locks is held, and free a locked view right there."""
    program = """
import faulthandler, gc, numpy as np, pullback as pb
faulthandler.dump_traceback_later(10, exit=True)
w = pb.tensor([1.0, 2.0], requires_grad=True)
for wait in range(120):
    gc.disable()
    ring = [w * pb.asarray(np.ones(2), copy=False)]
    ring.append(ring)
    del ring
    gc.set_threshold(gc.get_count()[0] + wait % 40 + 1, 1000, 1000)
    gc.enable()
    for _ in range(3):
        w * pb.asarray(np.ones(2), copy=False)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("write", [lambda y, x: add(y, x), lambda y, x: assign(y, 0, x[1]), lambda y, x: y.fill_(x[0])])
def test_writes_inside_a_batched_gradient(write):
    def f(x):
        y = x * 1.0
        write(y, x)
        return pb.sum(pb.sin(y) * y)

    points = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(vmap(grad(f))(points), [grad(f)(p) for p in points], rtol=1e-12)


def _rebound(x):
    weights = pb.tensor(np.ones(3))
    product = weights * x
    weights[...] = product
    return weights.sum()


def _rebound_twice(x):
    weights = pb.tensor(np.ones(3))
    product = weights * x
    weights += x
    product = product * weights
    weights *= 2.0
    return product.sum()


@pytest.mark.parametrize("f", [_rebound, _rebound_twice])
def test_a_constant_that_is_rebound_keeps_the_value_that_a_tape_inside_a_transform_saved(f):
    """A tape above a transform's values saved the variable itself, so backward met what it was rebound to."""
    x = np.array([0.7, 1.3, 0.4])
    wanted = [f(x + 1e-6 * e).item() / 2e-6 - f(x - 1e-6 * e).item() / 2e-6 for e in np.eye(3)]
    remade = pb.grad(lambda x: pb.checkpoint(f)(x))
    with pb.saved_tensors_hooks(lambda t: t, lambda t: t):
        hooked = pb.jit(pb.grad(f))(x)
    for found in (
        pb.grad(f)(x), pb.jit(pb.grad(f))(x), pb.jit(remade)(x), hooked, pb.vmap(pb.grad(f))(x[None])[0],
        pb.jvp(pb.grad(f), (x,), (x,))[0], pb.linearize(pb.grad(f), x)[0],
    ):  # fmt: skip
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-8)


def add_a_copy(x):
    v = x * 2
    other = x.copy()
    v += other
    return v


def add_an_array_that_was_filled(x):
    v, other = x * 2, np.zeros(3)
    other[1] = x[0]
    v[1:] *= other[1:]
    v += other
    return v


@pytest.mark.parametrize(("f", "wanted"), [(add_a_copy, [3, 6, 9]), (add_an_array_that_was_filled, [2, 5, 0])])
def test_values_of_transforms_are_updated_by_variables_made_inside(f, wanted):
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(pb.jit(f)(x), wanted)
    np.testing.assert_allclose(pb.vmap(f)(np.stack([x, x])), [wanted, wanted])
    slopes = pb.jacrev(f)(x)
    np.testing.assert_allclose(pb.jacfwd(f)(x), slopes)
    np.testing.assert_allclose(pb.jit(pb.jacfwd(f))(x), slopes)
    np.testing.assert_allclose(pb.jit(pb.vmap(pb.jacrev(f)))(x[None])[0], slopes)
