"""Memory shared with the user: a write behind a graph raises or has no effect, and every lock is given back.

Kinds of arrays that lend their memory are met with every op whose result is a view, as found among the records.
"""

import array
import functools
import gc
import mmap

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import pullback as pb
from pullback.arrays.memory_ledger import owner_of
from pullback.arrays.protect import _locks, as_immutable, lock_array
from pullback.ops import load_all_ops
from pullback.ops.dispatch import apply

RNG = np.random.default_rng(5)


class Sub(np.ndarray):
    """A subclass, whose views keep their whole chain of bases."""


class Lender:
    """What other libraries hand out: an object with an array interface."""

    def __init__(self, data):
        self.data, self.__array_interface__ = data, data.__array_interface__


def flat(data):
    return np.array(data, order="C").reshape(-1)


def through_bytes(data, holder):
    """An array over a buffer that something else owns, and another array by which to write to it."""
    make = lambda: np.frombuffer(holder, data.dtype, data.size).reshape(data.shape)  # noqa: E731
    return make(), make()


def spaced(data):
    wide = np.repeat(flat(data), 2)
    return wide[::2].reshape(data.shape), wide


def reversed_view(data):
    own = np.array(np.flip(data))
    return np.flip(own), own


def through_strides(data):
    own = np.array(data)
    return as_strided(own, own.shape, own.strides), own


def through_window(data):
    own = np.concatenate([flat(data), [0.0]])
    window = sliding_window_view(own, data.size, writeable=True)[0]
    return as_strided(window, data.shape, np.array(data).strides), own


def through_memoryview(data):
    own = np.array(data)
    return np.asarray(memoryview(own)), own


def through_field(data):
    own = np.zeros(data.shape, [("a", data.dtype), ("b", data.dtype)])
    own["a"] = data
    return own["a"], own


def through_chain(data):
    """Three arrays over one memory; the user writes to the one in the middle."""
    middle = np.array(data).view(Sub)
    return middle.view(Sub), middle


def lent_read_only(data):
    own = np.array(data)
    view = own[...]
    view.flags.writeable = False
    return view, own


def frozen_owner(data):
    """A view that can be written to although its owner cannot."""
    own = np.array(data)
    view = own[...]
    own.flags.writeable = False
    return view, view


def mapped(data):
    pages = mmap.mmap(-1, max(data.nbytes, 1))
    shared, writer = through_bytes(data, pages)
    shared[...] = data
    return shared, writer


KINDS = {
    "plain": lambda d: (own := np.array(d), own),
    "Fortran": lambda d: (own := np.array(d, order="F"), own),
    "transposed": lambda d: (np.array(d.T).T, None),
    "spaced": spaced,
    "reversed": reversed_view,
    "as_strided": through_strides,
    "window": through_window,
    "memoryview": through_memoryview,
    "bytearray": lambda d: through_bytes(d, bytearray(d.tobytes())),
    "array.array": lambda d: through_bytes(d, array.array("B", d.tobytes())),
    "bytes": lambda d: (np.frombuffer(d.tobytes(), d.dtype).reshape(d.shape), None),
    "DLPack": lambda d: (np.from_dlpack(own := np.array(d)), own),
    "interface": lambda d: (np.asarray(Lender(own := np.array(d))), own),
    "subclass": lambda d: ((own := np.array(d)).view(Sub), own),
    "chain": through_chain,
    "field": through_field,
    "read-only view": lent_read_only,
    "frozen owner": frozen_owner,
    "mapped": mapped,
}  # fmt: skip


@functools.cache
def view_ops():
    """(op, arguments, place of the argument that the result is a view of, static) of every record that makes views."""
    found = {}
    for op in load_all_ops().values():
        if not op.differentiable or op.name in found or not callable(op.samples):
            continue
        for args, static in op.samples(np.random.default_rng(0)):
            place = seen_through(op, args, static)
            if place is not None:
                found[op.name] = op, args, place, static
                break
    return found


def seen_through(op, args, static):
    arrays = [np.array(x) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x for x in args]
    out = apply(op, *arrays, **static)
    outs = out if isinstance(out, tuple) else (out,)
    for k, x in enumerate(arrays):
        lends = isinstance(x, np.ndarray) and x.dtype == np.float64 and x.size
        if lends and any(isinstance(o, np.ndarray) and np.shares_memory(o, x) for o in outs):
            return k
    return None


def test_view_ops_are_found():
    assert {"windows", "permute_dims", "reshape", "flip"} <= set(view_ops())


def squares(value):
    parts = value if isinstance(value, tuple) else (value,)
    return sum((pb.sum(pb.real(v * v)) for v in parts), start=0.0)


def given_to(op, args, place, static, x):
    return squares(apply(op, *(x if k == place else a for k, a in enumerate(args)), **static))


@functools.cache
def unshared():
    """The gradients, of data that is not shared."""
    return {
        name: pb.grad(lambda x, sample=sample: given_to(*sample, x))(np.array(sample[1][sample[2]]))
        for name, sample in view_ops().items()
    }


def flags(*arrays):
    return [a.flags.writeable for a in arrays if a is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_behind_a_graph_raises_or_has_no_effect(kind):
    for name, (op, args, place, static) in view_ops().items():
        data, wanted = np.array(args[place]), unshared()[name]
        shared, writer = KINDS[kind](data)
        writer = shared if writer is None else writer
        before = flags(shared, writer)
        x = pb.asarray(shared, copy=False).requires_grad_()
        loss = given_to(op, args, place, static, x)
        try:
            writer[...] = 100.0
        except ValueError as error:
            assert "read-only" in str(error), name  # noqa: PT017 - both ends are right, a wrong gradient is not
        loss.backward()
        np.testing.assert_array_equal(x.grad.numpy(), wanted, err_msg=name)
        del loss, x
        assert flags(shared, writer) == before, name
    assert not _locks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["checkpoint", "budget", "vjp", "checkpoint_loop"])
def test_a_write_behind_what_is_computed_again(kind, how):
    data = RNG.normal(size=(3, 4))
    wanted = pb.grad(lambda x: pb.sum(pb.sin(pb.exp(x))))(data)
    shared, writer = KINDS[kind](data)
    writer = shared if writer is None else writer
    before = flags(shared, writer)
    x = pb.asarray(shared, copy=False).requires_grad_()
    if how == "checkpoint":
        loss = pb.sum(pb.checkpoint(lambda x: pb.sin(pb.exp(x)))(x))
    elif how == "budget":
        with pb.memory_budget("1 MiB"):
            loss = pb.sum(pb.sin(pb.exp(x)))
    elif how == "checkpoint_loop":
        step = lambda i, x: pb.exp(x) if i == 0 else pb.sin(x)  # noqa: E731
        loss = pb.sum(pb.checkpoint_loop(step, x, 2, snapshots=1))
    else:
        loss, pull = pb.vjp(lambda x: pb.sum(pb.sin(pb.exp(x))), x.detach())
    try:
        writer[...] = 100.0
    except ValueError as error:
        assert "read-only" in str(error)  # noqa: PT017
    if how == "vjp":
        found = np.asarray(pull(pb.tensor(1.0))[0])
        del pull
    else:
        loss.backward()
        found = x.grad.numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    del loss, x
    gc.collect()
    assert flags(shared, writer) == before


def test_an_array_that_a_graph_locked_is_copied_where_another_keeps_it():
    """The first graph gives the array back; the second must not have relied on its being read-only."""
    a = np.array([1.0, 2.0])
    w, v = (pb.tensor([3.0, 4.0], requires_grad=True) for _ in range(2))
    first = pb.sum(w * pb.asarray(a, copy=False))
    second = pb.sum(v * a)
    first.backward()
    a[:] = 100.0
    second.backward()
    assert v.grad.tolist() == [1.0, 2.0]


def test_what_cannot_be_locked_is_copied_as_it_lies():
    own = np.asfortranarray(RNG.normal(size=(3, 4)))
    kept = lock_array(np.asarray(memoryview(own)))
    assert not np.shares_memory(kept, own)
    assert kept.flags.f_contiguous
    assert not kept.flags.writeable
    assert as_immutable(own).flags.f_contiguous


def test_memory_of_bfloat16_is_shared():
    a = np.ones(3, pb.bfloat16)
    x = pb.asarray(a, copy=False).requires_grad_()
    loss = pb.sum(x * x)
    assert not a.flags.writeable
    loss.backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert a.flags.writeable


def test_constant_memory_is_neither_copied_nor_locked():
    data = np.frombuffer(np.arange(3.0).tobytes())
    assert np.shares_memory(lock_array(data), data)
    assert not _locks


def test_a_window_is_counted_as_the_memory_it_looks_at():
    x = np.arange(10.0)
    assert owner_of(pb.unfold(x, 0, 4, 1)) is x
    assert owner_of(lock_array(x)) is x


def test_windows_cannot_be_written_through():
    with pytest.raises(ValueError, match="read-only"):
        pb.unfold(np.arange(5.0), 0, 2, 1)[0, 0] = 1.0
