"""Layers made from functions, layers under PyTorch's names, and PyTorch's keywords of constructors."""

import ast
import copy
import inspect
import math
import pickle

import function_layer_stub
import numpy as np
import pytest

import pullback as pb
from pullback.nn.layers.make_layer import FunctionLayer

nn = pb.nn
LAYERS = {name: kind for name, kind in function_layer_stub.layers().items() if kind is not FunctionLayer}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6))
ONES = np.ones(4)
LABELS = np.array([0, 5, 2, 1])
SIGNS = np.array([1.0, -1.0, 1.0, -1.0])
#: What a layer is made with, and what it is called with: by default nothing, and X.
SETTINGS = {
    "Threshold": {"threshold": 0.1, "value": 0.2}, "Fold": {"output_size": (4, 4), "kernel_size": 2},
    "LocalResponseNorm": {"size": 2}, "PixelShuffle": {"upscale_factor": 2}, "PixelUnshuffle": {"downscale_factor": 2},
    "Unflatten": {"axis": 1, "sizes": (2, 3)}, "Unfold": {"kernel_size": 2}, "Upsample": {"scale_factor": 2},
}  # fmt: skip
IMAGES = {d: RNG.normal(size=(2, 4, *[4] * d)) for d in (1, 2, 3)}
BINARY = (X > 0).astype(float)
INPUTS = {
    "BCELoss": (1 / (1 + np.exp(-X)), BINARY), "BCEWithLogitsLoss": (X, BINARY),
    "CTCLoss": (np.log(np.full((5, 2, 3), 1 / 3)), np.array([[1, 2], [2, 1]])),
    "CosineEmbeddingLoss": (X, X[::-1].copy(), SIGNS), "CrossEntropyLoss": (X, LABELS), "DiceLoss": (BINARY, BINARY),
    "FocalLoss": (X, BINARY), "GaussianNLLLoss": (X, X * 2, X**2 + 1), "HingeEmbeddingLoss": (ONES, SIGNS),
    "HingeLoss": (ONES, SIGNS), "KLDivLoss": (np.log(np.full(4, 0.25)), np.full(4, 0.25)),
    "MarginRankingLoss": (ONES, ONES * 2, SIGNS), "MultiLabelMarginLoss": (X, np.full((4, 6), -1)),
    "MultiLabelSoftMarginLoss": (X, BINARY), "MultiMarginLoss": (X, LABELS), "NLLLoss": (X, LABELS),
    "PoissonNLLLoss": (X, X**2), "SoftMarginLoss": (ONES, SIGNS), "TripletMarginLoss": (X, X + 1, X - 2),
    "CosineSimilarity": (X, X + 1), "PairwiseDistance": (X, X + 1), "Fold": (RNG.normal(size=(1, 4, 9)),),
    "PixelShuffle": (IMAGES[2],), "PixelUnshuffle": (IMAGES[2],), "Unfold": (IMAGES[2],), "Upsample": (IMAGES[2],),
    "LocalResponseNorm": (IMAGES[2],), "Dropout1d": (IMAGES[1],), "Dropout2d": (IMAGES[2],), "Dropout3d": (IMAGES[3],),
    "FeatureAlphaDropout": (IMAGES[2],),
}  # fmt: skip
for loss in ("HuberLoss", "L1Loss", "LogCoshLoss", "MSELoss", "QuantileLoss", "SmoothL1Loss"):
    INPUTS[loss] = (X, X * 2)
for d in (1, 2, 3):
    pooled, where = nn.max_pool1d(IMAGES[1], 2, return_indices=True) if d == 1 else (None, None)
    for name in (f"MaxPool{d}d", f"AvgPool{d}d", f"LPPool{d}d", f"AdaptiveAvgPool{d}d", f"AdaptiveMaxPool{d}d",
                 f"FractionalMaxPool{d}d"):  # fmt: skip
        INPUTS[name] = (IMAGES[d],)
        SETTINGS[name] = {"output_size": 2} if "Adaptive" in name else {"kernel_size": 2}
    SETTINGS[f"LPPool{d}d"]["norm_type"] = 2.0
    SETTINGS[f"FractionalMaxPool{d}d"]["output_size"] = 2
    function = getattr(nn, f"max_pool{d}d")
    INPUTS[f"MaxUnpool{d}d"] = function(IMAGES[d], 2, return_indices=True)
    SETTINGS[f"MaxUnpool{d}d"] = {"kernel_size": 2}


def made(name):
    return LAYERS[name](**SETTINGS.get(name, {})), INPUTS.get(name, (X,))


def bare(x):
    return np.asarray(x.detach().numpy() if isinstance(x, pb.Tensor) else x)


@pb.native(False)  # the functions compiled are tested elsewhere
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_function_with_fields_as_settings(name):
    layer, inputs = made(name)
    kind = type(layer)
    options = {"key": pb.random.key(3)} if kind.takes_key else {}
    more = {"training": True} if kind.uses_training else {}
    settings = {n: getattr(layer, n) for n in kind.settings}
    leading = [settings.pop(n) for n in kind.leading]
    wanted = kind.function(*inputs, *leading, **settings, **options, **more)
    np.testing.assert_array_equal(bare(layer(*inputs, **options)), bare(wanted))
    if kind.uses_training:
        quiet = kind.function(*inputs, *leading, **settings, training=False)
        np.testing.assert_array_equal(bare(layer.eval()(*inputs)), bare(quiet))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_copied_pickled_and_saved(name, tmp_path):
    layer, _ = made(name)
    pb.save(tmp_path / "layer", layer)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), pb.load(tmp_path / "layer")):
        assert type(twin) is type(layer)
        assert repr(twin) == repr(layer)
        assert pb.tree.structure(twin) == pb.tree.structure(layer)
    assert layer.parameters() == []


@pb.native(False)
@pytest.mark.parametrize("name", [n for n in LAYERS if not LAYERS[n].takes_key])
def test_layers_have_gradients(name):
    layer, (x, *others) = made(name)
    found = pb.grad(lambda x: pb.sum(layer(x, *others)))(x)
    assert bare(found).shape == x.shape


@pytest.mark.parametrize(
    "name", ["GELU", "LeakyReLU", "Softmax", "CrossEntropyLoss", "MSELoss", "MaxPool2d", "Flatten", "Unflatten"]
)
def test_layers_in_compiled_functions(name):
    layer, (x, *others) = made(name)
    np.testing.assert_allclose(bare(pb.jit(lambda m, x: m(x, *others))(layer, x)), bare(layer(x, *others)), rtol=1e-12)
    batched = pb.vmap(lambda x: layer(x, *others))(np.stack([x, x + 0.5]))
    np.testing.assert_allclose(bare(batched)[1], bare(layer(x + 0.5, *others)), rtol=1e-12)


def test_a_setting_that_changes_is_seen_by_compiled_functions():
    layer = nn.LeakyReLU(0.5)
    f = pb.jit(lambda m, x: m(x))
    assert f(layer, np.array([-2.0])).tolist() == [-1.0]
    layer.negative_slope = 0.25
    assert f(layer, np.array([-2.0])).tolist() == [-0.5]


def test_weights_of_classes_are_buffers():
    loss = nn.CrossEntropyLoss(weight=np.arange(1.0, 7.0))
    assert loss.parameters() == []
    assert list(loss.state_dict()) == ["weight"]
    expected = nn.cross_entropy(X, LABELS, weight=np.arange(1.0, 7.0))
    np.testing.assert_allclose(bare(loss(X, LABELS)), bare(expected))


def test_the_stub_says_what_constructors_take():
    written = function_layer_stub.PATH.read_text()
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(function_layer_stub.stub()))


def test_layers_show_their_signature_and_docstring():
    assert list(inspect.signature(nn.MaxPool2d).parameters)[:3] == ["kernel_size", "stride", "padding"]
    assert "as a module" in nn.GELU.__doc__
    assert repr(nn.Sequential(nn.ReLU(), nn.Softmax(dim=0))) == "Sequential(\n  0=ReLU(),\n  1=Softmax(axis=0),\n)"


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("Linear", {"in_features": 2, "out_features": 3}, (2, 3)),
        ("Conv2d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "padding_mode": "zeros"}, (2, 3, 2)),
        ("ConvTranspose2d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2}, (2, 3, 2)),
        ("Embedding", {"num_embeddings": 5, "embedding_dim": 2}, (5, 2)),
        ("LSTM", {"input_size": 2, "hidden_size": 3, "num_layers": 2, "bidirectional": True}, (2, 3, 2)),
        ("GRU", {"input_size": 2, "hidden_size": 3}, (2, 3)),
        ("LayerNorm", {"normalized_shape": 4}, (4,)),
        ("RMSNorm", {"normalized_shape": 4}, (4,)),
        ("BatchNorm2d", {"num_features": 4}, (4,)),
        ("GroupNorm", {"num_groups": 2, "num_channels": 4}, (2, 4)),
        ("MultiHeadAttention", {"embed_dim": 4, "num_heads": 2}, (4, 2)),
        ("TransformerEncoderLayer", {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0}, (4, 2, 8, 0.0)),
    ],
)
def test_keywords_of_pytorch_are_other_spellings(name, theirs, ours):
    kind = getattr(nn, name)
    one = kind(**theirs, **({"key": pb.random.key(0)} if "key" in inspect.signature(kind).parameters else {}))
    extra = {"bidirectional": True} if "bidirectional" in theirs else {}
    two = kind(*ours, **extra)
    assert pb.tree.structure(one) == pb.tree.structure(two)
    assert [x.shape for x in one.parameters()] == [x.shape for x in two.parameters()]
    theirs_name, ours_name = next((t, o) for t, o in kind.__init__.spellings.items() if t in theirs)
    with pytest.raises(TypeError, match=f"{name}: {theirs_name} is {ours_name}, and both are given"):
        kind(**{**theirs, ours_name: theirs[theirs_name]})
    with pytest.raises(TypeError, match=f"{name}: .*'nothing'.*\n  Its arguments are {ours_name}"):
        kind(**theirs, nothing=1)


def test_positional_arguments_come_in_the_order_of_pytorch():
    layer = nn.Conv2d(2, 4, 3, 2, 1, 1, 2, False)
    assert (layer.stride, layer.padding, layer.dilation, layer.groups, layer.bias) == (2, 1, 1, 2, None)
    assert nn.Linear(2, 3, False).bias is None
    assert nn.LayerNorm(3, 0.5).eps == 0.5
    assert nn.BatchNorm2d(3, 0.5, 0.25).momentum == 0.25


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions_are_adjoint_to_convolutions(axes):
    """<conv(x), y> = <x, conv_transpose(y)> with the same weight, and PyTorch's shape of it: (inputs, outputs, ...)."""
    layer = getattr(nn, f"ConvTranspose{axes}d")(
        4, 2, 3, stride=2, padding=1, output_padding=1, bias=False, dtype=float
    )
    y = RNG.normal(size=(2, 4, *[3] * axes))
    out = bare(layer(y))
    assert out.shape == (2, 2, *[6] * axes)
    x = RNG.normal(size=out.shape)
    assert layer.weight.shape == (4, 2, *[3] * axes)
    conv = getattr(nn, f"conv{axes}d")(x, layer.weight.detach(), stride=2, padding=1)
    np.testing.assert_allclose((bare(conv) * y).sum(), (x * out).sum(), rtol=1e-10)


def test_batch_norm_by_rank():
    x = RNG.normal(size=(8, 3, 2, 2)).astype(np.float32)
    ranked, plain = nn.BatchNorm2d(3), nn.BatchNorm(3)
    np.testing.assert_array_equal(bare(ranked(x)), bare(plain(x)))
    np.testing.assert_array_equal(bare(ranked.mean), bare(plain.mean))
    with pytest.raises(pb.errors.ShapeError, match="BatchNorm1d: wants 2 or 3 axes"):
        nn.BatchNorm1d(3)(x)


def test_layer_norm_over_several_axes():
    x = RNG.normal(size=(5, 3, 4))
    layer = nn.LayerNorm((3, 4), dtype=float)
    assert layer.weight.shape == (3, 4)
    flat = x.reshape(5, -1)
    wanted = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(bare(layer(x)).reshape(5, -1), wanted, rtol=1e-10)


def test_recurrent_layers_take_the_batch_first():
    one, two = (nn.LSTM(3, 4, 2, batch_first=b, key=pb.random.key(1)) for b in (False, True))
    x = RNG.normal(size=(5, 2, 3)).astype(np.float32)
    for a, b in zip(one(x)[1], two(x.swapaxes(0, 1))[1], strict=True):
        np.testing.assert_array_equal(bare(a[0]), bare(b[0]))
    np.testing.assert_array_equal(bare(one(x)[0]), bare(two(x.swapaxes(0, 1))[0]).swapaxes(0, 1))


def test_the_padding_row_of_an_embedding():
    layer = nn.Embedding(4, 2, padding_idx=1)
    out = layer(np.array([1, 2, 1]))
    assert bare(out)[0].tolist() == [0.0, 0.0]
    pb.sum(out).backward()
    assert layer.weight.grad.tolist()[1] == [0.0, 0.0]


def reference_encoder(layer, x, allowed):
    """One layer in NumPy for x of (batch, length, width); `allowed` is True where a query sees a key."""

    def norm(m, x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + m.eps) * bare(m.weight) + bare(
            m.bias
        )

    def linear(m, x):
        return x @ bare(m.weight).T + bare(m.bias)

    def heads(x):
        return x.reshape(*x.shape[:2], layer.attention.heads, -1).swapaxes(1, 2)

    def attend(x):
        q, k, v = (heads(linear(m, x)) for m in (layer.attention.query, layer.attention.key, layer.attention.value))
        scores = np.where(allowed, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ v
        return linear(layer.attention.out, out.swapaxes(1, 2).reshape(x.shape))

    def transform(x):
        return linear(layer.linear2, np.maximum(linear(layer.linear1, x), 0))

    if layer.norm_first:
        x = x + attend(norm(layer.norm1, x))
        return x + transform(norm(layer.norm2, x))
    x = norm(layer.norm1, x + attend(x))
    return norm(layer.norm2, x + transform(x))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_an_encoder_layer_against_numpy(norm_first, batch_first):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=batch_first, norm_first=norm_first, key=pb.random.key(0), dtype=float
    ).eval()
    x = RNG.normal(size=(3, 5, 8))
    padding = np.zeros((3, 5), bool)
    padding[1, 3:] = True
    causal = np.triu(np.ones((5, 5), bool), 1)
    allowed = ~causal & ~padding[:, None, None, :]
    given = x if batch_first else x.swapaxes(0, 1)
    out = bare(layer(given, src_mask=causal, src_key_padding_mask=padding))
    out = out if batch_first else out.swapaxes(0, 1)
    np.testing.assert_allclose(out, reference_encoder(layer, x, allowed), rtol=1e-9, atol=1e-12)
    added = bare(layer(given, src_mask=np.where(causal, -np.inf, 0.0), src_key_padding_mask=padding))
    np.testing.assert_allclose(added if batch_first else added.swapaxes(0, 1), out, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bare(pb.jit(lambda m, x: m(x))(layer, given)), bare(layer(given)), rtol=1e-9)


def test_dropout_of_an_encoder_layer_follows_its_key():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.5)
    x = np.ones((1, 3, 8), np.float32)
    one, two, other = (bare(layer(x, key=pb.random.key(k))) for k in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()
    compiled = pb.jit(lambda m, x, k: m(x, key=k))(layer, x, pb.random.key(1))
    np.testing.assert_allclose(bare(compiled), one, rtol=1e-5, atol=1e-6)


def test_parameters_of_pytorch():
    class Scale(nn.Module):
        def __init__(self):
            self.scale = nn.Parameter(np.ones(2))
            self.frozen = nn.Parameter(np.ones(2), requires_grad=False)
            self.register_buffer("mean", np.zeros(2))

        def forward(self, x):
            return (x - self.mean) * self.scale

    net = Scale()
    assert isinstance(net.scale, nn.Parameter)
    assert not isinstance(net.frozen, nn.Parameter)
    assert not isinstance(net.scale * 2, nn.Parameter)
    assert [n for n, _ in net.named_parameters()] == ["scale", "frozen"]
    for twin in (copy.deepcopy(net), net.arrays(), pb.jit(lambda m: m)(net.arrays())):
        assert [n for n, _ in twin.named_parameters()] == ["scale", "frozen"]
        assert list(twin.state_dict()) == ["scale", "frozen", "mean"]
    trained, state = net.split()
    assert trained.mean is None
    assert state.scale is None
    with pytest.raises(pb.errors.ArgumentError, match="part of the state"):
        net.register_buffer("other", np.ones(1), persistent=False)


def network():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)))


def test_modules_below_a_module():
    net = network()
    assert [n for n, _ in net.named_children()] == ["0", "1", "2"]
    assert [type(m).__name__ for m in net.children()] == ["Linear", "ReLU", "Sequential"]
    assert sum(isinstance(m, nn.Linear) for m in net.modules()) == 2
    assert net.get_submodule("2.0") is net[2][0]
    with pytest.raises(pb.errors.ArgumentError, match=r"no module '2\.7'"):
        net.get_submodule("2.7")
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Linear", "BatchNorm1d", "Sequential", "Sequential"]


def test_modules_of_another_dtype_keep_their_tensors():
    net = network()
    opt = pb.optim.SGD(net.parameters(), lr=0.5)
    before, weight = net(np.ones((4, 2), np.float32)), net[0].weight
    pb.sum(before**2).backward()
    seen = []
    weight.register_hook(lambda g: seen.append(g.dtype))
    assert net.double() is net
    assert net[0].weight is weight
    assert {x.dtype for x in net.state_dict().values()} == {np.dtype("float64")}
    assert weight.grad.dtype == np.float64
    assert weight.requires_grad
    opt = pb.optim.SGD(net.parameters(), lr=0.5)
    opt.zero_grad()
    pb.sum(net(np.ones((4, 2))) ** 2).backward()
    opt.step()
    assert seen == [np.float64]
    assert net.float()[2][1].mean.dtype == np.float32
    assert net.to(device="cpu").to("float64").to(pb.tensor(1.0))[0].weight.dtype == np.float64
    with pytest.raises(pb.errors.DtypeError, match="int64 is not"):
        net.to(pb.int64)
    with pytest.raises(pb.errors.GraphError, match="outside of the running transform"):
        pb.jit(lambda x: net.to(pb.float32)(x))(np.ones((2, 2)))
    assert net.arrays().to(pb.float32)[0].weight.dtype == np.float32
    found = pb.jit(lambda m: m.to(pb.float32))(net.arrays())
    assert found[0].weight.dtype == np.float32
