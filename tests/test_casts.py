"""Casts in compiled programs: narrowed before elements are moved, widened after, with the bits of eager calls."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.loop_ir import Kernel
from pullback.program.casts import move_casts
from pullback.program.passes import drop_unused, merge_equal

HALF = ("bfloat16", "float16")


def drawn(*shape, seed=0, dtype="float32"):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def random_moves(seed):
    """A random function that moves elements and converts them, of two arguments."""

    def f(x, y):
        rng = np.random.default_rng([seed, 1])
        values = [x, y]
        for _ in range(int(rng.integers(4, 16))):
            values.append(changed(rng, values[rng.integers(len(values))], values))
        return (*(v for v in values[2:-1] if rng.random() < 0.4), values[-1])

    return f


def changed(rng, x, values):
    kind, rank = rng.integers(14), len(x.shape)
    if kind < 5:
        return x.astype((*HALF, "bfloat16", "float32", "float32", "float64")[rng.integers(6)])
    if kind == 5:
        return pb.permute_dims(x, tuple(int(i) for i in rng.permutation(rank)))
    if kind == 6:
        return x.reshape(-1) if rank > 1 else x.reshape(-1, 1)
    if kind == 7 and rank and x.shape[0] > 1:
        return x[int(rng.integers(x.shape[0])) :: int(rng.integers(1, 3))]
    if kind == 8 and rank:
        others = [v for v in values if v.shape == x.shape]
        return pb.concat([x, others[rng.integers(len(others))]], axis=int(rng.integers(rank)))
    if kind == 9 and rank and x.shape[-1] % 2 == 0 and x.shape[-1]:
        return pb.split(x, 2, axis=-1)[int(rng.integers(2))]
    if kind == 10 and rank:
        return pb.flip(x, axis=int(rng.integers(rank)))
    if kind == 11:
        return pb.broadcast_to(x, (2, *x.shape)) if x.size < 200 else x * 1
    if kind == 12 and rank:
        return x[rng.integers(0, x.shape[0], 3)]
    return pb.negative(x)


def args(seed):
    rng = np.random.default_rng([seed, 0])
    x, y = drawn(4, 6, seed=seed) * np.float32(10.0) ** rng.integers(-3, 4, size=(4, 6)).astype("f4"), drawn(4, 6)
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(24, size=3)] = np.nan, np.inf, -0.0
    return x, y.astype(("float32", pb.bfloat16, "float16")[seed % 3])


def check(seed):
    f, given = random_moves(seed), args(seed)
    with np.errstate(all="ignore"):
        wanted, found = f(*given), pb.jit(f)(*given)
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(np.asarray(mine, "float64"), np.asarray(theirs, "float64"))


@pytest.mark.parametrize("seed", range(12))
def test_moves_and_casts_have_the_bits_of_eager_calls(seed):
    check(seed)


@pytest.mark.sweep
def test_many_moves_and_casts():
    for seed in range(12, 600):
        check(seed)


def names(f, *given):
    """The ops of a function after the pass, by name, casts with their dtype."""
    program = drop_unused(move_casts(merge_equal(pb.stage(f)(*given))))
    casts = [f"{e.op.name} {e.results[0].spec.dtype.name}" for e in program.equations if e.op.name == "astype"]
    return casts, [e.op.name for e in program.equations if e.op.name != "astype"]


def test_slices_of_one_value_are_narrowed_together():
    def f(x):
        y = pb.tanh(x)
        return [part.astype("bfloat16").reshape(2, 2, -1) for part in pb.split(y, 3, axis=-1)]

    assert names(f, drawn(4, 6))[0] == ["astype bfloat16"]
    # one loop computes and rounds, and three copy what are results
    steps = pb.jit(f).lower(drawn(4, 6)).code.compilation.fused.steps
    assert [type(s) for s in steps] == [Kernel] * 4
    assert not any(line.kind == "cast" for s in steps[1:] for line in s.lines)


def test_few_elements_are_narrowed_alone():
    assert names(lambda x: x[1].astype("bfloat16"), drawn(40, 6)) == (["astype bfloat16"], ["getitem"])
    program = drop_unused(move_casts(pb.stage(lambda x: x[1].astype("bfloat16"))(drawn(40, 6))))
    assert [e.results[0].spec.shape for e in program.equations] == [(6,), (6,)]


def test_what_is_also_used_wide_stays():
    def f(x):
        y = pb.tanh(x).T
        return y.astype("bfloat16"), y

    assert names(f, drawn(4, 6)) == (["astype bfloat16"], ["tanh", "permute_dims"])


def test_widened_values_are_moved_narrow_and_casts_that_undo_each_other_vanish():
    def f(x, y):
        joined = pb.concat([x.astype("float32"), y.astype("float32")], axis=0).T
        return joined.astype("bfloat16"), pb.sum(joined)

    x, y = drawn(4, 6, dtype=pb.bfloat16), drawn(3, 6, dtype=pb.bfloat16)
    casts, others = names(f, x, y)
    assert casts == ["astype float32"]
    assert others == ["concat", "permute_dims", "sum"]
    # from one half type to the other a value is rounded
    assert names(lambda x: x.astype("float32").astype("float16"), x)[0] == ["astype float32", "astype float16"]


def attend(qkv, w):
    with pb.autocast("bfloat16"):
        q, k, v = pb.split(qkv @ w, 3, axis=-1)
        return pb.sum(pb.nn.multi_head_attention(q, k, v, 2, is_causal=True).astype("float32") ** 2)


def test_they_meet_transforms():
    """Attention under autocast, whose heads are rearranged: each composition against the same in float64."""
    x, w = drawn(2, 5, 8) / 2, drawn(8, 24, seed=1) / 3
    wide = x.astype("float64"), w.astype("float64")
    plain = pb.grad(attend, argnums=(0, 1))
    cases = {
        "value": (attend, 1),
        "gradient": (plain, 2),
        "checkpoint": (pb.grad(pb.checkpoint(attend), argnums=(0, 1)), 2),
        "tangent of the gradient": (lambda x, w: pb.jvp(plain, (x, w), (x, w))[1], 4),
        "rows": (lambda x, w: pb.vmap(attend, in_axes=(0, None))(x, w), 1),
        "rows of gradients": (lambda x, w: pb.vmap(plain, in_axes=(0, None))(x, w), 2),
        "scan": (lambda x, w: pb.scan(lambda c, r: (c + attend(r * c, w), pb.tanh(r)), pb.sum(x) * 0 + 1, x[None]), 4),
    }
    for name, (f, rounds) in cases.items():
        found, wanted = (pb.tree.leaves(r) for r in (pb.jit(f)(x, w), f(*wide)))
        for mine, theirs in zip(found, wanted, strict=True):
            mine, theirs = np.asarray(mine, "float64"), np.asarray(theirs, "float64")
            assert np.abs(mine - theirs).max() <= 16 * rounds * 2.0**-8 * np.abs(theirs).max(), name
