"""Certification of functions and ops: what holds is certified, what is wrong is named, and the table is whole."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import pullback as pb
from pullback import cli
from pullback.errors import ArgumentError, DeviceError, DtypeError
from pullback.ops import load_all_ops
from pullback.tools.certify import DTYPES, EXCEPTIONS, ROLES, certify_ops, device_roles
from pullback.tools.certify.high_precision import scalar_function
from pullback.tools.certify.oracles.random_draws import threefry
from pullback.tools.certify.oracles.structural import index_pairs
from pullback.tools.certify.report import MARK, Certificate, Outcome
from pullback.tools.certify.roles import relative_distance

PAGE = Path(__file__).parent.parent / "docs" / "certification.md"
X = np.array([0.5, 1.5, -0.7])
ASKED = {"spec", "transpose", "differences", "second", "third", "batch", "staged", "compiled"}


def failing(report):
    return {role for row in report.rows.values() for role, tally in row.items() if tally.failures}


FUNCTIONS = {
    "one number": (lambda x: x * pb.sin(x), 1.5),
    "a vector": (lambda x: pb.exp(x) * pb.sum(x), X),
    "two arguments and an integer": (lambda x, y, n: pb.sum(x**n) * y, X, 2.0, 3),
    "trees": (lambda p: {"a": pb.tanh(p["w"]) * p["b"][0], "at": pb.argmax(p["w"])}, {"w": X, "b": [2.0]}),
    "complex": (lambda z: z * pb.conj(z) * pb.exp(z), X + 0.3j),
    "complex and real": (lambda z, x: pb.real(z) * x, X + 0.3j, X),
    "a tensor": (lambda x: pb.cos(x), pb.tensor(X, requires_grad=True)),
    "single precision": (lambda x: pb.sum(pb.sin(x) * x), X.astype("float32")),
    "nothing at all": (lambda x: x * x, np.zeros((0, 2))),
    "a string": (lambda x, how: pb.sin(x) if how == "sin" else x, X, "sin"),
    "a constant beside": (lambda x: (x * x, np.ones(2)), X),
    "a matrix": (lambda a, b: pb.linalg.solve(a, b), np.eye(3) + 0.1, X),
    "non-contiguous": (lambda x: pb.sum(x * x, axis=0), np.arange(12.0).reshape(3, 4)[::2, ::-1]),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_what_is_right_is_certified(what):
    f, *args = FUNCTIONS[what]
    report = pb.certify(f, *args)
    assert report, str(report)
    assert {r for row in report.rows.values() for r in row} >= ASKED - {"third"}


@pb.custom_op
def doubled(x):
    return np.multiply(x, 2.0)


doubled.def_vjp(lambda bar: 3.0 * bar)


@pb.custom_op
def cubed(x):
    return np.power(x, 3)


cubed.def_vjp(lambda bar, x: bar * 3.0 * pb.stop_gradient(x) ** 2)


WRONG = {
    "half hidden": (lambda x: pb.sum(x * pb.stop_gradient(x)), {"differences"}),
    "wrong factor": (doubled, {"differences"}),
    "right to first order": (cubed, {"differences"}),
    "a corner": (lambda x: pb.sum(pb.abs(x - 0.5)), {"differences"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what):
    f, roles = WRONG[what]
    report = pb.certify(f, X)
    assert not report
    assert failing(report) >= roles
    assert "allowed" in str(report)
    assert "differences" in str(report)


def sine_off_by(size):
    @pb.custom_op
    def sine(x):
        return np.sin(x)

    sine.def_vjp(lambda bar, x: bar * pb.cos(x) * (1.0 + size))
    return sine


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [0.0, 1e-4, 1e-6])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-7, 1e4])
def test_a_rule_off_by_one_part_in_a_million_is_seen(size, dtype, scale):
    """A rule of the user's, at arguments and with values of several sizes, also where they are in single precision."""
    sine = sine_off_by(size)
    report = pb.certify(lambda x: scale * sine(x / scale), (X * scale).astype(dtype))
    assert bool(report) == (size == 0), str(report)
    assert failing(report) == (set() if size == 0 else {"differences"})


def test_differences_that_do_not_settle_are_no_certificate():
    """Noise of 1e-7 hides an error of 1e-6 in the slope: such a function is not certified."""

    @pb.custom_op
    def noisy(x):
        return np.sin(x) + 1e-7 * np.sin(1e9 * x)

    noisy.def_vjp(lambda bar, x: bar * pb.cos(x))
    assert failing(pb.certify(noisy, X)) == {"differences"}


@pytest.mark.parametrize(
    ("key", "counter", "wanted"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_oracle_of_random_words_has_the_published_vectors(key, counter, wanted):
    assert threefry(key, counter) == wanted


@pytest.mark.parametrize("index", ["1", ":, 1:", "::-1, None", "i", "i, :, i", ":, i, i", "..., j", "j, 1", "1, :, j"])
def test_the_oracle_of_indexing_is_numpys_indexing(index):
    x, i, j = np.arange(24.0).reshape(2, 3, 4), np.array([0, -1]), np.array([[1, 0], [0, 1]])
    index = eval(f"np.s_[{index}]", {"np": np, "i": i, "j": j})
    index = index if isinstance(index, tuple) else (index,)
    shape, pairs = index_pairs(x.shape, index)
    found = np.zeros(shape)
    for place, source in pairs:
        found[place] = x[source]
    np.testing.assert_array_equal(found, x[index])


def halve(x):
    while x > 0.5:
        x = x * x / 2
    return x


def test_branches_are_not_batched_and_loops_on_values_not_staged_either():
    report = pb.certify(lambda x: x * x if x > 0 else -x, 1.5)
    assert report
    assert set(report.rows["<lambda>"]) == {"transpose", "differences", "second", "third", "spec", "staged", "compiled"}
    report = pb.certify(halve, 1.5)
    assert report
    assert set(report.rows["halve"]) == {"transpose", "differences", "second", "third"}


def test_an_error_in_the_function_is_a_finding_or_raised_at_once():
    def only_once(x, calls=[]):  # noqa: B006
        calls.append(x)
        if len(calls) > 3:
            raise ZeroDivisionError("too often")
        return x

    report = pb.certify(only_once, X)
    assert not report
    assert "raised ZeroDivisionError: too often" in str(report)
    with pytest.raises(ZeroDivisionError):
        pb.certify(lambda x: 1 // 0, X)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pb.certify(pb.sin, 2), DtypeError, "no argument is a float"),
        (lambda: pb.certify(pb.argmax, X), DtypeError, "returns no float"),
        (lambda: certify_ops(["sin", "nonsense"]), ArgumentError, "nonsense"),
    ],
)
def test_errors_say_what_is_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_nan_is_a_failure_unless_both_say_so():
    assert relative_distance(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == 0
    assert relative_distance(np.array([np.nan]), np.array([1.0])) == np.inf
    assert relative_distance(np.array([np.inf]), np.array([np.inf])) == 0
    assert relative_distance(np.ones(2), np.ones(3)) == np.inf
    assert relative_distance(np.array([True]), np.array([False])) == 1
    report = Certificate(("value",))
    report.add(Outcome("f", "value", "here", float("nan"), 1.0, "nothing"))
    assert not report
    assert json.loads(report.json())["rows"]["f"]["value"]["worst"] is None


@pytest.mark.parametrize(
    "name", ["sin", "matmul", "where", "fft", "max", "getitem", "solve", "gammainc", "equal", "conj"]
)
def test_ops_are_certified_in_each_dtype(name):
    report = certify_ops([name])
    assert report, str(report)
    assert report.rows[name]["spec"].cases >= len(load_all_ops()[name].samples(np.random.default_rng(0)))


@pytest.mark.slow
@pytest.mark.sweep
def test_every_op_is_certified():
    report = certify_ops()
    assert report, "\n".join(report.verdict_lines())


def test_few_exceptions_with_reasons():
    assert len(EXCEPTIONS) <= 10
    for name, (roles, why) in EXCEPTIONS.items():
        assert name in load_all_ops()
        assert set(roles) <= {role.name for role in ROLES}
        assert why in PAGE.read_text().replace("\\|", "|")


def ops_at_the_start():
    """Some ops are made by order when they are first asked for, as tests do."""
    program = "from pullback.ops import load_all_ops; print(*sorted(load_all_ops()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_page_has_every_op_and_no_failure():
    page = PAGE.read_text()
    table = page.split(MARK)[1].strip()
    verdict, heading, _, *rows = [line for line in table.splitlines() if line]
    assert heading == f"| op | {' | '.join(role.name for role in ROLES)} |"
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == ops_at_the_start()
    assert f"of {len(rows)} ops, 0 failures" in verdict
    assert "failed" not in table
    assert all(f"| `{role.name}` |" in page for role in ROLES)


def test_forty_digits_are_asked_where_mpmath_knows_the_function():
    known = [name for name, op in load_all_ops().items() if op.differentiable and scalar_function(op)]
    assert len(known) >= 120
    report = certify_ops(["tanh", "logaddexp", "lgamma"], ["float64"])
    assert [report.rows[name]["digits"].cases for name in ("tanh", "logaddexp", "lgamma")] == [1, 1, 1]


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=80)


def test_command_prints_and_writes_the_table(console, tmp_path):
    page, data, text = tmp_path / "page.md", tmp_path / "data.json", tmp_path / "data.txt"
    page.write_text(f"# Before\n{MARK}\nold\n{MARK}\nafter\n")
    words = [
        "certify",
        "exp",
        "flip",
        "--dtype",
        "float64",
        *(w for p in (page, data, text) for w in ("--write", str(p))),
    ]
    assert cli.main(words, console) == 0
    assert "0 failures" in console.file.getvalue()
    assert page.read_text().startswith(f"# Before\n{MARK}\n")
    assert page.read_text().endswith(f"{MARK}\nafter\n")
    assert "old" not in page.read_text()
    assert "| exp | 5 | 5 |" in page.read_text()
    assert json.loads(data.read_text())["rows"]["exp"]["transpose"]["cases"] == 5
    assert text.read_text().splitlines()[0].split()[:2] == ["op", "value"]
    assert cli.main([*words, "--write", str(tmp_path / "new.md")], console) == 0
    assert (tmp_path / "new.md").read_text().startswith(MARK)


def test_command_fails_where_something_fails(console, monkeypatch):
    failed = Certificate(("value",))
    failed.add(Outcome("f", "value", "here", 1.0, 0.0, "wrong"))
    monkeypatch.setattr(cli, "certify_ops", lambda *args, **others: failed)
    assert cli.main(["certify"], console) == 1
    assert "wrong" in console.file.getvalue()


def test_command_knows_ops_by_name(console):
    assert cli.main(["certify", "nonsense"], console) == 2
    assert "nonsense" in console.file.getvalue()
    assert DTYPES == ("float64", "float32", "complex128")


def test_a_device_is_certified_against_the_cpu(console):
    """The CPU stands for the device: what is compared, and what is left out, is the same."""
    report = certify_ops(["sin", "svd", "equal", "random_bits"], ["float64", "complex128"], device_roles("cpu"))
    assert report, str(report)
    assert report.rows["sin"].keys() == {"on cpu", "compiled on cpu"}
    assert report.rows["sin"]["on cpu"].cases == 5  # nothing in complex numbers
    assert cli.main(["certify", "sin", "--device", "cpu", "--dtype", "float32"], console) == 0
    assert "compiled on cpu" in console.file.getvalue()


def test_a_device_of_a_function_adds_two_roles():
    report = pb.certify(lambda x, n, k: pb.sin(x)[:n] * k, X, 2, np.arange(2), device="cpu")
    assert report, str(report)
    assert list(report.rows["<lambda>"])[-2:] == ["on cpu", "compiled on cpu"]
    looping = pb.certify(halve, 1.5, device="cpu")
    assert "on cpu" in looping.rows["halve"]
    assert "compiled on cpu" not in looping.rows["halve"]


def test_an_unknown_device_is_refused(console):
    with pytest.raises(DeviceError, match="no device 'tpu'"):
        device_roles("tpu")
    assert cli.main(["certify", "sin", "--device", "tpu"], console) == 2
    assert "tpu" in console.file.getvalue()
