"""The demo: it learns, says what it cost, and its page opens in a browser without reaching for anything."""

import importlib.util
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import browser
import numpy as np
import pytest
from pages import read_page, svgs_in
from rich.console import Console

import pullback as pb
from pullback import cli, demo
from pullback.compile.cpu import target as cpu_target
from pullback.compile.cpu.runtime import link
from pullback.demo import gpu_page, peers
from pullback.demo.network import BATCH, init_parameters, iter_batches, load_shuffled_digits, loss
from pullback.demo.single_thread import one_thread
from pullback.demo.training import CompiledTrainer, TapeTrainer, train


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100)


def printed(console):
    return console.file.getvalue()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run that all look at: (what it found, what it printed, the page)."""
    console = Console(file=io.StringIO(), width=100)
    found = demo.main(steps=130, console=console, report=tmp_path_factory.mktemp("demo") / "page.html", peers=False)
    return found, printed(console), found.path.read_text()


def test_it_learns_by_tape_and_compiled(ran):
    found, text, _ = ran
    assert found.accuracy >= 0.9
    assert f"{found.tape.accuracy:.1%} by tape, {found.compiled.accuracy:.1%} compiled" in text
    assert found.native == link.has_llvm()


def test_a_gpu_gets_a_page_of_its_own(ran):
    """The CPU stands for the device: the same steps, another page."""
    found, _, _ = ran
    random = np.random.default_rng(0)
    data, start = load_shuffled_digits(random), init_parameters(random)
    path = gpu_page.write_gpu_page(found, data, start, 0, "cpu")
    assert path.name == "page-gpu.html"
    reader = read_page(path.read_text())
    assert reader.count["svg"] == 2
    assert f"{found.compiled.accuracy:.1%}" in path.read_text()
    assert "0e+00" in path.read_text()  # no difference from the CPU's losses


def test_both_ways_take_the_same_steps(ran):
    found, _, _ = ran
    assert found.largest_loss_gap < 0.01
    assert found.tape.losses[0] == pytest.approx(found.compiled.losses[0], rel=1e-5)
    assert found.tape.losses[0] > 5 * found.tape.losses[-1]


def test_as_many_steps_as_the_command_takes_reach_97_percent():
    random = np.random.default_rng(0)
    data, start = load_shuffled_digits(random), init_parameters(random)
    with one_thread():
        assert train(CompiledTrainer(start), data, 500, 0, lambda run: None).accuracy >= 0.97


def test_memory_is_as_predicted(ran):
    found, _, _ = ran
    assert found.memory["tape"].measured == pytest.approx(found.memory["tape"].predicted, rel=0.05)
    if found.native:
        assert found.memory["compiled"].measured == pytest.approx(found.memory["compiled"].predicted, rel=0.1)


def test_norms_are_those_of_the_gradients():
    random = np.random.default_rng(0)
    data, start = load_shuffled_digits(random), init_parameters(random)
    way = TapeTrainer(start)
    way.step(data.images[:BATCH], data.labels[:BATCH])
    expected = pb.grad(loss)(start, data.images[:BATCH], data.labels[:BATCH])
    for layer, norm in way.norms().items():
        both = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in expected[layer].values()))
        assert norm == pytest.approx(both, rel=1e-4)


def test_it_says_what_it_did_and_where_the_page_is(ran):
    found, text, _ = ran
    for words in ("130 steps", "a step, pullback, tape", "a step, pullback, compiled", "memory, compiled", "predicted"):
        assert words in text
    assert str(found.path) in text.replace("\n", "")


def test_the_page_is_well_formed_and_needs_nothing_else(ran):
    _, _, page = ran
    reader = read_page(page)
    assert "script" not in reader.count
    assert len(svgs_in(page)) == reader.count["svg"] == 9
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        "Learning", "Time of a step", "Gradients", "The compiled step", "Memory of a step on the tape",
        "The tape of a step", "Held-out digits",
    ]  # fmt: skip
    assert "matrix product" in page or not link.has_llvm()
    assert "conv1.weight" in page
    assert "/home" not in page
    assert str(Path.cwd()) not in page


def test_the_first_screen_says_what_how_fast_and_where(ran):
    found, text, page = ran
    first = page[: page.index("<h2>")]
    assert f"<b>{found.accuracy:.1%}</b>" in first
    assert f"<b>{1e3 * found.times['pullback, compiled']:.2f} ms</b>" in first
    ratio = found.times["pullback, tape"] / found.times["pullback, compiled"]
    assert f"<b>{max(ratio, 1 / ratio):.1f}x " in first
    for words in ("def training_step", "pb.jit(training_step", f"numpy {np.__version__}", "Python 3.", "cores"):
        assert words in first
    assert "prefers-color-scheme:dark" in first
    assert "x slower" in text
    assert "times the fastest" not in text + page
    assert ">100%</text>" in page, "the axis of the accuracy reaches what can be reached"


def test_curves_that_coincide_are_both_seen(ran):
    widths = re.findall(r'stroke-width="([\d.]+)" stroke-opacity="([\d.]+)"[^>]*><title>(tape|compiled)', ran[2])
    assert {(name, float(width) > 2, float(opacity) < 1) for width, opacity, name in widths} == {
        ("tape", True, True), ("compiled", False, False),
    }  # fmt: skip


def test_the_page_opens_in_a_browser(ran, tmp_path):
    path = browser.program()
    if path is None:
        pytest.skip("no browser is found; PULLBACK_BROWSER names one")
    found, _, _ = ran
    with browser.Browser(path, tmp_path) as shown:
        shown.show(found.path)
        assert shown.evaluate("document.title") == "pullback demo"
        assert shown.evaluate("document.compatMode") == "CSS1Compat"
        sizes = (
            "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])"
        )
        pictures = shown.evaluate(sizes)
        assert len(pictures) == 9
        assert [size for size in pictures if min(size) < 50] == [], "every picture has room"
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert shown.told("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
        requests = {event["request"]["url"] for event in shown.told("Network.requestWillBeSent")}
        assert requests == {found.path.as_uri()}


def test_without_llvm_the_array_library_runs_it(console, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_target, "has_llvm", lambda: False)
    monkeypatch.setattr(cpu_target, "warn_without_llvm", lambda: None)
    found = demo.main(steps=3, console=console, report=tmp_path / "page.html", peers=False)
    assert not found.native
    assert found.memory["compiled"].predicted is None
    assert "llvmlite is not installed" in printed(console)
    read_page(found.path.read_text())
    assert "NumPy ran the program" in found.path.read_text()


def test_it_is_the_same_each_time(console, tmp_path):
    runs = [demo.main(3, seed, console, tmp_path / "page.html", peers=False) for seed in (5, 5, 6)]
    losses = [run.tape.losses + run.compiled.losses for run in runs]
    assert losses[0] == losses[1] != losses[2]


def test_the_command_passes_its_settings_on(console, tmp_path):
    assert cli.main(["demo", "--steps", "2", "--no-peers", "--report", str(tmp_path / "a.html")], console) == 0
    assert "2 steps" in printed(console)
    assert "not asked for" in printed(console)
    read_page((tmp_path / "a.html").read_text())


def test_where_the_page_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert demo.report_path("a.html") == tmp_path / "a.html"
    assert demo.report_path(None) == tmp_path / "pullback-demo.html"
    monkeypatch.setattr("os.access", lambda *_: False)
    elsewhere = demo.report_path(None)
    assert elsewhere.name == "pullback-demo.html"
    assert elsewhere.parent not in (tmp_path, Path.cwd())
    elsewhere.parent.rmdir()


@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_take_the_same_steps(name):
    """In a process of its own: such a library changes much in the one that loads it."""
    if importlib.util.find_spec(peers.PEERS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    code = f"""
import numpy as np
from pullback.demo.network import BATCH, init_parameters, load_shuffled_digits
from pullback.demo.peers import PEERS
from pullback.demo.training import TapeTrainer
random = np.random.default_rng(0)
data, start = load_shuffled_digits(random), init_parameters(random)
batch = data.images[:BATCH], data.labels[:BATCH]
way, step = TapeTrainer(start), PEERS[{name!r}][1](start, *batch)
print([step() for _ in range(5)])
print([way.step(*batch) for _ in range(5)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    theirs, ours = map(json.loads, done.stdout.splitlines())
    assert theirs == pytest.approx(ours, rel=1e-3)


def test_peers_that_are_not_there_are_named(monkeypatch):
    for package, _ in peers.PEERS.values():
        monkeypatch.setitem(sys.modules, package, None)
    steps, missing = peers.add_peer_steps({"ours": lambda: 1.0}, None, None, None)
    assert list(steps) == ["ours"]
    assert missing == [
        "PyTorch: left out, the package torch is not installed",
        "JAX, compiled: left out, the package jax is not installed",
    ]


def test_peers_that_compute_something_else_are_left_out(monkeypatch):
    monkeypatch.setattr(
        peers, "PEERS", {"Other": ("json", lambda *_: lambda: 2.0), "Same": ("json", lambda *_: lambda: 1.0)}
    )
    steps, missing = peers.add_peer_steps({"ours": lambda: 1.0}, None, None, None)
    assert list(steps) == ["ours", "Same"]
    assert missing == ["Other: left out, its loss is 2 where ours is 1"]
    assert set(peers.race(steps, 0.0)) == {"ours", "Same"}


def test_batches_go_through_all_rows_before_any_comes_again():
    rows = np.concatenate(list(iter_batches(np.random.default_rng(0), 3 * BATCH, 6)))
    assert (np.bincount(rows) == 2).all()
    assert len(np.unique(rows[: 3 * BATCH])) == 3 * BATCH


def test_threads_are_given_back():
    before = pb.get_num_threads()
    pb.set_num_threads(2)
    try:
        with one_thread():
            assert pb.get_num_threads() == 1
        assert pb.get_num_threads() == 2
    finally:
        pb.set_num_threads(before)
