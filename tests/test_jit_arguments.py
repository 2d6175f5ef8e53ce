"""Structures of arguments: the code that flattens them equals the tree package, and refuses every other structure."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten, registered_flatten
from pullback.compile.stage.arguments import make_flattener

Pair = namedtuple("Pair", "first second")
A, B, C = (np.full(2, float(i)) for i in range(3))
T = pb.tensor(A)

STRUCTURES = [
    (), (A,), (A, B), (A, T), ([A, B],), ((A, B),), ([A], B), ({},), ([],), (None,), (None, A), ({"a": A, "b": B},),
    ({"b": A, "a": B},), ({"a": B, "b": A, "c": C},), (Pair(A, B),), (Pair([A, B], None), C), (Pair(A, Pair(B, C)),),
    ({"x": [A, {"y": (B, None)}], "w": {}},), ({1: A, 0: B},), ([A, [B, [C, []]]],), ([[A, B], [A, B]],),
    ([[A, B], (A, B)],), (pb.implicit.Diagonal(A),), ([pb.implicit.Diagonal(A), B],), (pb.sparse.diagonal(A),),
    (pb.sparse.diagonal(C).T,), (pb.sparse.coo(A, [0, 1], [1, 0], (2, 2)),),
    (pb.implicit.LowRankPlusDiagonal(A, np.ones((2, 1))),),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STRUCTURES)))
def test_flatteners_know_their_structure(number):
    args = STRUCTURES[number]
    made = make_flattener(args)
    assert made is not None
    leaves = flatten(args)[0]
    found = made(args)
    assert found is not None
    assert len(found) == len(leaves)
    assert all(a is b for a, b in zip(found, leaves, strict=True))
    for other, different in enumerate(STRUCTURES):
        same = structure_of(different) == structure_of(args)
        found = made(different)
        # that leaves are arrays is native code's to say
        fits = found is not None and all(isinstance(x, (np.ndarray, pb.Tensor)) for x in found)
        assert fits == same, (number, other)


def structure_of(x):
    """Classes, keys in their order, and lengths; of what the tree package says, all that a function can see."""
    if isinstance(x, dict):
        return type(x), [(key, structure_of(value)) for key, value in x.items()]
    if isinstance(x, (tuple, list)):
        return type(x), [structure_of(value) for value in x]
    if (take_apart := registered_flatten(type(x))) is not None:
        children, rest, *_ = take_apart(x)
        return type(x), rest, structure_of(children)
    return x is None


@pytest.mark.parametrize("args", [(1.0,), ([A, 2],), ({"a": A, 1: B},), (OrderedDict(a=A),), ("a",), ({A.shape, 3},)])
def test_other_arguments_have_none(args):
    assert make_flattener(args) is None


def test_calls_of_other_structures_are_right():
    compiled = pb.jit(lambda tree: pb.sum(sum(flatten(tree)[0], np.zeros(2)) * len(tree)))
    for _ in range(3):
        for tree in ([A, B], (A, B), [A, B, C], {"a": A, "b": C}, {"b": A, "a": C}, [A, [B, C]], [[A], B, C]):
            wanted = sum(map(np.sum, flatten(tree)[0])) * len(tree)
            assert compiled(tree) == wanted


def test_calls_with_registered_classes_see_what_belongs_to_their_structure():
    compiled = pb.jit(lambda A, x: A @ x)
    x = np.array([1.0, 2.0])
    for _ in range(3):
        for rows, cols in (([0, 1], [0, 1]), ([0, 1], [1, 0]), ([1, 1], [0, 1])):
            A = pb.sparse.coo(np.array([3.0, 5.0]), rows, cols, (2, 2))
            np.testing.assert_array_equal(compiled(A, x), A.todense() @ x)
    net = pb.nn.Dropout(0.5)
    dropped, key = pb.jit(lambda net, x, key: net(x, key=key)), pb.random.key(0)
    for mode in (net.eval, net.train, net.eval):
        mode()
        for _ in range(2):
            found = dropped(net, np.ones(100), key)
            assert (found == 0).any() == (mode == net.train)
