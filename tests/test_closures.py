"""The walk over what functions read: each thing once, in the order in which it is read, no further than it should."""

import functools

import numpy as np

from pullback.arrays.closures import Walk, values_read_by

SCALE = 3.0


class Met(Walk):
    """Notes the numbers that it meets, and the order of the rest."""

    def __init__(self, room):
        Walk.__init__(self)
        self.room = room
        self.numbers = []

    def takes(self, thing):
        if isinstance(thing, float):
            self.numbers.append(thing)
        return isinstance(thing, (float, str))

    def contents_of(self, thing):
        self.room -= 1
        return Walk.contents_of(self, thing)


def walked(*roots, room=100, depth=100):
    walk = Met(room)
    walk.run(roots, depth)
    return walk.numbers


def test_what_is_walked_and_in_which_order():
    def inner(x, a=1.0, *, b=2.0):
        return x * a * b * SCALE

    held = {"x": [4.0, (5.0,)], "f": inner}
    held["x"].append(held)  # a thing that holds itself
    assert walked(held, held) == [4.0, 5.0, 1.0, 2.0, 3.0]
    assert walked(functools.partial(inner, 6.0, b=7.0)) == [1.0, 2.0, 3.0, 6.0, 7.0]
    assert walked([8.0].append, len, np) == [8.0]


def test_how_far_it_goes():
    nested = [1.0, [2.0, [3.0, [4.0]]]]
    assert walked(nested, depth=0) == [1.0]
    assert walked(nested, depth=2) == [1.0, 2.0, 3.0]
    assert walked([1.0] * 4, room=4) == []  # one is the list itself
    assert walked([1.0] * 4, room=5) == [1.0] * 4
    assert walked([[], [], [], 5.0], room=5) == [5.0]
    assert walked([[[]], 5.0], [[[[6.0]]]], 7.0, room=6) == [5.0]  # it ends where room does


def test_what_a_function_itself_reads():
    a = 1.0
    assert values_read_by(lambda x, b=2.0, *, c=4.0: x * a * b * c * SCALE) == [1.0, 2.0, 4.0, 3.0]
    assert values_read_by(len) == []
