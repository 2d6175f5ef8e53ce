"""Modules: trees of parameters for the tape and for transforms, with names, states, hooks and a summary."""

import collections
import copy
import math
from typing import NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.trees import flatten, map_tree, unflatten
from pullback.errors import ArgumentError, DtypeError, IndexingError, ShapeError

nn = pb.nn
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


class Both(NamedTuple):
    left: object
    right: object


class Block(nn.Module):
    """Every kind of attribute a module may have."""

    buffers = ("seen",)

    def __init__(self, width, key):
        keys = pb.random.split(key, 4)
        self.first = nn.Linear(3, width, key=keys[0])
        self.layers = [nn.Linear(width, width, key=keys[1]), pb.tanh, nn.Linear(width, width, key=keys[2])]
        self.scales = {"a": pb.tensor(np.float32(0.5), requires_grad=True), "name": "text"}
        self.pair = Both(pb.tensor(np.ones(width, np.float32), requires_grad=True), 3)
        self.seen = np.zeros(2, np.float32)
        self.count = np.array(7)
        self.rate = 0.1
        self.nothing = None
        self.activation = pb.tanh

    def forward(self, x):
        h = self.activation(self.first(x))
        for layer in self.layers:
            h = layer(h)
        return h * self.scales["a"] * self.pair.left + self.rate


class Net(nn.Module):
    body: Block
    head: nn.Linear
    scale: float = 2.0

    def forward(self, x):
        return self.head(self.body(x)) * self.scale


def net(seed=0):
    keys = pb.random.split(pb.random.key(seed))
    return Net(Block(4, keys[0]), nn.Linear(4, 2, key=keys[1]))


def loss(model, x):
    return pb.mean(pb.square(model(x)))


NAMES = [
    "body.first.weight", "body.first.bias", "body.layers.0.weight", "body.layers.0.bias", "body.layers.2.weight",
    "body.layers.2.bias", "body.scales.a", "body.pair.left", "head.weight", "head.bias",
]  # fmt: skip


def test_names():
    model = net()
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert all(p is q for p, (_, q) in zip(model.parameters(), model.named_parameters(), strict=True))
    assert [n for n, _, trained in model.named_arrays() if not trained] == ["body.seen", "body.count"]
    assert [name for name, _ in model.named_modules()] == [
        "",
        "body",
        "body.first",
        "body.layers.0",
        "body.layers.2",
        "head",
    ]


def test_tape_and_transforms_agree():
    model = net()
    loss(model, X).backward()
    on_tape = {name: p.grad.numpy() for name, p in model.named_parameters()}
    bare = model.arrays()
    assert all(isinstance(p, np.ndarray) for p in bare.parameters())
    for gradient in (pb.grad(loss), pb.jit(pb.grad(loss))):
        found = gradient(without_counts(bare), X)
        assert type(found) is Net
        for name, g in found.named_parameters():
            assert np.allclose(g, on_tape[name], atol=1e-6)
    assert np.allclose(pb.jit(loss)(bare, X), loss(bare, X))


def without_counts(model):
    model.body.count = None
    return model


def test_gradients_of_trees_with_whole_numbers_say_so():
    with pytest.raises(pb.errors.PullbackError, match=r"int|float"):
        pb.grad(loss)(net().arrays(), X)


def test_forward_mode_batches_and_second_order():
    model = without_counts(net().arrays())
    along = map_tree(np.ones_like, model)
    value, slope = pb.jvp(lambda m: loss(m, X), (model,), (along,))
    g = pb.grad(loss)(model, X)
    assert np.allclose(slope, sum(x.sum() for x in flatten(g)[0]), rtol=1e-4)
    assert np.allclose(value, loss(model, X))
    rows = pb.vmap(lambda x: model(x))(X)
    assert np.allclose(rows, model(X), atol=1e-6)
    models = map_tree(lambda *xs: np.stack(xs), model, without_counts(net(0).arrays()))
    assert np.allclose(pb.vmap(lambda m: m(X))(models)[1], model(X), atol=1e-6)
    product = pb.hvp(lambda m: loss(m, X), (model,), (along,))
    assert type(product) is Net


def test_as_a_tree():
    model = net()
    leaves, structure = flatten(model)
    again = unflatten(structure, leaves)
    assert type(again) is Net
    assert again.body.layers[1] is pb.tanh
    assert again.body.scales["name"] == "text"
    assert type(again.body.pair) is Both
    assert again.body.pair.right == 3
    assert flatten(again)[1] == structure
    assert hash(flatten(again)[1]) == hash(structure)
    assert all(a is b for a, b in zip(flatten(again)[0], leaves, strict=True))
    mask = map_tree(lambda x: x.ndim > 1, model)
    assert flatten(mask)[1] == structure, "whatever stands in the leaves"
    assert flatten(mask)[0].count(True) == 4
    model.body.rate = 0.2
    assert flatten(model)[1] != structure
    model.body.rate = 0.1
    assert flatten(model)[1] == structure
    again.body.layers.append(nn.Linear(4, 4))
    assert len(flatten(again)[0]) == len(leaves) + 2
    again.body.activation = pb.sin
    assert again(X).shape == (6, 2)


def test_settings_that_change_are_noticed_by_compiled_functions():
    model = net().arrays()
    f = pb.jit(lambda m, x: m(x))
    first = f(model, X)
    model.scale = 4.0
    assert np.allclose(f(model, X), 2 * first)
    model.body.activation = pb.sin
    assert np.allclose(f(model, X), model(X), atol=1e-6)
    drop = nn.Dropout(0.5)
    g = pb.jit(lambda d, x, key: d(x, key=key))
    assert (g(drop, X, pb.random.key(0)) == 0).any()
    assert np.array_equal(g(drop.eval(), X, pb.random.key(0)), X)


def test_a_training_step_compiled_returns_the_module():
    @pb.jit
    def step(model, x):
        value, g = pb.value_and_grad(loss)(model, x)
        return value, map_tree(lambda p, q: p - 0.1 * q, model, g)

    model = without_counts(net().arrays())
    values = []
    for _ in range(20):
        value, model = step(model, X)
        values.append(float(value))
    assert values[-1] < 0.5 * values[0]
    trained = net()
    without_counts(trained).load_state_dict(model.state_dict())
    assert np.allclose(loss(trained, X).item(), float(step(model, X)[0]))


def test_states_inside_of_transforms():
    @pb.jit
    def step(model, x):
        assert [name for name, _ in model.named_parameters()] == NAMES
        g = pb.grad(loss)(model, x).state_dict()
        assert list(g) == list(model.state_dict())
        model.load_state_dict({name: p - np.float32(0.1) * g[name] for name, p in model.state_dict().items()})
        assert "71 parameters" in model.summary()
        return model

    model = without_counts(net().arrays())
    g = pb.grad(loss)(model, X).state_dict()
    found, before = step(model, X).state_dict(), model.state_dict()
    for name, p in before.items():
        assert np.allclose(found[name], p - 0.1 * g[name], atol=1e-6)
    assert not np.array_equal(found["head.weight"], before["head.weight"])
    with pytest.raises(ShapeError, match=r"head\.bias"):
        pb.jit(lambda m: m.load_state_dict({"head.bias": np.ones(3)}, strict=False) and m)(model)


def test_states_load_strictly():
    a, b = net(0), net(1)
    held = a.parameters()
    report = a.load_state_dict(b.state_dict())
    assert report == ([], [])
    assert np.array_equal(a(X).detach().numpy(), b(X).detach().numpy())
    assert all(p is q for p, q in zip(held, a.parameters(), strict=True)), "an optimiser still holds them"
    assert all(p.requires_grad and p.is_leaf for p in held)
    state = a.state_dict()
    before = a(X).detach().numpy()
    wrong = {**state, "body.first.weight": np.ones((4, 2)), "more": np.ones(1)}
    del wrong["head.bias"]
    with pytest.raises(ArgumentError) as error:
        a.load_state_dict(wrong)
    for said in (
        "missing: head.bias",
        "unexpected: more",
        "body.first.weight: the state has shape (4, 2), the module (4, 3)",
    ):
        assert said in str(error.value)
    with pytest.raises(ShapeError, match=r"first\.weight"):
        a.load_state_dict(wrong, strict=False)
    assert np.array_equal(before, a(X).detach().numpy()), "nothing was changed"
    del wrong["body.first.weight"]
    assert a.load_state_dict(wrong, strict=False) == (["body.first.weight", "head.bias"], ["more"])
    with pytest.raises(DtypeError, match="complex"):
        a.load_state_dict({**state, "head.bias": np.ones(2) * 1j})


def test_states_of_bare_modules_and_narrower_numbers():
    bare, other = net(0).arrays(), net(1)
    bare.load_state_dict({n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in other.state_dict().items()})
    assert bare.body.first.weight.dtype == np.float32
    assert type(bare.body.pair) is Both
    assert np.allclose(bare(X), other(X).detach())
    state = bare.state_dict()
    state["head.bias"][:] = 9
    assert not (bare.head.bias == 9).any(), "a state of its own"
    bare.load_state_dict({name: x.tolist() for name, x in state.items()})
    assert (bare.head.bias == 9).all()


def test_states_are_saved_and_found_by_other_libraries(tmp_path):
    a, b = net(0), net(1)
    pb.save(tmp_path / "net", a.state_dict())
    b.load_state_dict(pb.load(tmp_path / "net"))
    assert np.array_equal(a(X).detach().numpy(), b(X).detach().numpy())
    whole = nn.MultiHeadAttention(8, 2)
    pb.save(tmp_path / "whole", {"model": whole, "bare": whole.arrays()})
    found = pb.load(tmp_path / "whole")
    y = np.ones((3, 8), np.float32)
    assert np.array_equal(found["model"](y).detach().numpy(), found["bare"](y))
    assert np.array_equal(found["bare"](y), whole(y).detach().numpy())
    assert found["model"].query.weight.requires_grad
    with pytest.raises(ArgumentError, match="function"):
        pb.save(tmp_path / "net", nn.Sequential(lambda x: x, nn.Linear(1, 1)))


def test_torch_reads_and_writes_the_same_states(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    ours = nn.Sequential(nn.Linear(3, 4), pb.tanh, nn.LayerNorm(4), nn.Linear(4, 2))
    ours.load_state_dict(theirs.state_dict())
    assert np.allclose(ours(X).detach(), theirs(torch.tensor(X)).detach(), atol=1e-6)


def test_training_evaluation_and_freezing():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1)))
    assert model.eval() is model
    assert not any(m.training for _, m in model.named_modules())
    assert np.array_equal(model(X).detach().numpy(), model(X).detach().numpy())
    model.train()
    assert all(m.training for _, m in model.named_modules())
    assert not np.array_equal(model(X).detach().numpy(), model(X).detach().numpy())
    model.requires_grad_(False)
    assert not model(X).requires_grad
    assert len(model.parameters()) == 4
    assert "21 parameters, 84 B; 0 of them trained" in model.summary()
    model.requires_grad_()
    pb.sum(model(X)).backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_dropout_under_jit_wants_a_key():
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)).arrays()
    f = pb.jit(lambda m, x, key: m(x, key=key))
    with pytest.raises(ArgumentError, match="Pass a key"):
        pb.jit(lambda m, x: m(x))(model, X)
    one, two = (f(model, np.ones((50, 50)), pb.random.key(i)) for i in (0, 1))
    assert set(np.unique(one)) == {0.0, 4.0}, "each layer draws its own"
    assert not np.array_equal(one, two)
    assert np.array_equal(one, model(np.ones((50, 50)), key=pb.random.key(0)))


def test_hooks():
    model, seen = net(), []
    first = model.body.first
    handle = first.register_forward_hook(lambda m, args, out: seen.append((m, args[0].shape, out.shape)))
    model(X)
    assert seen == [(first, (6, 3), (6, 4))]
    handle.remove()
    model(X)
    assert len(seen) == 1
    with first.register_forward_hook(lambda m, args, out: out * 0):
        assert not (first(X).detach().numpy()).any()
    with first.register_forward_pre_hook(lambda m, args: (args[0] * 0,)):
        assert np.array_equal(first(X).detach().numpy()[0], first.bias.detach().numpy())
    with first.register_forward_pre_hook(lambda m, args: args[0] * 0):
        assert np.array_equal(first(X).detach().numpy()[0], first.bias.detach().numpy())
    grads = []
    with first.register_forward_hook(
        lambda m, args, out: grads.append(out.register_hook(lambda g: seen.append(g))) or None
    ):
        loss(model, X).backward()
    assert seen[-1].shape == (6, 4)
    with pytest.raises(ArgumentError, match="callable"):
        first.register_forward_hook(3)


def test_hooks_under_jit_are_never_stale():
    layer = nn.Linear(3, 2).arrays()
    f = pb.jit(lambda m, x: m(x))
    plain = f(layer, X)
    handle = layer.register_forward_hook(lambda m, args, out: out * 2)
    assert np.allclose(f(layer, X), 2 * plain)
    handle.remove()
    assert np.allclose(f(layer, X), plain)


def test_summary_and_repr():
    model = net()
    lines = model.summary().splitlines()
    assert lines[0].split() == ["name", "kind", "shape", "parameters"]
    assert lines[1].split() == ["Net", "71"]
    assert lines[-1] == "71 parameters, 284 B; 71 of them trained; 3 values in buffers"
    assert [line.split()[0] for line in lines[2:-1]] == [
        "body", "body.scales.a", "body.pair.left", "body.seen", "body.count", "body.first", "body.first.weight",
        "body.first.bias", "body.layers.0", "body.layers.0.weight", "body.layers.0.bias", "body.layers.2",
        "body.layers.2.weight", "body.layers.2.bias", "head", "head.weight", "head.bias",
    ]  # fmt: skip
    assert "(4, 3)" in lines[8]
    assert repr(nn.Linear(2, 3)) == "Linear(weight=float32[3, 2], bias=float32[3])"
    assert repr(nn.Sequential(nn.Linear(1, 1, bias=False), pb.relu)).splitlines() == [
        "Sequential(", "  0=Linear(weight=float32[1, 1], bias=None),", "  1=relu,", ")"]  # fmt: skip
    assert "layers=[Linear(" in repr(model)


def test_the_same_parameter_in_two_places():
    class Tied(nn.Module):
        def __init__(self):
            self.a = nn.Linear(3, 3)
            self.b = self.a
            self.w = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    assert [n for n, _ in model.named_parameters()] == ["a.weight", "a.bias"]
    assert "12 parameters" in model.summary()
    pb.sum(model(X)).backward()
    assert model.a.weight.grad is not None
    assert set(model.state_dict()) == {"a.weight", "a.bias", "b.weight", "b.bias", "w"}


def test_classes():
    class Empty(nn.Module):
        pass

    with pytest.raises(ArgumentError, match="Empty has no forward"):
        Empty()(1)
    assert flatten(Empty())[0] == []

    class Wider(Net):
        extra: float = 1.0

    base = net()
    assert np.allclose(Wider(base.body, base.head, 2.0, 3.0)(X).detach(), base(X).detach())

    class Own(nn.Module):
        width: int

        def __init__(self, width):
            self.width = 2 * width

    assert Own(3).width == 6

    class Child(Own):
        note: str = "typed only"

    assert Child(2).width == 4
    twin = copy.deepcopy(base)
    assert np.array_equal(twin(X).detach().numpy(), base(X).detach().numpy())
    assert twin.head.weight is not base.head.weight
    del base.scale
    assert base.scale == 2.0


LAYERS = {
    "linear": (nn.Linear(3, 2), lambda m: X @ m["weight"].T + m["bias"]),
    "linear without bias": (nn.Linear(3, 2, bias=False), lambda m: X @ m["weight"].T),
    "layer norm": (
        nn.LayerNorm(3),
        lambda m: (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5),
    ),
    "rms norm": (nn.RMSNorm(3), lambda m: X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)),
    "sequence": (nn.Sequential(nn.Linear(3, 2), pb.tanh), lambda m: np.tanh(X @ m["0.weight"].T + m["0.bias"])),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer, expected = LAYERS[name]
    out = layer(X)
    assert out.dtype == np.float32
    assert np.allclose(out.detach(), expected(layer.state_dict()), atol=1e-6)
    leaves, structure = flatten(map_tree(lambda p: p.astype(np.float64), layer.arrays()))
    assert pb.gradcheck(lambda x, *ps: unflatten(structure, ps)(x), X.astype(np.float64), *leaves)
    assert np.allclose(pb.jit(lambda m, x: m(x))(layer.arrays(), X), out.detach(), atol=1e-6)
    with pytest.raises(ShapeError, match=r"last axis|shape"):
        layer(np.ones((2, 5), np.float32))


def test_embedding():
    layer = nn.Embedding(5, 3)
    indices = np.array([[0, 4], [4, 4]])
    assert np.array_equal(layer(indices).detach().numpy(), layer.weight.detach().numpy()[indices])
    pb.sum(layer(indices)).backward()
    assert layer.weight.grad.numpy()[:, 0].tolist() == [1, 0, 0, 0, 3]
    with pytest.raises(IndexingError, match="integers"):
        layer(np.ones(2))
    with pytest.raises(IndexError):
        layer(np.array([5]))


def test_multi_head_attention():
    layer = nn.MultiHeadAttention(8, 4, kv_heads=2)
    x, y = (np.random.default_rng(i).normal(size=(2, 5, 8)).astype(np.float32) for i in (0, 1))
    assert layer.key.weight.shape == (4, 8)
    assert layer(x, y).shape == (2, 5, 8)
    masked = layer(x, is_causal=True).detach().numpy()
    assert np.allclose(masked[:, :1], layer(x[:, :1]).detach(), atol=1e-5)
    with pytest.raises(ArgumentError, match="heads"):
        nn.MultiHeadAttention(8, 3)


def test_keys_make_layers_repeatable():
    for make in (lambda key: nn.Linear(3, 3, key=key), lambda key: nn.Embedding(3, 3, key=key)):
        a, b, c = (
            make(pb.random.key(i)).weight.numpy() if False else make(pb.random.key(i)).weight.detach().numpy()
            for i in (0, 0, 1)
        )
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)
    pb.random.seed(0)
    a = nn.Linear(3, 3).weight.detach().numpy()
    assert not np.array_equal(a, nn.Linear(3, 3).weight.detach().numpy())
    pb.random.seed(0)
    assert np.array_equal(a, nn.Linear(3, 3).weight.detach().numpy())


@pytest.mark.parametrize(
    ("draw", "bound", "deviation"),
    [
        (lambda k: nn.init.uniform((300, 200), -2, 2, key=k), 2, 2 / math.sqrt(3)),
        (lambda k: nn.init.normal((300, 200), std=0.5, key=k), None, 0.5),
        (lambda k: nn.init.truncated_normal((300, 200), std=0.5, key=k), 1.0, 0.5 * 0.8796),
        (lambda k: nn.init.xavier_uniform((300, 200), key=k), math.sqrt(6 / 500), math.sqrt(2 / 500)),
        (lambda k: nn.init.xavier_normal((300, 200), 2.0, key=k), None, 2 * math.sqrt(2 / 500)),
        (lambda k: nn.init.kaiming_uniform((300, 200), key=k), math.sqrt(6 / 200), math.sqrt(2 / 200)),
        (lambda k: nn.init.kaiming_normal((300, 20, 5, 2), mode="out", key=k), None, math.sqrt(2 / 3000)),
        (lambda k: nn.init.kaiming_normal((300, 200), activation="tanh", key=k), None, 5 / 3 / math.sqrt(200)),
        (lambda k: nn.init.kaiming_normal((300, 200), activation="leaky_relu", slope=1.0, key=k), None, 200**-0.5),
    ],
)  # fmt: skip
def test_initialisers(draw, bound, deviation):
    w = draw(pb.random.key(0))
    assert w.dtype == np.float32
    assert abs(w.mean()) < 0.02 * deviation * 5
    assert np.isclose(w.std(), deviation, rtol=0.02)
    assert bound is None or np.abs(w).max() <= bound * (1 + 1e-6)
    assert np.array_equal(w, draw(pb.random.key(0)))


def test_orthogonal():
    for shape in ((5, 3), (3, 5), (4, 4), (2, 3, 2)):
        w = nn.init.orthogonal(shape, 2.0, key=pb.random.key(1), dtype=np.float64).reshape(shape[0], -1)
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        assert np.allclose(gram, 4 * np.eye(len(gram)))
    signs = [np.sign(nn.init.orthogonal((2, 2), key=pb.random.key(i))[0, 0]) for i in range(60)]
    assert 15 < signs.count(1) < 45


def test_initialisers_say_what_is_wrong():
    with pytest.raises(ShapeError):
        nn.init.xavier_normal((3,))
    with pytest.raises(ShapeError):
        nn.init.orthogonal((3,))
    with pytest.raises(ArgumentError, match="mode"):
        nn.init.kaiming_normal((3, 3), mode="both")
    with pytest.raises(ArgumentError, match="gain"):
        nn.init.kaiming_normal((3, 3), activation="nothing")
    for wrong in (1.0, -0.1):
        with pytest.raises(ArgumentError):
            nn.Dropout(wrong)
    with pytest.raises(ArgumentError, match="layer 1"):
        nn.Sequential(pb.tanh, 3)
    assert collections.Counter(nn.__all__).most_common(1)[0][1] == 1


def test_arrays_in_other_trees_are_parameters():
    class Graph(pb.nn.Module):
        def __init__(self):
            self.weights = pb.sparse.diagonal(pb.tensor(np.array([1.0, 2.0]), requires_grad=True))
            loc, scale = (pb.tensor(x, requires_grad=True) for x in (0.5, 1.0))
            self.layers = [pb.distributions.Normal(loc, scale)]

        def forward(self, x):
            return pb.sum(self.weights @ x) + self.layers[0].mean

    graph = Graph()
    assert [name for name, _ in graph.named_parameters()] == ["weights.data", "layers.0.loc", "layers.0.scale"]
    held = graph.parameters()
    optimizer = pb.optim.SGD(graph.parameters(), lr=1.0)
    graph(np.array([1.0, 3.0])).backward()
    optimizer.step()
    np.testing.assert_allclose(graph.weights.todense().detach().numpy(), [[0.0, 0.0], [0.0, -1.0]])
    state, other = graph.state_dict(), Graph()
    assert other.load_state_dict(state) == pb.nn.Module.load_state_dict(Graph(), state)
    assert other.layers[0].loc.item() == -0.5
    assert graph.float().weights.dtype == np.float32
    assert graph.parameters()[0] is held[0]
    arrays = graph.arrays()
    assert type(arrays.weights.data) is np.ndarray
    # those that are not to be trained, as of any attribute
    Graph.buffers = ("weights",)
    assert len(Graph().parameters()) == 2
