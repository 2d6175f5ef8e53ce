"""Every Python block in the README and the docs runs, and prints what its `# -> ` comments say."""

import ast
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import cuda_emulator
import fake_cuda_driver
import gpu
import pytest
from pages import read_picture

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXPECTED = re.compile(r"  # -> (.*)$", re.MULTILINE)
PAGES = sorted(
    path
    for folder in ("docs", "docs/tutorial")
    for path in (ROOT / folder).glob("*.md")
    if BLOCK.search(path.read_text())
)
#: The first line of a page whose code runs on a GPU only, or emulated.
NEEDS_GPU = "<!-- The code of this page needs a GPU. -->\n"
#: The same where it needs other libraries, which then run in a process of their own.
NEEDS_PEERS = "<!-- The code of this page needs PyTorch and JAX. -->\n"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXTENSIONS = ROOT / "docs" / "_extensions"


def blocks(page: Path) -> list[str]:
    """The page's Python blocks, each padded with empty lines so that tracebacks show the line of the page."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in BLOCK.finditer(text)]


def run(block: str, page: Path, namespace: dict[str, object]) -> None:
    """Runs the block statement by statement, and compares what each prints with the comments in its lines."""
    for statement in ast.parse(block).body:
        expected = EXPECTED.findall("\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno]))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(ast.Module([statement], []), str(page), "exec"), namespace)
        if expected:
            assert printed.getvalue().rstrip().split("\n") == expected, f"{page.name}:{statement.lineno}"


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "README.md"))))
def test_readme_blocks_stand_alone(number):
    run(blocks(ROOT / "README.md")[number], ROOT / "README.md", {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_docs_pages_run_top_to_bottom(page):
    if page.read_text().startswith(NEEDS_PEERS):
        run_beside(page)
        return
    namespace: dict[str, object] = {}
    with gpu_or_emulator() if page.read_text().startswith(NEEDS_GPU) else contextlib.nullcontext():
        for block in blocks(page):
            run(block, page, namespace)


def run_beside(page: Path) -> None:
    """Run a page in another process, whose threads and settings are its own."""
    missing = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
    if missing:
        assert os.environ.get("PULLBACK_TEST_PEERS") != "required", f"{missing} are missing"
        pytest.skip(f"{missing} are not installed")
    lines = f"import test_readme as t; n = {{}}; p = t.Path({str(page)!r}); [t.run(b, p, n) for b in t.blocks(p)]"
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT / "tests", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]


def gpu_or_emulator() -> contextlib.AbstractContextManager[object]:
    """CuPy, of a GPU or emulated."""
    if gpu.REAL:
        return contextlib.nullcontext()
    if not cuda_emulator.has_compiler():
        pytest.skip("no GPU, and no g++ to emulate one")
    return fake_cuda_driver.installed()


def test_a_wrong_comment_is_noticed():
    with pytest.raises(AssertionError, match="README"):
        run("print(1 + 1)  # -> 3", ROOT / "README.md", {})


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # as for a script: one example imports another file
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    import pictures

    return pictures


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run_and_have_pictures(example, capsys, pictures):
    """Each says by an assertion of its own whether it worked; its picture shows what it found."""
    names, found = pictures.run_example(example)
    assert capsys.readouterr().out
    if example.stem != "kalman_numpy":  # shown as a part of another
        read_picture(pictures.PICTURES[example.stem](names, found))


def test_the_gallery_shows_every_example():
    cards = re.findall(r"^(\w+): ", (ROOT / "docs" / "examples.md").read_text(), re.MULTILINE)
    assert sorted([*cards, "kalman_numpy"]) == [example.stem for example in EXAMPLES]


def test_readme_links_lead_somewhere():
    targets = re.findall(r"(?:\]\(|src=\"|href=\")(?!https?:)([^)#\"]+)", (ROOT / "README.md").read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_links_of_pages_lead_somewhere():
    """The build of the docs checks anchors too; this finds a page that is gone in a second."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorial").glob("*.md")]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([\w./-]+\.md)", page.read_text())]
    assert len(links) > 100
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("words", ["tutorial", "recompile", "gradient clipping", "backprop", "mixed precision"])
def test_words_that_people_search_for_are_in_the_docs(words):
    assert any(words in page.read_text().lower() for page in (ROOT / "docs").rglob("*.md"))


def test_chapters_of_the_tutorial_are_short():
    chapters = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
    assert len(chapters) == 10
    assert [page.name for page in chapters if len(page.read_text().splitlines()) > 80] == []


def test_the_figure_of_the_readme_shows_the_measured_tables(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    import charts

    assert charts.FIGURE.read_text() == charts.standalone("step-times"), "run python docs/_extensions/charts.py"
    assert charts.README.read_text() == charts.with_description(charts.README.read_text())
    read_picture(charts.standalone("step-times"))
