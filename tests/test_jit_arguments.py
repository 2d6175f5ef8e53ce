"""Structures of arguments: the code that flattens them equals the tree package, and refuses every other structure."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile.stage.arguments import make_flattener

Pair = namedtuple("Pair", "first second")
A, B, C = (np.full(2, float(i)) for i in range(3))
T = pb.tensor(A)

STRUCTURES = [
    (), (A,), (A, B), (A, T), ([A, B],), ((A, B),), ([A], B), ({},), ([],), (None,), (None, A), ({"a": A, "b": B},),
    ({"b": A, "a": B},), ({"a": B, "b": A, "c": C},), (Pair(A, B),), (Pair([A, B], None), C), (Pair(A, Pair(B, C)),),
    ({"x": [A, {"y": (B, None)}], "w": {}},), ({1: A, 0: B},), ([A, [B, [C, []]]],), ([[A, B], [A, B]],),
    ([[A, B], (A, B)],),
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
