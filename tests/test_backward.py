"""Outputs and seeds in, gradients out: what a backward pass gives to whom, in which dtype, and in whose memory."""

import inspect
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback import errors


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def next_line():
    """The line after the caller's, as an error names it."""
    return f"{Path(__file__).name}:{inspect.currentframe().f_back.f_lineno + 1}"


KNOWN = {
    "sum": (lambda a, b: a + b, (2.0, 3.0), (1.0, 1.0)),
    "product": (lambda a, b: a * b, (2.0, 3.0), (3.0, 2.0)),
    "one value twice": (lambda a: a + a, (5.0,), (2.0,)),
    "a value used on two ways": (lambda a, b: a * b + b, (2.0, 3.0), (3.0, 3.0)),
    "shape (1,)": (lambda x: x * x, ([3.0],), ([6.0],)),
    "two of shape (1,)": (lambda x, y: x**2 + y**2, ([3.0], [-4.0]), ([6.0], [-8.0])),
    "weighted sum": (lambda x, w: pb.sum(x * w), ([2.0, 3.0], [1.0, 0.5]), ([1.0, 0.5], [2.0, 3.0])),
    "x*x + x": (lambda x: pb.sum(x * x + x), ([1.0, 2.0, 3.0],), ([3.0, 5.0, 7.0],)),
    "division broadcasts": (lambda a, b: pb.sum(a / b), ([3.0, 5.0], [2.0]), ([0.5, 0.5], [-2.0])),
    "through float32 and back": (
        lambda x: pb.sum(pb.astype(pb.astype(x, np.float32), np.float64) ** 2), ([1.0, 2.0, 3.0],), ([2.0, 4.0, 6.0],),
    ),
    "rows taken twice": (
        lambda x: pb.sum(pb.take(x, [2, 0, 2], axis=0)), ([[1.0, 2], [3, 4], [5, 6]],), ([[1.0, 1], [0, 0], [2, 2]],),
    ),
    "gathered": (
        lambda x: pb.sum(pb.take_along_axis(x, np.array([[0, 2], [2, 2]]), axis=1)),
        (np.ones((2, 3)),), ([[1.0, 0, 1], [0, 0, 2]],),
    ),
    "masked": (
        lambda x: pb.sum(pb.broadcast_to(x, (2, 2))[np.array([[True, False], [True, True]])]),
        ([10.0, 20.0],), ([2.0, 1.0],),
    ),
    "repeated zero times": (lambda x: pb.sum(pb.repeat(x, 0)), ([1.0, 2.0],), ([0.0, 0.0],)),
    "tiled zero times": (lambda x: pb.sum(pb.tile(x, (0,))), ([1.0, 2.0],), ([0.0, 0.0],)),
    "joined with an empty one": (lambda x, e: pb.sum(pb.concat([x, e]) ** 2), ([1.0, 2.0], []), ([2.0, 4.0], [])),
    "twenty axes": (lambda x: pb.sum(pb.broadcast_to(x, (2,) + (1,) * 19) * x), ([3.0],), ([12.0],)),
}  # fmt: skip


@pytest.mark.parametrize("case", KNOWN)
@pytest.mark.parametrize("how", ["backward", "gradients", "workers", "linked"])
def test_known_gradients(case, how):
    f, points, wanted = KNOWN[case]
    leaves = [leaf(p) for p in points]
    out = f(*leaves)
    if how == "gradients":
        found = pb.gradients(out, leaves)
    else:
        out.backward(workers=2 if how == "workers" else 1, create_graph=how == "linked")
        found = [x.grad for x in leaves]
    for g, x, w in zip(found, leaves, wanted, strict=True):
        assert g.shape == x.shape
        np.testing.assert_allclose(g.detach().numpy(), w, rtol=1e-15)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("root", ["leaf", "op"])
def test_own_seed_has_the_shape_of_the_output(shape, root):
    x = leaf(np.full(shape, 3.0))
    out = x if root == "leaf" else x * x
    out.backward()
    assert x.grad.shape == shape
    assert x.grad.item() == (1.0 if root == "leaf" else 6.0)


def test_leaf_root_gets_the_seed_and_a_second_pass_adds():
    x = leaf([1.0, 2.0])
    x.backward([3.0, 4.0])
    x.backward(np.array([10.0, 20.0]))
    assert x.grad.tolist() == [13.0, 24.0]


@pytest.mark.parametrize(
    "seed", [[1.0, 10.0], np.array([1.0, 10.0]), pb.tensor([1.0, 10.0]), np.array([1, 10], np.float32)]
)
def test_seed_may_be_anything_that_is_an_array(seed):
    x = leaf([1.0, 2.0])
    (x * x).backward(seed)
    assert x.grad.tolist() == [2.0, 40.0]
    assert x.grad.dtype == np.float64


@pytest.mark.parametrize("seed", [np.ones(3), np.ones((2, 1)), 1.0, np.ones((1, 2)), np.ones(0)])
def test_seed_of_another_shape_is_refused(seed):
    x = leaf([1.0, 2.0])
    where = next_line()
    y = x * x
    with pytest.raises(errors.ShapeError, match=r"seed has shape .*, the output has shape \(2,\)") as caught:
        y.backward(seed)
    assert where in str(caught.value)
    assert x.grad is None


@pytest.mark.parametrize("seed", [np.array([1j, 2.0]), np.array([1, 10]), np.array([True, False])])
def test_seed_of_another_kind_is_refused(seed):
    with pytest.raises(errors.DtypeError, match="seed is"):
        (leaf([1.0, 2.0]) * 2).backward(seed)


def test_vector_without_seed_is_refused_by_shape_and_line():
    where = next_line()
    y = leaf([1.0, 2.0, 3.0]) * 2
    with pytest.raises(errors.ShapeError, match=r"\(3,\)") as caught:
        y.backward()
    assert where in str(caught.value)


def test_complex_root_needs_a_seed():
    z = leaf(1 + 2j, np.complex128)
    with pytest.raises(errors.DtypeError, match="seed"):
        (z * z).backward()
    (z * z).backward(np.asarray(1 + 0j))
    assert z.grad.item() == np.conj(2 * (1 + 2j))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_root_that_tracks_nothing_is_refused_also_where_a_seed_would_be_missing(shape):
    with pytest.raises(errors.GraphError, match="does not require a gradient"):
        pb.ones(shape).backward()


def test_second_pass_over_a_retained_graph_adds():
    x = leaf([1.0, 2.0])
    loss = pb.sum(pb.exp(x) * x)
    loss.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * once)


FREED = {
    "product": lambda x: x * x,
    "function": lambda x: pb.tanh(x),
    "sum": lambda x: x + x,
    "reshape": lambda x: pb.reshape(x, (1, 1)),
    "square": lambda x: x**2,
    "reflected": lambda x: 2.0 - x,
    "composite": lambda x: pb.silu(x),
    "method": lambda x: x.mean(),
    "ufunc": lambda x: np.sin(x),
    "array beside it": lambda x: np.ones(1) * x,
}


@pytest.mark.parametrize("f", FREED.values(), ids=FREED)
@pytest.mark.parametrize("again", ["backward", "gradients"])
def test_freed_graph_names_op_line_and_cure(f, again):
    x = leaf([2.0])
    y = f(x)
    f_line = f"{Path(__file__).name}:{f.__code__.co_firstlineno}"
    y.backward()
    with pytest.raises(errors.GraphError) as caught:
        y.backward() if again == "backward" else pb.gradients(y, x)
    for part in (y.node.name, f_line, "retain_graph=True"):
        assert part in str(caught.value)
    assert x.grad.size == 1


def test_part_of_a_freed_graph_fails_whole_and_writes_nothing():
    x, z = leaf(2.0), leaf(5.0)
    shared = pb.exp(x)
    (shared * 2).backward()
    x.grad = None
    with pytest.raises(errors.GraphError, match="freed"):
        (shared * z).backward()
    assert x.grad is None
    assert z.grad is None


def test_input_that_was_not_used_is_named():
    x = leaf(1.0)
    where = next_line()
    unused = pb.tensor(2.0, requires_grad=True)
    assert pb.gradients(x * 2, [unused, x], allow_unused=True)[0] is None
    with pytest.raises(errors.GraphError, match=r"input 1.*not used") as asked:
        pb.gradients(x * 2, [x, unused])
    with pytest.raises(errors.GraphError, match=r"input 1.*not used") as stored:
        (x * 2).backward(inputs=[x, unused])
    assert where in str(asked.value)
    assert where in str(stored.value)
    assert x.grad is None
    assert "allow_unused" not in str(stored.value), "backward has no such parameter"


def test_input_that_requires_nothing_is_refused():
    with pytest.raises(errors.GraphError, match=r"input 1 .*does not require"):
        pb.gradients(leaf(1.0) * 2, [leaf(1.0), pb.ones(())])


@pytest.mark.parametrize("given", [lambda x: [np.ones(())], lambda x: [x.numpy], lambda x: []])
def test_inputs_that_are_no_tensors_are_refused(given):
    x = leaf(1.0)
    with pytest.raises(errors.ArgumentError):
        pb.gradients(x * 2, given(x))


def test_inputs_limit_who_gets_a_gradient():
    x, w = leaf(2.0), leaf(5.0)
    middle = x * w
    (middle * middle).backward(inputs=[x, middle])
    assert (x.grad.item(), w.grad, middle.grad.item()) == (100.0, None, 20.0)


def test_inputs_skip_work_that_only_others_need():
    x, w = leaf(2.0), leaf(5.0)
    seen = []
    side = pb.sin(w)
    side.node.register_pre_hook(seen.append)
    (x * side).backward(inputs=x)
    assert seen == []


def test_input_named_twice_gets_its_gradient_once():
    x = leaf(3.0)
    (x * x).backward(inputs=[x, x])
    assert x.grad.item() == 6.0
    assert [g.item() for g in pb.gradients(x * x, [x, x])] == [6.0, 6.0]


def test_gradients_touch_no_grad():
    x = leaf([1.0, 2.0])
    x.grad = np.array([13.0, -17.0])
    middle = x * x
    middle.retain_grad()
    (found,) = pb.gradients(pb.sum(middle * 2), x)
    assert found.tolist() == [4.0, 8.0]
    assert not found.requires_grad
    assert x.grad.tolist() == [13.0, -17.0]
    assert middle.grad is None


def test_gradients_of_several_outputs_add_up():
    x = leaf([1.0, 2.0])
    one, two = pb.sum(x * x), x * 3.0
    (found,) = pb.gradients([one, two], x, [None, np.array([1.0, 10.0])])
    assert found.tolist() == [5.0, 34.0]
    y = pb.sum(x)
    assert pb.gradients([y, y], x)[0].tolist() == [2.0, 2.0]
    with pytest.raises(errors.ArgumentError, match="1 seeds for 2 outputs"):
        pb.gradients([one, two], x, [None])


def test_output_may_be_its_own_input():
    x = leaf(3.0)
    y = x * x
    assert [g.item() for g in pb.gradients(y, [y, x])] == [1.0, 6.0]
    assert pb.gradients(x, x)[0].item() == 1.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_program_with_python_numbers_stays_in_its_dtype(dtype):
    x = leaf([0.5, 1.5], dtype)
    y = pb.sum(pb.real(2 * x**2 + 1.0 - x / 3 + pb.exp(-x) ** 0.5 * 0 + pb.where(pb.real(x) > 1, x, 0.0)))
    y.backward()
    assert y.dtype == np.empty(0, dtype).real.dtype
    assert x.grad.dtype == dtype
    assert x.grad.device == x.device


def test_each_side_of_a_mixed_product_gets_its_own_dtype():
    x, y, i = leaf([1.0, 2.0], np.float32), leaf([3.0, 4.0]), pb.tensor([2, 3])
    (x * y * i).backward(np.ones(2))
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)
    assert (x.grad.tolist(), y.grad.tolist()) == ([6.0, 12.0], [2.0, 6.0])


def test_real_side_of_a_complex_product_gets_a_real_gradient():
    x, z = leaf(2.0), leaf(1 + 2j, np.complex128)
    pb.real(x * z).backward()
    assert (x.grad.dtype, x.grad.item()) == (np.float64, 1.0)
    assert (z.grad.dtype, z.grad.item()) == (np.complex128, 2.0)


@pytest.mark.parametrize(
    "beside", [np.array([2, 3]), np.array([True, False]), pb.tensor([2, 3]), 3, True, np.int8(2), [1, 2]]
)
def test_integers_and_booleans_beside_floats_carry_nothing(beside):
    x = leaf([1.0, 2.0])
    y = x * beside
    y.backward(np.ones(2))
    wanted = np.broadcast_to(np.asarray(beside.numpy() if isinstance(beside, pb.Tensor) else beside, float), 2)
    assert x.grad.tolist() == wanted.tolist()


SHAPES = [
    ((), ()), ((2, 3), ()), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((1,), (2, 2)), ((0, 3), (3,)), ((0,), ()),
    ((2, 0, 1), (1, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("op", [pb.add, pb.subtract, pb.multiply, pb.divide, pb.maximum, pb.atan2, pb.power])
def test_broadcast_cotangents_are_summed_back(op, a, b):
    rng = np.random.default_rng(1)
    x, y = leaf(rng.uniform(1, 2, a)), leaf(rng.uniform(1, 2, b))
    whole = np.broadcast_shapes(a, b)
    full = [leaf(np.broadcast_to(v.detach().numpy(), whole)) for v in (x, y)]
    pb.sum(op(x, y)).backward()
    pb.sum(op(*full)).backward()
    for v, f in zip((x, y), full, strict=True):
        extra = len(whole) - v.ndim
        ones = tuple(i + extra for i, n in enumerate(v.shape) if n == 1)
        summed = f.grad.numpy().sum(axis=(*range(extra), *ones)).reshape(v.shape)
        np.testing.assert_allclose(v.grad.numpy(), summed, rtol=1e-14)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[::-1, ::-1],
        lambda a: np.broadcast_to(a[:1], (3, 4)),
        np.asfortranarray,
    ],
)
def test_strides_do_not_matter(view):
    array = view(np.random.default_rng(2).normal(size=(4, 4)))
    x, plain = leaf(array), leaf(np.ascontiguousarray(array))
    for v in (x, plain):
        pb.sum(pb.sin(v.T @ v) * pb.cumulative_sum(v, axis=0)[:1, :1]).backward()
    np.testing.assert_array_equal(x.grad.numpy(), plain.grad.numpy())


def owners(*arrays):
    return [a.detach().value if isinstance(a, pb.Tensor) else a for a in arrays]


def assert_apart(*arrays):
    for a, b in itertools.combinations(owners(*arrays), 2):
        assert not np.shares_memory(a, b)


SPREAD = {
    "add": lambda x, z: x + z,
    "leaves of one sum": lambda x, z: pb.concat([x, z])[:3] + x,
    "reshape": lambda x, z: x.reshape((3, 1)).reshape(3) + z,
    "broadcast": lambda x, z: pb.broadcast_to(x, (2, 3))[0] + z,
    "where": lambda x, z: pb.where(True, x, z) + z,
    "stack": lambda x, z: pb.sum(pb.stack([x, z]), axis=0),
}


@pytest.mark.parametrize("f", SPREAD.values(), ids=SPREAD)
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_gradients_share_memory_with_nobody(f, linked, workers):
    x, z = leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0])
    for seed in (np.ones(3), pb.ones(3)):
        x.grad = z.grad = None
        f(x, z).backward(seed, create_graph=linked, workers=workers)
        assert_apart(seed, x.grad, z.grad, x, z)
        assert_apart(*pb.gradients(f(x, z), [x, x, z], seed, create_graph=linked), seed, x, z)


@pytest.mark.parametrize("workers", [1, 2])
def test_large_gradients_on_threads_share_memory_with_nobody(workers):
    x, z, seed = leaf(np.ones(1 << 18)), leaf(np.ones(1 << 18)), np.ones(1 << 18)
    (x + z).backward(seed, workers=workers)
    assert_apart(x.grad, z.grad, seed)


@pytest.mark.parametrize("linked", [False, True])
def test_writing_to_one_gradient_leaves_the_others_and_the_seed_alone(linked):
    x, z, seed = leaf([1.0, 2.0]), leaf([3.0, 4.0]), pb.ones(2)
    (x + z).backward(seed, create_graph=linked)
    x.grad += 100.0
    seed += 10.0
    assert (z.grad.tolist(), seed.tolist()) == ([1.0, 1.0], [11.0, 11.0])
    x.backward(seed, create_graph=linked)
    seed += 10.0
    assert x.grad.tolist() == [112.0, 112.0]
    found = pb.gradients(x + z, [x, z], seed, create_graph=linked)
    found[0].fill_(0.0)
    assert found[1].tolist() == [21.0, 21.0]


def test_gradients_of_a_pass_within_a_pass_share_memory_with_nobody():
    x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    loss = x + z
    inner = []

    def again(gradient):
        handle.remove()
        loss.backward(np.ones(2), retain_graph=True)
        inner.extend([x.grad, z.grad])

    handle = x.register_hook(again)
    loss.backward(np.ones(2), retain_graph=True)
    assert_apart(x.grad, z.grad, *inner)
    assert x.grad.tolist() == z.grad.tolist() == [2.0, 2.0]


def test_what_a_hook_kept_is_not_what_grad_holds():
    x, kept = leaf([1.0, 2.0]), []
    x.register_hook(kept.append)
    (x * x).backward(np.ones(2))
    kept[0] += 100.0
    assert x.grad.tolist() == [2.0, 4.0]
    (x * x).backward(np.ones(2))
    assert (kept[0].tolist(), kept[1].tolist(), x.grad.tolist()) == ([102.0, 104.0], [2.0, 4.0], [4.0, 8.0])


@pytest.mark.parametrize("linked", [False, True])
def test_seed_that_shares_an_array_may_be_written_afterwards(linked):
    x, z, data = leaf([1.0, 2.0]), leaf([3.0, 4.0]), np.ones(2)
    seed = pb.asarray(data, copy=False)
    x.backward(seed, create_graph=linked)
    (x + z).backward(seed, create_graph=linked)
    data[:] = 100.0
    assert (x.grad.tolist(), z.grad.tolist()) == ([2.0, 2.0], [1.0, 1.0])


def test_array_that_a_hook_gave_stays_the_users():
    x, z, buffer = leaf([1.0, 2.0]), leaf([3.0, 4.0]), np.array([7.0, 8.0])
    y = x + z
    y.register_hook(lambda g: buffer)
    (y * 2).backward(np.ones(2))
    x.register_hook(lambda g: buffer)
    (x * 1.0 + x * 2.0).backward(np.ones(2))
    buffer[:] = 0
    assert x.grad.tolist() == [14.0, 16.0]
    assert_apart(x.grad, z.grad, buffer)


def test_accumulating_never_writes_into_what_the_user_saw():
    x = leaf([1.0, 2.0])
    (x * x).backward(np.ones(2))
    first, seen = x.grad, x.grad.numpy()
    (x * x).backward(np.ones(2))
    assert (first.tolist(), seen.tolist(), x.grad.tolist()) == ([2.0, 4.0], [2.0, 4.0], [4.0, 8.0])
    x.grad = mine = np.array([1.0, 1.0])
    (x * x).backward(np.ones(2))
    assert mine.tolist() == [1.0, 1.0]


def test_sums_of_many_shares_never_write_into_a_share_someone_else_sees():
    x = leaf([1.0, 2.0])
    parts = [x * float(k) for k in range(1, 6)]
    kept = []
    for part in parts:
        part.register_hook(kept.append)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    (total + x + x).backward(np.ones(2))
    assert x.grad.tolist() == [17.0, 17.0]
    assert [g.tolist() for g in kept] == [[1.0, 1.0]] * 5


def test_cotangent_shared_by_two_values_is_not_added_to_in_place():
    """x + z sends one array to both; the share of x that comes later must not reach z."""
    x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    late = x * 5.0
    ((x + z) + late).backward(np.ones(2))
    assert (x.grad.tolist(), z.grad.tolist()) == ([6.0, 6.0], [1.0, 1.0])


def test_view_of_a_shared_cotangent_is_not_written_to():
    """A reshaped cotangent is a view of one that z holds: neither a sum nor a product may be left in its memory."""
    x, z = leaf([1.0, 2.0]), leaf([[3.0], [4.0]])
    late, scaled = x * 5.0, x * 3.0
    pb.sum(x.reshape((2, 1)) + z).backward()
    (x.reshape((2, 1)) + z + late.reshape((2, 1))).backward(np.ones((2, 1)))
    (scaled.reshape((2, 1)) + z).backward(np.ones((2, 1)))
    assert (x.grad.tolist(), z.grad.tolist()) == ([10.0, 10.0], [[3.0], [3.0]])


MIXED = [
    pb.add, pb.subtract, pb.multiply, pb.maximum,
    lambda a, b: -a, lambda a, b: a * 0.5, lambda a, b: pb.tanh(a), lambda a, b: a.reshape((3, 1)).reshape(3),
    lambda a, b: pb.where(a > b, a, b), lambda a, b: pb.sum(a) + b, lambda a, b: pb.flip(a),
    lambda a, b: pb.concat([a, b])[1:4], lambda a, b: pb.split(pb.concat([a, b]), 2)[1],
]  # fmt: skip


def random_values(rng, leaves, count=12):
    """Values made of each other at random, by ops that pass cotangents on as they are and by ops that do not."""
    values = list(leaves)
    for _ in range(count):
        i, j = rng.integers(len(values), size=2)
        values.append(MIXED[rng.integers(len(MIXED))](values[i], values[j]))
    return values


@pytest.mark.parametrize("block", range(8))
def test_random_graphs_are_the_same_on_every_path(block):
    for seed in range(block * 25, block * 25 + 25):
        rng = np.random.default_rng(seed)
        leaves = [leaf(rng.normal(size=3)) for _ in range(3)]
        values = random_values(rng, leaves)
        total = pb.sum(pb.stack(values) * rng.normal(size=(len(values), 3)))
        wanted = [g.detach().numpy() for g in pb.gradients(total, leaves, create_graph=True)]
        threaded = [g.numpy() for g in pb.gradients(total, leaves, retain_graph=True, workers=2)]
        total.backward(retain_graph=True)
        plain = [x.grad.numpy() for x in leaves]
        total.node.register_pre_hook(lambda bar: None)
        for value in values[3:]:
            value.register_hook(lambda g: g)
        hooked = [g.numpy() for g in pb.gradients(total, leaves)]
        for found in (threaded, plain, hooked):
            np.testing.assert_array_equal(found, wanted, err_msg=f"graph {seed}")


@pytest.mark.parametrize(
    ("grad", "kind"), [(np.ones(3), errors.ShapeError), (pb.ones(2, dtype=np.float32), errors.ShapeError)]
)
def test_grad_that_does_not_fit_cannot_be_set(grad, kind):
    with pytest.raises(kind, match="grad"):
        leaf([1.0, 2.0]).grad = grad


@pytest.mark.parametrize("bad", [0, -1, 1.5, "two", None])
def test_workers_that_are_no_count_are_refused(bad):
    x = leaf(1.0)
    with pytest.raises(errors.ArgumentError, match="workers"):
        (x * x).backward(workers=bad)
    assert x.grad is None


def test_gradients_of_unused_parts_of_an_op_with_several_results():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    parts = pb.split(x, 4)
    (parts[1] * 10.0 + parts[3]).backward()
    assert x.grad.tolist() == [0.0, 10.0, 0.0, 1.0]


@pytest.mark.parametrize("general", [False, True], ids=["plain", "general"])
def test_memory_falls_while_backward_runs(general):
    size, length = 1 << 16, 24
    x = leaf(np.linspace(0.1, 1.0, size))
    tracemalloc.start()
    try:
        levels = []
        h = x
        for step in range(length):
            h = pb.sin(pb.reshape(h, (size, 1))).reshape(size) if general else pb.sin(h)
            if step in (1, length - 2):
                h.node.register_pre_hook(lambda bar: levels.append(tracemalloc.get_traced_memory()[0]))
        loss = pb.sum(h)
        del h
        before = tracemalloc.get_traced_memory()[0]
        loss.backward()
    finally:
        tracemalloc.stop()
    array = size * 8
    late, early = levels
    assert before > (length - 2) * array
    assert late > (length - 6) * array
    assert early < 8 * array


def test_peak_of_backward_is_a_few_arrays_above_what_was_kept():
    size, length = 1 << 16, 24
    x = leaf(np.linspace(0.1, 1.0, size))
    h = x
    for _ in range(length):
        h = pb.tanh(h)
    loss = pb.sum(h)
    del h
    tracemalloc.start()
    try:
        loss.backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * size * 8
