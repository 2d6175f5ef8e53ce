"""Every function of networks, natively and op by op: the same values and derivatives, and which of them are native."""

import numpy as np
import pytest
from network_samples import SAMPLES, is_moving

import pullback as pb

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick_code")

#: Those with no native form: ops of their own, views, selections, what draws numbers without a key, loops over time.
ONE_BY_ONE = {
    "relu", "sigmoid", "tanh", "one_hot", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout",
    "alpha_dropout", "feature_alpha_dropout", "drop_path", "gumbel_softmax", "spectral_norm", "embedding_bag", "fold",
    "unfold", "pixel_shuffle", "pixel_unshuffle", "ctc_loss", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "alibi_bias", "sinusoidal_positions",
    "relu6", "hardtanh", "hardsigmoid", "hardshrink", "threshold", "nll_loss",
}  # fmt: skip


INSTRUMENTS = [
    lambda: pb.memory_budget("1 GiB"),
    lambda: pb.saved_tensors_hooks(lambda x: x.copy(), lambda x: x),
    pb.detect_anomaly,
    pb.memory.profile,
]


def outcome(sample, transform=lambda f: f):
    """The results, and the gradients of a sum of them in which no weight is one."""
    xs = [pb.tensor(a, requires_grad=True) for a in sample.arrays]
    found = transform(sample.call)(*[x * 1.0 for x in xs])
    outs = [y for y in (found if isinstance(found, tuple) else (found,)) if y is not None]
    floats = [y for y in outs if pb.spec_of(y).inexact and getattr(y, "requires_grad", False)]
    if floats:
        sum(pb.sum(pb.sin(y)) for y in floats).backward()
    values = [y.detach().numpy() if isinstance(y, pb.Tensor) else np.asarray(y) for y in outs]
    return values + [np.zeros(1) if x.grad is None else x.grad.numpy() for x in xs]


def same_bits(found, wanted):
    assert [(a.dtype, a.tobytes()) for a in found] == [(a.dtype, a.tobytes()) for a in wanted]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_native_and_op_by_op_agree(sample):
    found = outcome(sample)
    again = outcome(sample)
    for enter in INSTRUMENTS:
        with enter():
            same_bits(outcome(sample), found)
    same_bits(outcome(sample, pb.checkpoint), found)
    with pb.native(False):
        wanted = outcome(sample)
    same_bits(again, found)  # the same call, the same bits
    for a, c in zip(found, wanted, strict=True):
        assert a.dtype == c.dtype
        np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-11)


def test_which_functions_run_natively():
    """None of them slips out of native code unnoticed."""
    seen = {}
    for sample in SAMPLES:
        if any(map(is_moving, sample.places)):
            name = sample.name.split(":")[0]
            seen[name] = seen.get(name, False) or "natively" in pb.explain(sample.call, *sample.arrays)
    assert {name for name, native in seen.items() if not native} <= ONE_BY_ONE
