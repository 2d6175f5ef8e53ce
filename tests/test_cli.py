"""The commands of `pullback`, run in this process: what they print and what they return."""

import io
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import pullback as pb
from pullback import cli
from pullback.compile import cache as code
from pullback.data import digits
from pullback.ops import load_all_ops
from pullback.program.passes import PASSES
from pullback.tools import gpu_check
from pullback.tools.compile_stages import parse_arguments


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=80)


def printed(console):
    return console.file.getvalue()


def test_doctor_names_what_it_finds(console):
    assert cli.main(["doctor"], console) == 0
    assert [part.name for part in cli.COMPONENTS if part.name not in printed(console)] == []
    assert np.__version__ in printed(console)


def missing():
    raise ModuleNotFoundError("No module named 'elsewhere'")


def broken():
    raise RuntimeError("driver [too] old")


def test_doctor_says_how_to_get_what_is_missing_and_survives_what_is_broken(console, monkeypatch):
    parts = (cli.Component("A", missing, "nothing", extra="jit"), cli.Component("B", broken, "nothing"))
    monkeypatch.setattr(cli, "COMPONENTS", parts)
    assert cli.main(["doctor"], console) == 0
    assert "not installed (extra jit)" in printed(console)
    assert "pip install 'pullback[NAME]'" in printed(console)
    assert "RuntimeError: driver [too] old" in printed(console)


def test_doctor_tries_the_gpu_where_there_is_one(console, monkeypatch):
    monkeypatch.setattr(cli, "count_gpus", lambda: 0)
    assert cli.main(["doctor"], console) == 0
    assert "everything runs on the CPU" in printed(console)
    monkeypatch.setattr(cli, "count_gpus", lambda: 1)
    monkeypatch.setattr(gpu_check, "describe_versions", missing)
    monkeypatch.setattr(gpu_check, "DEVICE", "cpu")  # stands for the GPU: the same programs are compiled and compared
    assert cli.main(["doctor"], console) == 1  # CuPy is missing, which is said
    found = {finding.name: finding for finding in gpu_check.check_gpu()}
    assert not found["versions"].ok
    assert all(found[name].found.startswith("right to") for name in ("kernel", "product", "graph"))


def test_doctor_notices_a_wrong_result(monkeypatch):
    monkeypatch.setattr(gpu_check, "DEVICE", "cpu")
    monkeypatch.setattr(gpu_check, "jit", lambda f: lambda *args: f(*args) * 1.001)
    with pytest.raises(ArithmeticError, match="off by"):
        gpu_check.check_product()
    calls = iter(range(9))
    monkeypatch.setattr(gpu_check, "jit", lambda f: lambda *args: f(*args) + np.float32(1e-6) * next(calls))
    with pytest.raises(ArithmeticError, match="different bits"):
        gpu_check.check_kernel()


def test_ops_lists_every_record(console):
    assert cli.main(["ops"], console) == 0
    listed = {line.split()[0] for line in printed(console).splitlines() if line.split()}
    assert set(load_all_ops()) <= listed
    assert {"mean", "std", "median", "logsumexp", "linalg.norm", "nn.cross_entropy", "nn.conv2d"} <= listed


def test_no_command_prints_the_help(capsys):
    assert cli.main([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_misspelt_commands_get_a_guess(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["docter"])
    assert "Did you mean doctor?" in capsys.readouterr().err


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "pullback", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"pullback {pb.__version__}"


@pytest.mark.parametrize("words", [["unknown"], ["demo", "--steps", "0"]])
def test_wrong_words_end_with_a_usage_message(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "usage: pullback" in capsys.readouterr().err


def test_version_is_the_one_of_the_project(capsys):
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"pullback {project['version']}\n"


def test_digits_are_what_they_say():
    images, labels = digits()
    assert (images.shape, images.dtype, images.min(), images.max()) == ((1797, 64), np.float32, 0, 1)
    assert (labels.shape, np.bincount(labels).min(), len(np.bincount(labels))) == ((1797,), 174, 10)


def test_the_package_imports_nothing_heavy():
    code = "import sys, pullback; print({'rich', 'cupy', 'llvmlite', 'mpi4py', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


NETWORK = """
import pullback as pb

def loss(w, x, power=2.0, how="tanh"):
    return pb.mean(getattr(pb, how)(x @ w["a"] + w["b"]) ** power)

step = pb.jit(pb.grad(loss))
"""
SPECS = "{a: float32[8, 4], 'b': float32[4]} float32[3,8]"


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "network.py"
    path.write_text(NETWORK)
    return str(path)


def test_compile_prints_the_passes_there_are(console):
    assert cli.main(["compile", "--show", "passes"], console) == 0
    assert [line.split()[0] for line in printed(console).splitlines()] == [run.__name__ for run in PASSES]


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("explain", ["product", "tanh"]), ("graph", ["graph(x0: float32[8, 4]", "matmul"]), ("kernels", ["for each"]),
        ("llvm", ["define void @run0"]), ("assembly", ["run0:"]), ("memory", ["peak", "bytes"]),
        ("passes", ["staged", "drop_unused"]),
    ],
)  # fmt: skip
def test_compile_shows_each_stage(console, network, stage, words):
    pytest.importorskip("llvmlite")
    assert cli.main(["compile", f"{network}:step", "--args", SPECS, "--show", stage], console) == 0
    assert [word for word in words if word not in printed(console)] == []


def test_compile_takes_settings_and_numbers(console, network):
    pytest.importorskip("llvmlite")
    assert cli.main(["compile", f"{network}:loss", "--args", SPECS + " 3.0, 'sin'"], console) == 0
    assert "sin" in printed(console)


@pytest.mark.parametrize(
    ("target", "specs", "said"),
    [
        ("nowhere.py:f", "", "no file nowhere.py"), ("nothing", "", "FILE.py:function"), (None, "", "which function"),
        ("no.such.module:f", "", "No module named"), ("math:tau", "", "math has no function tau"),
        ("pullback:sin", "float33[2]", "'float33' is not a dtype"), ("pullback:sin", "float32[", "cannot read"),
        ("pullback:sin", "float32[-1]", "cannot read"), ("pullback:sin", "float32[2.5]", "cannot read"),
    ],
)  # fmt: skip
def test_compile_says_what_it_cannot_find_or_read(console, target, specs, said):
    words = ["compile", *([] if target is None else [target]), "--args", specs]
    assert cli.main(words, console) == 2
    assert said in printed(console)


def test_arguments_are_read_as_graphs_write_them():
    a, b, (c, d), e, f = parse_arguments("float32[2, 3] int64[], (bool[4], [complex64[0]]) {x: float} -0.5")
    assert (a.shape, a.dtype, b.shape, b.dtype) == ((2, 3), np.float32, (), np.int64)
    assert (c.shape, c.dtype, d[0].shape, d[0].dtype) == ((4,), bool, (0,), np.complex64)
    assert (e, f) == ({"x": 1.0}, -0.5)


@pytest.mark.parametrize(
    ("function", "specs", "said"),
    [
        ("loss", "", ["loss(w, x, power=2.0, how='tanh') was given no arguments", "'w'", "--args"]),
        ("step", "float32[3]", ["was given 1 argument", "'x'"]),
        ("loss", "1 2 3 4 5", ["given 5 arguments: too many"]),
        ("loss", SPECS + " 2.0 'nothing'", ["AttributeError", "nothing", "network.py:5"]),
    ],
)
def test_compile_with_wrong_arguments_says_so(console, network, function, specs, said):
    assert cli.main(["compile", f"{network}:{function}", "--args", specs], console) == 2
    assert [word for word in said if word not in printed(console).replace("\n", "")] == []
    assert "Traceback" not in printed(console)


def test_export_writes_a_library_of_c(console, tmp_path):
    pytest.importorskip("llvmlite")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler links libraries")
    (tmp_path / "own.py").write_text(
        "import pullback as pb\ndef score(x): return pb.sum(pb.tanh(x))\ndef broken(x): return x.nothing\n"
    )
    target, own = str(tmp_path / "score"), tmp_path / "own.py"
    command = ["export", f"{own}:score", "--args", "float32[3]", "--to", target]
    assert cli.main([*command, "--gradient", "--cpu", "native"], console) == 0
    assert "int score_gradient(" in printed(console)
    assert all((tmp_path / name).exists() for name in ("score.h", "score.o"))
    assert cli.main([*command[:-1], f"{tmp_path}/no-name"], console) == 2
    assert "is no" in printed(console)
    assert cli.main(["export", f"{own}:nothing", "--to", target], console) == 2
    assert cli.main(["export", f"{own}:broken", "--args", "float32[3]", "--to", target], console) == 2
    assert "export: AttributeError" in printed(console)


def test_compile_survives_a_file_that_fails(console, tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\nraise ValueError('no data')\n")
    assert cli.main(["compile", f"{tmp_path / 'broken.py'}:f"], console) == 2
    assert "ValueError: no data" in printed(console)
    assert "broken.py:2" in printed(console).replace("\n", "")


def test_ops_can_be_filtered_and_shows_all_columns(console):
    assert cli.main(["ops", "sinh", "matmul"], console) == 0
    rows = [line.split() for line in printed(console).splitlines()]
    assert {"sinh", "asinh", "matmul"} <= {row[0] for row in rows if row}
    assert "cos" not in {row[0] for row in rows if row}
    heading = next(row for row in rows if row[:1] == ["op"])
    assert heading == ["op", "family", "forward", "reverse", "kernel", "autocast", "samples"]


def test_doctor_names_every_extra_there_is(console):
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    named = {word for part in cli.COMPONENTS for word in part.extra.split(" or ") if word}
    assert named == project["optional-dependencies"].keys() - {"all", "dev"}
    assert cli.main(["doctor"], console) == 0
    assert "to come" not in printed(console)


def test_cache_names_the_functions(monkeypatch, tmp_path):
    pytest.importorskip("llvmlite")
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))

    def stretch_by_a_name(x):
        return pb.sum(pb.tanh(x) * 3.25)

    pb.jit(stretch_by_a_name)(np.ones(37))
    (label,) = {f.label() for f in code.list_files()} - {""}
    assert label == "stretch_by_a_name(float64[37])"
    wide = Console(file=io.StringIO(), width=160)
    assert cli.main(["cache"], wide) == 0
    assert label in printed(wide)
    (file,) = [f for f in code.list_files() if f.label()]
    file.path.write_bytes(file.path.read_bytes()[:100])
    assert file.label() in label, "a file that was cut short is no error"


def test_labels_of_any_length_are_stored(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    token = code.LABEL.set("é" * 1000)
    try:
        code.store("cd" * 32, b"code")
    finally:
        code.LABEL.reset(token)
    assert code.fetch("cd" * 32) == b"code"
    assert [f.label() for f in code.list_files()] == ["é" * 127]


def test_cache_lists_and_clears(console, monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    code.store("ab" * 32, bytes(500))
    assert cli.main(["cache"], console) == 0
    assert all(word in printed(console) for word in ("abababababab", "seconds ago", "1 programs", str(tmp_path)[:40]))
    assert cli.main(["cache", "clear"], console) == 0
    assert "Removed 1 programs" in printed(console)
    assert code.list_files() == []


def test_cache_says_when_it_is_not_used(console, monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "off")
    assert cli.main(["cache"], console) == 0
    assert "turns it off" in printed(console)
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    (tmp_path / "code").mkdir()
    (tmp_path / "code").chmod(0o777)
    assert cli.main(["cache", "clear"], console) == 1
    assert "others may write to it" in printed(console)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0 seconds ago"), (119, "119 seconds ago"), (7000, "117 minutes ago"), (9e5, "10 days ago")],
)
def test_ages_are_said_in_their_largest_unit(seconds, said):
    assert cli.format_age(seconds) == said
