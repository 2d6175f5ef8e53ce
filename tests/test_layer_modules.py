"""Modules over the functions of networks: convolutions, norms of channels, recurrent layers, and steps with them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError

RNG = np.random.default_rng(4)


def images(channels=2, axes=2):
    return RNG.normal(size=(3, channels, *(6,) * axes)).astype(np.float32)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_are_their_functions(axes):
    layer = getattr(nn, f"Conv{axes}d")(2, 4, 3, stride=2, padding=1, key=pb.random.key(0))
    x = images(2, axes)
    wanted = getattr(nn, f"conv{axes}d")(x, layer.weight, layer.bias, 2, 1)
    assert np.array_equal(layer(x).detach().numpy(), wanted.detach().numpy())
    assert layer.weight.shape == (4, 2, *(3,) * axes)
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_groups_that_do_not_fit():
    with pytest.raises(ArgumentError, match="3 groups"):
        nn.Conv2d(4, 6, 3, groups=3)


def test_batch_norm_holds_its_statistics():
    layer, x = nn.BatchNorm(2), images()
    layer(x)
    np.testing.assert_allclose(layer.mean, 0.1 * x.mean((0, 2, 3)), rtol=1e-5)
    before = np.array(layer.mean)
    layer.eval()(x)
    assert np.array_equal(layer.mean, before)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert set(layer.state_dict()) == {"weight", "bias", "mean", "variance"}


def test_a_compiled_step_returns_the_statistics():
    model = nn.Sequential(nn.Conv2d(2, 3, 3, key=pb.random.key(1)), nn.BatchNorm(3), pb.relu, nn.global_avg_pool)
    x = images()

    def step(model, x):
        def loss(model):
            return pb.sum(model(x) ** 2), model

        (value, model), gradient = pb.value_and_grad(loss, has_aux=True)(model)
        return value, model, gradient

    found = pb.jit(step)(model.arrays(), x)
    wanted = step(model.arrays(), x)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(found[1][1].mean, wanted[1][1].mean, rtol=1e-5)
    np.testing.assert_allclose(found[2][0].weight, wanted[2][0].weight, rtol=1e-3, atol=1e-5)
    assert found[1][1].mean.any()


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_their_functions(name):
    layer = getattr(nn, name)(3, 4, layers=2, bidirectional=True, key=pb.random.key(2))
    x = RNG.normal(size=(5, 2, 3)).astype(np.float32)
    hs, states = layer(x)
    run = getattr(nn, name.lower())
    h = x
    for number in range(2):
        ways = [run(h, *layer.weights[2 * number + way], reverse=bool(way))[0] for way in (0, 1)]
        h = pb.concat(ways, axis=-1)
    np.testing.assert_allclose(hs.detach().numpy(), h.detach().numpy(), rtol=1e-6)
    assert len(states) == 4
    again, _ = layer(x, states)
    assert again.shape == hs.shape
    with pytest.raises(ArgumentError, match="4 states"):
        layer(x, states[:1])
    pb.sum(hs).backward()
    assert all(p.grad is not None for p in layer.parameters())
    gradient = pb.jit(pb.grad(lambda m, x: pb.sum(m(x)[0])))(layer.arrays(), x)
    np.testing.assert_allclose(gradient.weights[0][0], layer.weights[0][0].grad.numpy(), rtol=1e-4, atol=1e-5)
