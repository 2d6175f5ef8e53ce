"""Functions made of functions, optimiser rules and schedules travel in a pickle: as the call that made them."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.errors import GraphError
from pullback.optim import schedules

X = np.linspace(0.1, 1.0, 3)


def wave(x):
    return pb.sin(x) * x


def loss(x, scale=1.0):
    return scale * pb.sum(wave(x) ** 2)


@pb.grad
def slope(x):
    return pb.sum(wave(x))


class Model:
    def __init__(self, factor):
        self.factor = factor

    @pb.grad
    def along(x, self):  # noqa: N805 - the model comes second, since the first argument is differentiated
        return self.factor * pb.sum(wave(x))

    @pb.checkpoint
    def value(self, x):
        return self.factor * pb.sum(wave(x))


def again(thing):
    return pickle.loads(pickle.dumps(thing))


MADE = {
    "grad": lambda: pb.grad(loss),
    "grad of two": lambda: pb.grad(loss, argnums=(0,)),
    "value_and_grad": lambda: pb.value_and_grad(loss),
    "elementwise_grad": lambda: pb.elementwise_grad(wave),
    "hessian": lambda: pb.hessian(loss),
    "jacobian": lambda: pb.jacobian(wave, mode="reverse"),
    "jacrev": lambda: pb.jacrev(wave),
    "jacfwd": lambda: pb.jacfwd(wave),
    "vmap": lambda: pb.vmap(wave, in_axes=0),
    "laplacian": lambda: pb.laplacian(loss),
    "divergence": lambda: pb.divergence(wave),
    "straight_through": lambda: pb.straight_through(wave),
    "checkpoint": lambda: pb.checkpoint(wave, policy=pb.save_contractions),
    "jacobian_diagonal": lambda: pb.jacobian_diagonal(wave),
    "hessian_diagonal": lambda: pb.hessian_diagonal(loss),
    "jit of grad": lambda: pb.jit(pb.grad(loss)),
    "grad of jit": lambda: pb.grad(pb.jit(loss)),
    "vmap of grad": lambda: pb.vmap(pb.grad(slope_of_one)),
    "jacfwd of grad": lambda: pb.jacfwd(pb.grad(loss)),
    "decorated": lambda: slope,
}


def slope_of_one(x):
    return pb.sin(x) * x


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_functions_made_of_named_functions_are_pickled(make):
    made = make()
    read = again(made)
    for found, wanted in zip(flatten(read(X))[0], flatten(made(X))[0], strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert type(read) is type(made)
    assert copy.deepcopy(made)(X) is not None


def test_sparse_derivatives_and_stages_are_pickled():
    pytest.importorskip("scipy")
    for transform, f in ((pb.sparse_jacobian, wave), (pb.sparse_hessian, loss)):
        made = transform(f)
        np.testing.assert_array_equal(again(made)(X).toarray(), made(X).toarray())
        assert again(transform) is transform
    assert again(pb.stage(wave))(X).text() == pb.stage(wave)(X).text()


def test_a_function_made_by_a_decorator_is_found_by_its_name():
    assert again(slope) is slope
    assert again(Model.value) is Model.value


def test_functions_made_of_functions_look_and_bind_like_functions():
    gradient = pb.grad(loss)
    assert (gradient.__name__, gradient.__wrapped__, gradient.__doc__) == ("loss", loss, loss.__doc__)
    assert inspect.signature(gradient) == inspect.signature(loss)
    assert repr(gradient) == "<gradient of loss with respect to x>"
    model = Model(2.0)
    np.testing.assert_allclose(model.value(X), 2.0 * np.sum(wave(X)))
    np.testing.assert_allclose(Model.along(X, model), 2.0 * slope(X))


@pytest.mark.parametrize(
    "made",
    [
        lambda: pb.vjp(wave, X)[1],
        lambda: pb.linearize(wave, X)[1],
        lambda: pb.linear_transpose(lambda x: 2.0 * x, X),
    ],
    ids=["vjp", "linearize", "linear_transpose"],
)
def test_functions_that_hold_a_graph_are_refused_by_name(made):
    with pytest.raises(GraphError, match=r"pickle: \w+ returned a function that holds the graph.*\n.*where it arrives"):
        pickle.dumps(made())


def test_a_function_without_a_name_is_refused_by_pickle_itself():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(pb.grad(lambda x: pb.sum(x)))


@pb.custom_op
def cube(x):
    return x**3


cube.def_vjp(lambda bar, x: 3.0 * x**2 * bar)


def test_custom_ops_are_found_by_their_name():
    assert again(cube) is cube
    np.testing.assert_allclose(again(pb.grad(cube))(2.0), 12.0)


def frozen_second(params):
    return [False, True]


def momentum_slots(p):
    return {"momentum": np.zeros(p.shape)}


def momentum_step(g, slots, p, t):
    m = 0.5 * slots["momentum"] + g
    return -0.1 * m, {"momentum": m}


def halve(g, p):
    return g / 2


#: What makers of rules are given beside what has a default; a rate otherwise.
GIVEN = {
    "adaptive_clip": (0.1,),
    "add_decayed_weights": (0.1,),
    "add_noise": (0.1,),
    "apply_if_finite": (pb.optim.sgd(0.1),),
    "centralize": (),
    "chain": (pb.optim.clip_by_norm(1.0), pb.optim.adam(schedules.cosine(0.1, 10))),
    "clip_by_global_norm": (1.0,),
    "clip_by_norm": (1.0,),
    "clip_by_value": (1.0,),
    "freeze": (frozen_second,),
    "leafwise_rule": ("mine", momentum_slots, momentum_step),
    "stateless_rule": ("halved", halve),
    "lookahead": (pb.optim.sgd(0.1),),
    "master_weights": (pb.optim.sgd(0.1),),
    "masked": (pb.optim.sgd(0.1), frozen_second),
    "multi_steps": (pb.optim.sgd(0.1), 2),
    "scale": (0.5,),
    "scale_by_adam": (),
    "scaled": (pb.optim.sgd(0.1),),
    "stochastic_rounding": (pb.optim.sgd(0.1),),
    "scale_by_trust_ratio": (),
    "trace": (),
    "adadelta": (),
    "lbfgs": (1.0, 5, False),
}
SKIPPED = {
    "natural_gradient",
    "kfac",
    "multi_transform",
    "reduce_on_plateau",
}  # given functions and more than gradients, below
MAKERS = {
    name: f
    for name in pb.optim.__all__
    if inspect.isfunction(f := getattr(pb.optim, name))
    and str(inspect.signature(f).return_annotation) in ("Rule", "Average")
}


def stepped(rule):
    params = [np.linspace(0.1, 1.0, 4).reshape(2, 2), np.ones((2, 2))]
    state = rule.init(params)
    for i in range(3):
        updates, state = rule.update([(i + 1) * p * p for p in params], state, params)
        params = pb.optim.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("name", sorted(MAKERS.keys() - SKIPPED))
def test_rules_are_pickled_and_step_the_same(name):
    made = MAKERS[name](*GIVEN.get(name, () if name in ("ema", "swa") else (0.1,)))
    read = again(made)
    assert repr(read).split(" at 0x")[0] == repr(made).split(" at 0x")[0]
    if isinstance(made, pb.optim.Average):
        for one in (made, read):
            state = one.update(X, one.init(0.0 * X))
            np.testing.assert_array_equal(one.read(state), made.read(made.update(X, made.init(0.0 * X))))
        return
    for found, wanted in zip(stepped(read), stepped(made), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_rules_that_want_more_are_pickled():
    rule = again(pb.optim.multi_transform({"a": pb.optim.sgd(0.1), "b": pb.optim.adam(0.1)}, ["a", "b"]))
    assert rule.name == "multi_transform"
    assert again(pb.optim.reduce_on_plateau()).name == "reduce_on_plateau"
    assert again(again(pb.optim.adam(0.1))).name == "adam"


SCHEDULES = {
    "constant": (0.1,), "cosine": (0.1, 10), "exponential": (0.1, 0.5), "inverse_sqrt": (0.1, 5),
    "join": ([schedules.constant(0.1), schedules.linear(0.1, 0.0, 5)], [3]), "linear": (0.1, 0.0, 5),
    "one_cycle": (0.1, 10), "piecewise": (0.1, {3: 0.5}), "polynomial": (0.1, 0.0, 5, 2.0), "step_decay": (0.1, 0.5, 3),
    "warm_up": (5, 0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in schedules.__all__ if n != "Schedule"])
def test_schedules_are_pickled(name):
    made = getattr(schedules, name)(*SCHEDULES[name])
    read = again(made)
    assert [float(read(t)) for t in range(6)] == [float(made(t)) for t in range(6)]


def test_policies_of_checkpoints_are_pickled():
    assert again(pb.save_nothing) is pb.save_nothing
    assert again(pb.save_everything) is pb.save_everything
    for policy in (pb.save_contractions, pb.save_named("a", "b"), pb.offload_named("a")):
        assert repr(again(policy)) == repr(policy)
    f = again(pb.checkpoint(wave, policy=pb.save_contractions, verify=True))
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(f(x)))(X), slope(X))
