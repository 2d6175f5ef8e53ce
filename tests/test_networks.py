"""Networks of all kinds train alike, eager and compiled: three rounds of value, gradients and parameters.

`python tests/networks.py --networks 1000` tries more of them.
"""

import networks
import numpy as np
import pytest
from networks import WAYS, Network, drawn_network, find_fault, reproduction, shrink

from pullback.compile.cpu.runtime import link

pytest.importorskip("llvmlite")


def check(seed, ways, monkeypatch):
    monkeypatch.setattr(link, "EFFORT", (link.PASSES, 3) if seed % 10 == 0 else ((), 0))
    for way in ways:
        fault = find_fault(drawn_network(seed), way)
        assert fault is None, reproduction(shrink(fault))


@pytest.mark.parametrize("first", range(0, 60, 5))
def test_networks(first, monkeypatch):
    for seed in range(first, first + 5):
        check(seed, [list(WAYS)[seed % len(WAYS)]], monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_more_networks(first, monkeypatch):
    for seed in range(first, first + 50):
        check(seed, WAYS, monkeypatch)


#: Steps that were trained wrongly once compiled: equal widths before a loss with a mask, attention, pools of one place.
KNOWN = {
    "equal widths, cross-entropy": Network(1, widths=(4, 3, 3), batch=8, outputs=3, loss="pb.nn.cross_entropy(h, y)"),
    "equal widths, huber": Network(2, widths=(8, 16, 16), batch=5, loss="pb.nn.huber_loss(h, y)", rule="adam(0.01)"),
    "causal attention": Network(26, "attention", 3, 3, (3, 1), 3, "pb.nn.relu6"),
    "ignored labels": Network(3, widths=(4, 4, 4), batch=4, outputs=4, dropout=True, loss=networks.CLASSES[1]),
    "one pool": Network(4, "conv1d", 3, 2, (3, 3), 3, "pb.relu", pool="avg"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KNOWN)
def test_networks_that_were_wrong(name, way):
    assert find_fault(KNOWN[name], way) is None


def test_a_wrong_step_is_found_and_the_network_shrunk(monkeypatch):
    def halved(training):
        """Gradients that lose half of a square weight."""
        found = networks.eager(training)
        for arrays in found:
            for a in arrays:
                if a.ndim == 2 and a.shape[0] == a.shape[1]:
                    a[:, 0] = 0
        return found

    monkeypatch.setitem(WAYS, "jit_grad", halved)
    network = Network(0, widths=(8, 8, 3), batch=8, outputs=3, norm="layer", bias=True, rule="adam(0.01)")
    small = shrink(find_fault(network, "jit_grad"))
    assert (small.network.norm, small.network.bias, small.network.rule) == ("", False, "sgd(0.1)")
    assert max(small.network.widths) < 8
    compile(reproduction(small), "reproduction", "exec")
    assert np.isfinite(small.network.arguments()[1]).all()
