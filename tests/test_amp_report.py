"""`pb.amp.report`: what a lower precision changes, against comparisons by hand."""

import json
import math

import numpy as np
import pytest
from pages import read_page, read_picture

import pullback as pb

rng = np.random.default_rng(0)
LAYERS = [{"weight": 0.4 * rng.normal(size=(6, 6)), "bias": 0.1 * rng.normal(size=6)} for _ in range(3)]
X = rng.normal(size=(16, 6))


def network(params, x, size=1.0):
    for layer in params:
        x = pb.tanh(x @ layer["weight"] + layer["bias"])
    return size * pb.mean(pb.square(x - 1.0))


def gradients(loss, scale=1.0):
    """What the report compares, by hand: unscaled in float32."""
    found = pb.grad(lambda p, x: loss(p, x) * np.float32(scale))(
        pb.tree.map(lambda w: w.astype("f"), LAYERS), X.astype("f")
    )
    return {f"{i}.{n}": np.asarray(g) / np.float32(scale) for i, layer in enumerate(found) for n, g in layer.items()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_errors_are_those_of_two_runs(dtype):
    report = pb.amp.report(network, LAYERS, X, dtype=dtype, scale=1024.0)
    wanted, found = gradients(network), gradients(pb.autocast(dtype)(network), 1024.0)
    assert [row.name for row in report.gradients] == ["0.bias", "0.weight", "1.bias", "1.weight", "2.bias", "2.weight"]
    for row in report.gradients:
        away = np.linalg.norm(found[row.name] - wanted[row.name]) / np.linalg.norm(wanted[row.name])
        assert row.error == pytest.approx(away, rel=0.05, abs=1e-5)
        assert row.norm == pytest.approx(np.linalg.norm(wanted[row.name]), rel=1e-5)
    assert bool(report)
    assert not report.findings()
    assert report.keep_high() == []
    assert [row.name for row in report.layers] == ["0", "1", "2"]
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert all(0 < row.activation < 8 * rounding for row in report.layers[:2])
    assert report.loss == pytest.approx(report.lower_loss, rel=8 * rounding)
    assert (report.dtype, report.scale) == (dtype, 1024.0)


def by_hand(size, scale=None):
    """Loss, gradients, activations and elements that underflow in each layer's backward pass, in float64; with a scale,
    matrix products and their cotangents are rounded to float16.
    """
    half = (lambda x: x) if scale is None else (lambda x: x.astype("f").astype("float16").astype("d"))
    layers, h, passed, lost, grads = pb.tree.map(lambda w: w.astype("f").astype("d"), LAYERS), X, [], [], []
    h = X.astype("f").astype("d")
    for layer in layers:
        x, w = half(h), half(layer["weight"])
        h = np.tanh(half(x @ w) + layer["bias"])
        passed.append((x, w, h))
    loss, bar = size * np.mean((h - 1) ** 2), (scale or 1.0) * size * 2 * (h - 1) / h.size
    for x, w, h in reversed(passed):
        exact = bar * (1 - h * h)
        bar = half(exact)
        products = [x.T @ bar, bar @ w.T][: 1 if x is passed[0][0] else 2]  # nothing is wanted of the data
        lost.insert(0, sum(int(np.sum((half(e) == 0) & (e != 0))) for e in [exact, *products]))
        grads.insert(0, {"bias": exact.sum(0) / (scale or 1.0), "weight": half(x.T @ bar) / (scale or 1.0)})
        bar = half(bar @ w.T)
    return loss, grads, [h for _, _, h in passed], lost


@pytest.mark.parametrize(("size", "scale"), [(1.0, 1024.0), (1e-6, 1.0), (1e-6, 2.0**16), (1e-4, 2.0**5)])
def test_numbers_are_those_of_a_computation_by_hand(size, scale):
    report = pb.amp.report(lambda p, x: network(p, x, size), LAYERS, X, dtype="float16", scale=scale)
    (loss, wanted, exact, _), (lower, found, activations, lost) = by_hand(size), by_hand(size, scale)
    assert (report.loss, report.lower_loss) == (pytest.approx(loss, rel=1e-6), pytest.approx(lower, rel=1e-6))
    for row in report.gradients:
        number, name = row.name.split(".")
        low, high = found[int(number)][name], wanted[int(number)][name]
        # a number of float32 beside a tie is rounded the other way than one of float64
        assert row.error == pytest.approx(np.linalg.norm(low - high) / np.linalg.norm(high), rel=0.15)
        assert row.norm == pytest.approx(np.linalg.norm(high), rel=1e-6)
        assert row.flushed == np.sum((low == 0) & (np.abs(high) > 1e-3 * np.sqrt(np.mean(high**2))))
    for row, low, high, count in zip(report.layers, activations, exact, lost, strict=True):
        if row.name != "2":  # there the last array is of the loss
            assert row.activation == pytest.approx(np.linalg.norm(low - high) / np.linalg.norm(high), rel=0.05)
        assert row.backward.underflow == count
        assert (row.forward.underflow, row.forward.overflow) == (0, 0)
    last = [np.square(a[2] - 1) for a in (activations, exact)]
    away = np.linalg.norm(last[0] - last[1]) / np.linalg.norm(last[1])
    assert report.layers[2].activation == pytest.approx(away, rel=0.05)


def test_underflow_in_the_backward_pass_is_found_and_the_scale_mends_it():
    small = lambda p, x: network(p, x, 1e-6)  # noqa: E731
    report = pb.amp.report(small, LAYERS, X, dtype="float16")
    assert not report
    assert "0.weight" in report.findings()["underflow"]
    assert any(row.state == "backward underflow" and row.backward.underflow for row in report.ops)
    assert report.keep_high() == []
    scaled = pb.amp.report(small, LAYERS, X, dtype="float16", scale=report.suggested_scale)
    assert scaled
    assert scaled.suggested_scale == report.suggested_scale == 2.0 ** math.log2(report.suggested_scale)
    beyond = pb.amp.report(small, LAYERS, X, dtype="float16", scale=8 * report.suggested_scale)
    assert beyond.findings()["backward overflow"]
    assert beyond.findings()["not finite"]
    assert pb.amp.report(small, LAYERS, X, dtype="bfloat16")


def test_overflow_names_what_to_keep_high():
    params = {"first": np.ones((4, 8)), "second": np.full((8, 1), 1e-3)}
    loss = lambda p, x: pb.mean(pb.exp(x @ p["first"]) @ p["second"])  # noqa: E731
    x = np.full((16, 4), 4.0)
    report = pb.amp.report(loss, params, x, dtype="float16")
    assert report.keep_high() == ["matmul"]
    (row,) = [row for row in report.ops if row.state]
    assert (row.state, row.forward.overflow, row.error) == ("overflow", 16 * 8, math.inf)
    assert [r.state for r in report.layers] == ["", "overflow"]
    assert not pb.amp.report(loss, params, x, dtype="float16", keep=report.keep_high()).keep_high()


def test_what_magnifies_errors_names_what_it_reads():
    params = {"w": np.ones((4, 4)) + 1e-3 * rng.normal(size=(4, 4))}

    def loss(p, x):
        y = x @ p["w"]
        return pb.sum(pb.square(y - pb.mean(y, axis=1, keepdims=True)))

    report = pb.amp.report(loss, params, np.ones((8, 4)), error=1.0)
    assert report.findings()["magnifies errors"]
    assert report.keep_high() == ["matmul"]
    assert pb.amp.report(loss, params, np.ones((8, 4)), keep=["matmul"])


def test_another_function_may_be_compared_with():
    def lower(params, x):
        half = pb.tree.map(lambda w: w.astype("float16"), params)
        return network(half, x.astype("float16")).astype("float32")

    report = pb.amp.report(network, LAYERS, X, against=lower)
    assert report.dtype == "lower precision"
    assert 0 < max(row.error for row in report.gradients) < 0.02
    assert {row.dtype for row in report.ops if row.results} == {"float16"}


def test_functions_decided_as_a_whole_have_their_names():
    params = {"conv": rng.normal(size=(4, 2, 3, 3)), "scale": np.ones(8), "shift": np.zeros(8)}

    def loss(p, x):
        y = pb.nn.conv2d(x, p["conv"], padding=1)
        return pb.mean(pb.nn.layer_norm(y, p["scale"], p["shift"]) ** 3)

    report = pb.amp.report(loss, params, rng.normal(size=(2, 2, 8, 8)))
    assert "conv2d" in [row.name for row in report.ops]
    assert report


def test_modules_dropout_compiled_losses_and_integers():
    pb.random.seed(0)
    net = pb.nn.Sequential(pb.nn.Linear(6, 8), pb.nn.BatchNorm(8), pb.nn.Dropout(0.5), pb.nn.Linear(8, 3))
    labels = rng.integers(0, 3, size=16)
    loss = pb.jit(lambda net, x, labels: pb.nn.cross_entropy(net(x), labels))
    before = pb.random.state()
    report = pb.amp.report(loss, net, X.astype("f"), labels)
    assert report  # the same elements were dropped
    names = [name for name, _ in net.named_parameters()]
    assert sorted(row.name for row in report.gradients) == sorted(names)
    pb.random.restore(before)
    assert isinstance(net(X.astype("f")), pb.Tensor)


def test_policies_of_modules_are_taken_off_in_float32():
    net = pb.nn.Sequential(pb.nn.Linear(6, 8), pb.nn.ReLU(), pb.nn.Linear(8, 2))
    loss = lambda net, x: pb.mean(net(x) ** 2)  # noqa: E731
    given = pb.amp.report(loss, net, X, policy=pb.Policy(compute="float16"))
    assert (given.dtype, bool(given), getattr(net, "policy", None)) == ("float16", True, None)
    assert 0 < max(row.error for row in given.gradients) < 0.02
    net = pb.amp.apply(net, pb.Policy(compute="bfloat16"))
    own = pb.amp.report(loss, net, X)
    assert own.dtype == "lower precision"
    assert 0 < max(row.error for row in own.gradients) < 0.1
    assert net.policy.compute == "bfloat16"
    with pytest.raises(pb.errors.ArgumentError, match="for a module"):
        pb.amp.report(network, LAYERS, X, policy=pb.Policy())
    with pytest.raises(pb.errors.ArgumentError, match="has float16, from matmul"):
        pb.amp.report(pb.autocast("float16")(network), LAYERS, X)


def test_tables_pictures_and_files(tmp_path):
    report = pb.amp.report(lambda p, x: network(p, x, 1e-6), LAYERS, X, dtype="float16")
    text = str(report)
    assert text.startswith("float16: the loss differs by ")
    assert "largest loss scale" in text
    for word in ("layer", "activation error", "0.weight", "matmul", "underflow", "test_amp_report.py"):
        assert word in text
    known = json.loads(report.json())
    assert len(known["gradients"]) == 6
    for suffix in ("html", "svg", "json", "txt"):
        report.save(tmp_path / f"report.{suffix}")
    assert report.svg().startswith("<svg")
    assert report.html().count("<svg") == 2
    assert "<table" in report._repr_html_()


def test_infinite_errors_integers_and_unused_parameters(tmp_path):
    params = {"first": np.ones((4, 8)), "second": np.full((8, 1), 1e-3), "unused": np.ones(2), "count": np.arange(3)}
    loss = lambda p, x: pb.mean(pb.exp(x @ p["first"]) @ p["second"])  # noqa: E731
    report = pb.amp.report(loss, params, np.full((16, 4), 4.0), dtype="float16")
    assert [row.name for row in report.gradients] == ["first", "second"]
    assert [row.name for row in report.ops][:2] == ["matmul", "mean"]

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    known = json.loads(report.json(), parse_constant=refuse)
    assert (known["lower_loss"], known["layers"][1]["gradient"]) == ("infinite", "infinite")
    read_page(report.html())
    for picture in (report.svg(), report.activations()):
        read_picture(picture)
        assert "infinite overflow" in picture


def test_what_cannot_be_reported_is_refused():
    with pytest.raises(pb.errors.ArgumentError, match="does not depend"):
        pb.amp.report(lambda p: pb.sum(np.ones(2, "f")), LAYERS)
    with pytest.raises(pb.errors.ArgumentError, match="power of two"):
        pb.amp.report(network, LAYERS, X, scale=3.0)
    for options, name in (({"error": "x"}, "error"), ({"lost": math.nan}, "lost"), ({"magnified": -1}, "magnified")):
        with pytest.raises(pb.errors.PullbackError, match=f"report: {name}"):
            pb.amp.report(network, LAYERS, X, **options)
    with pytest.raises(pb.errors.ArgumentTypeError, match="wants a function"):
        pb.amp.report(None, LAYERS, X)
    wave = pb.amp.report(lambda p, x: pb.mean(pb.abs(p["w"] * x) ** 2), {"w": np.ones(4) * (1 + 2j)}, X[:, :4])
    assert wave.gradients[0].norm == pytest.approx(
        np.linalg.norm(2 * np.mean(X[:, :4] ** 2, 0) / 4 * (1 + 2j)), rel=1e-5
    )
    with pytest.raises(pb.errors.ArgumentError, match="dtype"):
        pb.amp.report(network, LAYERS, X, dtype="float64")
