"""The gallery of examples: the directive `gallery` for cards with pictures, and a page with the code of each script.

The examples run in a process of their own while Sphinx reads and writes pages; their pictures are put into the finished
pages. Pictures are kept until an example or the package changes.
"""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import pullback

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CARD = re.compile(r"^(\w+): (.*)$")
PICTURE = re.compile(r"<!--(picture|output):(\w+)-->")


class Gallery(SphinxDirective):
    """Cards, one a line of the body: `script: what it does`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        cards = [CARD.fullmatch(line) for line in self.content if line.strip()]
        if None in cards:
            raise self.error("a line of a gallery is `script: what it does`.")
        html = "".join(card_html(*card.groups()) for card in cards)
        return [nodes.raw("", f'<div class="gallery">{html}</div>', format="html")]


def card_html(name: str, text: str) -> str:
    words = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
    return (
        f'<a class="card" href="examples/{name}.html"><span class="picture"><!--picture:{name}--></span>'
        f"<strong>{name}</strong><span>{words}</span></a>"
    )


def start(app: Sphinx) -> None:
    """Write the pages of the examples, and begin to run those whose pictures are not known."""
    folder = Path(app.srcdir) / "examples"
    folder.mkdir(exist_ok=True)
    for path in EXAMPLES.glob("*.py"):
        page, text = folder / f"{path.stem}.md", example_page(path)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
    app.pictures = Path(app.doctreedir) / "gallery" / sources_digest()
    app.drawing = None
    if app.builder.format == "html" and not app.pictures.exists():
        shutil.rmtree(app.pictures.parent, ignore_errors=True)
        (app.pictures.parent / "unfinished").mkdir(parents=True)
        command = [
            sys.executable,
            str(Path(__file__).with_name("pictures.py")),
            str(app.pictures.parent / "unfinished"),
        ]
        app.drawing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def example_page(path: Path) -> str:
    """The docstring, the picture and what was printed, and the code."""
    tree = ast.parse(path.read_text())
    summary, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    has_picture = f"def {path.stem}(" in Path(__file__).with_name("pictures.py").read_text()
    shown = f'<div class="example"><!--picture:{path.stem}--><!--output:{path.stem}--></div>'
    parts = [f"# {path.stem}.py", "[All examples](../examples.md)", summary, text]
    parts += [f"```{{raw}} html\n{shown}\n```"] if has_picture else []
    code = f"```{{literalinclude}} ../../examples/{path.name}\n:language: python\n:lines: {tree.body[1].lineno}-\n```"
    return "\n\n".join(["---\norphan: true\n---", *filter(None, parts), code]) + "\n"


def sources_digest() -> str:
    """What the pictures depend on, as a name."""
    digest = hashlib.sha256()
    folders = (EXAMPLES, Path(__file__).parent, Path(pullback.__file__).parent)
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def finish(app: Sphinx, failed: Exception | None) -> None:
    """Wait for the pictures, and put them into the pages."""
    drawing, app.drawing = app.drawing, None  # a build that fails for its warnings ends twice
    if drawing is not None:
        if failed:
            drawing.kill()
        _, errors = drawing.communicate()
        if drawing.returncode and not failed:
            raise ExtensionError(f"the pictures of the examples failed:\n{errors}")
    if failed or app.builder.format != "html":
        return
    if drawing is not None:
        (app.pictures.parent / "unfinished").rename(app.pictures)
    for page in (Path(app.outdir) / "examples.html", *(Path(app.outdir) / "examples").glob("*.html")):
        page.write_text(PICTURE.sub(lambda found: shown_in(app.pictures, *found.groups()), page.read_text()))


def shown_in(folder: Path, kind: str, name: str) -> str:
    if kind == "picture":
        return (folder / f"{name}.svg").read_text()
    return f"<pre>{escape((folder / f'{name}.txt').read_text().rstrip())}</pre>"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("gallery", Gallery)
    app.connect("builder-inited", start)
    app.connect("build-finished", finish, priority=400)  # before the pages are checked
    return {"parallel_read_safe": True}
