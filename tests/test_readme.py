"""Every Python block in the README and the docs runs, and prints what its `# -> ` comments say."""

import ast
import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXPECTED = re.compile(r"  # -> (.*)$", re.MULTILINE)
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if BLOCK.search(path.read_text()))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: Settings for examples that take longer by default than a test should.
SMALLER: dict[str, dict[str, int]] = {
    "deep_equilibrium.py": {"epochs": 8},
    "maml.py": {"steps": 600},
    "pinn.py": {"steps": 800},
    "transformer.py": {"steps": 600},
    "wgan_gp.py": {"rounds": 1600},
}


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
    namespace: dict[str, object] = {}
    for block in blocks(page):
        run(block, page, namespace)


def test_a_wrong_comment_is_noticed():
    with pytest.raises(AssertionError, match="README"):
        run("print(1 + 1)  # -> 3", ROOT / "README.md", {})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, capsys, monkeypatch):
    """Each says by an assertion of its own whether it worked."""
    monkeypatch.syspath_prepend(str(example.parent))  # as for a script: one example imports another file
    runpy.run_path(str(example))["main"](**SMALLER.get(example.name, {}))
    assert capsys.readouterr().out


def test_readme_links_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []
