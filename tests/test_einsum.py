"""Index equations: every form NumPy has, orders of contraction, and derivatives."""

import numpy as np
import pytest

import pullback as pb
from pullback.ops.contract.einsum import contraction_path

SIZES = {"i": 2, "j": 3, "k": 4, "l": 2, "a": 2, "b": 3}
EQUATIONS = [
    "ij,jk->ik", "ij,jk", "ii->i", "ii", "ij->", "ij->ji", "i,i", "i,j", "ij,ij->ij", "iij->j", "ij,kl->ijkl",
    "ij,k->kij", "...ij,...jk->...ik", "...,...", "...i->...", "bij,bjk->bik", "bij,bj->bi", "bi,bi->b",
    ",i->i", "ij,jk,kl->il", "ij,jk,kl,li", "ijk,jk,k->i", "a,ab,b,bi,ij,jk", "ii,ij->j", "ijj,ki->kj",
]  # fmt: skip
rng = np.random.default_rng(0)


def operands(equation, kind=float):
    terms = equation.split("->")[0].split(",")
    found = [rng.normal(size=[SIZES[c] for c in t.replace("...", "ab")]) for t in terms]
    return [x + 1j * rng.normal(size=x.shape) for x in found] if kind is complex else found


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_agrees_with_numpy(equation, kind):
    xs = operands(equation, kind)
    np.testing.assert_allclose(pb.einsum(equation, *xs), np.einsum(equation, *xs), atol=1e-12)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_derivatives(equation):
    xs = operands(equation)
    check = pb.gradgradcheck if len(xs) < 3 else pb.gradcheck
    assert bool(check(lambda *ys: pb.einsum(equation, *ys), *xs))


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "ii->i", "ij,jk,kl->il"])
def test_batches(equation):
    xs = operands(equation)
    stacked = [np.stack([x, 2 * x, x - 1]) for x in xs]
    found = pb.vmap(lambda *ys: pb.einsum(equation, *ys))(*stacked)
    np.testing.assert_allclose(found, [np.einsum(equation, *(s[i] for s in stacked)) for i in range(3)], atol=1e-12)


def test_lists_of_integers():
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    np.testing.assert_allclose(pb.einsum(x, [0, 1], y, [1, 2], [0, 2]), x @ y)
    np.testing.assert_allclose(pb.einsum(x, [0, 1], y, [1, 2]), x @ y)
    np.testing.assert_allclose(pb.einsum(x, [..., 7], [..., 7]), x)
    with pytest.raises(pb.errors.ArgumentError, match="list of axes"):
        pb.einsum(x, y)


@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal", ["einsum_path", (0, 1), (0, 1)], [(0, 1, 2)]])
def test_any_order_gives_the_same(optimize):
    xs = operands("ij,jk,kl->il")
    np.testing.assert_allclose(pb.einsum("ij,jk,kl->il", *xs, optimize=optimize), np.einsum("ij,jk,kl->il", *xs))


def test_the_cheapest_order_is_found():
    sizes = {"i": 10, "j": 1000, "k": 10, "l": 5}
    assert contraction_path(["ij", "jk", "kl"], "il", sizes, "optimal") == [(1, 2), (0, 1)]  # 10 * 1000 * 5 twice
    chain = ["ab", "bc", "cd", "de", "ef", "fg"]
    wide = dict.fromkeys("abcdef", 50) | {"g": 1}
    assert contraction_path(chain, "ag", wide)[0] == (4, 5)


def test_sizes_of_one_stretch():
    x, y = rng.normal(size=(2, 1)), rng.normal(size=(3, 4))
    np.testing.assert_allclose(pb.einsum("ij,jk->ik", x, y), np.einsum("ij,jk->ik", x, y))
    np.testing.assert_allclose(pb.einsum("...,...->...", x, y[:, :1].T), x * y[:, :1].T)
    assert bool(pb.gradcheck(lambda a, b: pb.einsum("ij,jk->ik", a, b), x, y))


@pytest.mark.parametrize(
    ("equation", "count", "words"),
    [
        ("ij,jk->ik", 1, "names 2 operands"),
        ("ij->ii", 1, "repeats an index"),
        ("ij->k", 1, "no operand has"),
        ("i->i", 1, "has 2 axes"),
        ("i1->i", 1, "may hold letters"),
    ],
)
def test_refusals(equation, count, words):
    with pytest.raises(pb.errors.PullbackError, match=words):
        pb.einsum(equation, *[np.ones((2, 3))] * count)


def test_sizes_that_do_not_fit_and_orders_that_make_no_sense():
    with pytest.raises(pb.errors.ShapeError, match="sizes 3 and 2"):
        pb.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(pb.errors.ArgumentError, match="optimize"):
        pb.einsum("ij,jk,kl->il", *operands("ij,jk,kl->il"), optimize="fast")
    with pytest.raises(pb.errors.ArgumentError, match="operands"):
        pb.einsum("ij,jk,kl->il", *operands("ij,jk,kl->il"), optimize=[(0, 5)])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf])
def test_distances_are_right_and_still_at_zero(p):
    x, y = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    expected = [[np.linalg.norm(a - b, p) for b in y] for a in x]
    np.testing.assert_allclose(pb.cdist(x, y, p), expected if p else [[np.count_nonzero(a - b) for b in y] for a in x])
    if p:
        assert bool(pb.gradgradcheck(lambda a, b: pb.cdist(a, b, p), x, y))
    same = pb.grad(lambda a: pb.sum(pb.cdist(a, a, p)))(x)
    assert np.isfinite(same).all()
    assert np.isfinite(pb.hessian(lambda a: pb.cdist(a, a, p)[0, 1])(x)).all()
    np.testing.assert_allclose(pb.pdist(x, p), [pb.cdist(x, x, p)[i, j] for i, j in ((0, 1), (0, 2), (1, 2))])


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (4, 3, 2)), ((4, 2, 3), (3,)),
                                    ((5, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 2)), ((0,), (0,))])  # fmt: skip
def test_matmul_of_every_rank(shapes):
    x, y = (rng.normal(size=s) for s in shapes)
    np.testing.assert_allclose(pb.matmul(x, y), np.matmul(x, y), atol=1e-14)
    assert bool(pb.gradgradcheck(pb.matmul, x, y))


def test_products_of_bfloat16_are_rounded_once():
    pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(pb.bfloat16) for s in ((3, 40), (40, 2)))
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(pb.bfloat16)
    for found in (pb.matmul(a, b), pb.einsum("ij,jk->ik", a, b), pb.tensordot(a, b, 1)):
        assert found.dtype == pb.bfloat16
        assert np.array_equal(found, wanted)
    assert pb.matmul(a, b[:, 0]).dtype == pb.bfloat16
    assert pb.matmul(a, b.astype(np.float32)).dtype == np.float32
    assert pb.grad(lambda a: pb.sum(pb.matmul(a, b)))(a).dtype == pb.bfloat16
