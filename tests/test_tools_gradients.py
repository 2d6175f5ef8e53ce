"""The gradient report: planted faults are found where they are, and healthy networks are left alone."""

import io
import json
from itertools import pairwise

import numpy as np
import pytest
from pages import read_page, read_picture
from rich.console import Console

import pullback as pb
from pullback.errors import ArgumentError

report_on = pb.tools.gradient_report


def layers(*widths, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return [
        {"weight": scale * rng.normal(size=(a, b)) / np.sqrt(a), "bias": 0.1 * rng.normal(size=b)}
        for a, b in pairwise(widths)
    ]


def network(params, x, activation=pb.tanh):
    for layer in params:
        x = activation(x @ layer["weight"] + layer["bias"])
    return x


def loss(params, x):
    return pb.mean(pb.square(network(params, x) - 0.5))


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(20, 5))


def states(report):
    return {row.name: row.state for row in report.parameters}


def test_a_healthy_network_has_no_findings(x):
    report = report_on(layers(5, 8, 8, 3), loss, x)
    assert report
    assert report.findings() == {}
    assert [row.name for row in report.parameters] == [f"{i}.{n}" for i in range(3) for n in ("bias", "weight")]
    assert [row.name for row in report.activations] == ["tanh"] * 3
    assert "nothing vanishes" in str(report)


def test_numbers_are_those_of_the_gradient(x):
    params = layers(5, 8, 3)
    expected = pb.grad(loss)(params, x)
    report = report_on(params, loss, x)
    norms = {row.name: row.norm for row in report.parameters}
    assert norms["1.weight"] == pytest.approx(np.linalg.norm(expected[1]["weight"]))
    both = np.hypot(np.linalg.norm(expected[0]["weight"]), np.linalg.norm(expected[0]["bias"]))
    assert report.by_layer()["0"] == pytest.approx(both)
    row = next(r for r in report.parameters if r.name == "0.bias")
    assert row.ratio == pytest.approx(np.linalg.norm(expected[0]["bias"]) / np.linalg.norm(params[0]["bias"]))


def test_three_ways_to_ask_answer_the_same(x):
    params = layers(5, 8, 3)
    tensors = [{k: pb.tensor(v, requires_grad=True) for k, v in layer.items()} for layer in params]
    called, taped = report_on(params, loss, x), report_on(tensors, loss(tensors, x))
    given = report_on(params, gradients=pb.grad(loss)(params, x))
    assert called.parameters == taped.parameters
    assert [r.norm for r in given.parameters] == pytest.approx([r.norm for r in called.parameters])
    assert given.activations == ()


def test_a_loss_on_the_tape_can_still_go_back(x):
    tensors = [{k: pb.tensor(v, requires_grad=True) for k, v in layer.items()} for layer in layers(5, 3)]
    value = loss(tensors, x)
    report_on(tensors, value)
    assert tensors[0]["weight"].grad is None
    value.backward()
    assert tensors[0]["weight"].grad is not None


def test_small_weights_make_early_gradients_vanish(x):
    report = report_on(layers(5, *[8] * 12, 3, scale=0.2), loss, x)
    assert states(report)["0.weight"] == "vanishing"
    assert states(report)["12.bias"] == ""
    assert "0.weight" in report.findings()["vanishing"]


def test_large_weights_make_early_gradients_explode(x):
    def linear(params, x):
        return pb.mean(network(params, x, activation=lambda h: h))

    found = report_on(layers(5, *[8] * 12, 3, scale=6.0), linear, x).findings()
    assert "0.weight" in found["exploding"]


def test_gradients_that_are_all_huge_explode_too():
    report = report_on([np.ones(3)], lambda p: pb.sum(1e6 * p[0]))
    assert [row.state for row in report.parameters] == ["exploding"]


def test_the_square_of_a_huge_gradient_does_not_overflow():
    report = report_on({"w": np.ones(4)}, lambda p: pb.sum(1e300 * p["w"]))
    assert report.parameters[0].norm == pytest.approx(2e300)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_are_found(number):
    report = report_on({"w": np.ones(2), "v": np.ones(2)}, lambda p: pb.sum(p["w"] * number) + pb.sum(p["v"]))
    assert states(report) == {"w": "not finite", "v": ""}


def test_dead_units_are_counted(x):
    params = layers(5, 8, 3)
    params[0]["bias"][:6] = -100.0

    def with_relu(params, x):
        h = pb.relu(x @ params[0]["weight"] + params[0]["bias"])
        return pb.mean(h @ params[1]["weight"] + params[1]["bias"])

    report = report_on(params, with_relu, x)
    rows = {row.name: row for row in report.parameters}
    assert rows["0.bias"].dead == rows["1.weight"].dead == (0, 6, 8)
    assert rows["0.weight"].dead == (1, 6, 8)
    assert rows["0.bias"].state == "partly dead"
    (activation,) = report.activations
    assert (activation.name, activation.dead, activation.units, activation.state) == ("relu", 6, 8, "dead")
    assert "with_relu" not in activation.line
    assert "pb.relu(x @" in activation.line


def test_a_parameter_without_a_way_to_the_loss_is_dead():
    assert states(report_on({"used": np.ones(2), "not": np.ones(2)}, lambda p: pb.sum(p["used"]))) == {
        "used": "", "not": "dead",
    }  # fmt: skip


def test_elements_that_are_zero_for_most_examples():
    x = np.zeros((10, 3))
    x[:, 0], x[0, 1] = 1.0, 1.0

    def of_one(params, x):
        return pb.sum(params["w"] * x)

    params = {"w": np.ones(3)}
    assert report_on(params, of_one, x, in_axes=0).parameters[0].dead == (0, 1, 3)
    assert report_on(params, of_one, x, in_axes=0, most=0.9).parameters[0].dead == (0, 2, 3)
    row = report_on(params, of_one, x, in_axes=(0,)).parameters[0]
    assert row.norm == pytest.approx(np.linalg.norm([1.0, 0.1, 0.0]))


@pytest.mark.parametrize("function", [pb.tanh, pb.sigmoid, pb.erf, pb.relu, pb.softplus])
def test_flat_parts_of_activations_are_found(function):
    params = {"w": np.array([-50.0, -60.0, -70.0, 0.3])}
    (row,) = report_on(params, lambda p: pb.sum(function(p["w"]) * np.ones(4))).activations
    assert row.flat == pytest.approx(0.75)
    assert row.state in ("saturated", "dead")


def test_a_gate_is_judged_as_a_whole():
    """The sigmoid inside of silu is flat at large arguments, silu itself is not."""
    params = {"w": np.array([50.0, 60.0, 70.0, 0.3])}
    (row,) = report_on(params, lambda p: pb.sum(pb.silu(p["w"]))).activations
    assert row.flat == 0.0
    (row,) = report_on({"w": -params["w"]}, lambda p: pb.sum(pb.silu(p["w"]))).activations
    assert row.flat == pytest.approx(0.75)


def test_a_relu_that_is_off_for_half_of_the_examples_is_healthy():
    x = np.linspace(-1.0, 1.0, 40).reshape(20, 2)[np.random.default_rng(0).permutation(20)]
    (row,) = report_on({"w": np.ones(2)}, lambda p, x: pb.sum(pb.relu(x * p["w"])), x).activations
    assert (row.flat, row.stuck, row.dead, row.state) == (0.5, 0, 0, "")
    (row,) = report_on({"w": np.ones(2)}, lambda p, x: pb.sum(pb.relu(x * p["w"])), np.abs(x) * [-1, 1]).activations
    assert (row.flat, row.stuck, row.dead, row.state) == (0.5, 1, 1, "dead")


def test_losses_and_scalings_are_no_activations():
    def plain(p):
        h = pb.square(p["w"] * 1e-9)
        return pb.logsumexp(1e-3 * h) + pb.sum(pb.exp(-h)) + pb.sum(pb.log(p["w"]))

    assert report_on({"w": np.arange(1.0, 5.0)}, plain).activations == ()


def test_a_bound_is_an_activation_where_it_binds():
    (row,) = report_on({"w": np.array([-3.0, 0.0, 3.0, 4.0])}, lambda p: pb.sum(pb.clip(p["w"], -1.0, 1.0))).activations
    assert (row.flat, row.dead) == (0.75, 3)


def test_compiled_losses_have_parameters_only(x):
    params = layers(5, 8, 3)
    report, plain = report_on(params, pb.jit(loss), x), report_on(params, loss, x)
    assert [r.norm for r in report.parameters] == pytest.approx([r.norm for r in plain.parameters], rel=1e-6)
    assert report.activations == ()


def test_modules_are_trees_of_parameters(x):
    model = pb.nn.Sequential(pb.nn.Linear(5, 4), pb.tanh, pb.nn.Linear(4, 2))
    report = report_on(model, lambda m, x: pb.mean(pb.square(m(x))), x.astype(np.float32))
    assert [row.name for row in report.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [row.name for row in report.activations] == ["tanh"]
    assert all(row.norm > 0 for row in report.parameters)


def test_activations_in_modules_are_told_apart():
    pb.random.seed(0)
    dense = [pb.nn.Linear(6, 6) for _ in range(4)]
    model = pb.nn.Sequential(
        dense[0], pb.nn.BatchNorm(6), pb.relu, dense[1], pb.silu, dense[2], pb.gelu, dense[3], pb.tanh
    )
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    report = report_on(model, lambda m, x: pb.mean(pb.square(m(x))), x)
    assert [row.name for row in report.activations] == ["relu", "sigmoid multiply", "erf multiply", "tanh"]
    assert {row.state for row in report.activations} == {""}
    assert not any("mean" in row.name or "variance" in row.name for row in report.parameters), "nobody learns those"
    assert report.findings() == {"vanishing": ["0.bias"]}, "the norm after it takes every shift away"


@pytest.mark.parametrize(
    "params", [np.float32(3.0), np.ones((0, 3)), [np.arange(3)], {"w": np.ones(2, np.complex64)}, []]
)
def test_odd_parameters(params):
    """A number, no elements, integers, complex numbers, no parameters at all."""
    given = report_on(params, gradients=params)
    assert len(given.parameters) == (0 if isinstance(params, list) else 1)
    read_picture(given.svg())
    str(given)


def test_forms_of_a_report(x, tmp_path):
    report = report_on(layers(5, 8, 3, scale=30.0), loss, x)
    assert not report
    read_picture(report.svg())
    read_picture(report.flatness())
    assert read_page(report.html()).count["table"] == 2
    assert json.loads(report.json())["activations"][0]["state"] == "saturated"
    console = Console(file=io.StringIO(), width=200)
    console.print(report)
    assert "saturated" in console.file.getvalue()
    for name in ("a.html", "a.svg", "a.json", "a.txt"):
        report.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 100
    with pytest.raises(ArgumentError, match="ends in"):
        report.save(tmp_path / "a.png")


def test_wrong_calls_say_what_is_wanted(x):
    with pytest.raises(ArgumentError, match="a loss or gradients"):
        report_on([x])
    with pytest.raises(ArgumentError, match="the trees differ"):
        report_on([x], gradients={"a": x})
    with pytest.raises(ArgumentError, match="does not depend"):
        report_on([x], lambda p: 3.0)
    with pytest.raises(ArgumentError, match="nothing was recorded"):
        report_on([x], pb.tensor(3.0))
    with pytest.raises(ArgumentError, match="requires its gradient"):
        report_on([x], pb.tensor(3.0, requires_grad=True) * 2.0)
    with pytest.raises(ArgumentError, match="most must be"):
        report_on([x], lambda p: pb.sum(p[0]), most=2.0)
