"""How the docs are built: `sphinx -W -b html docs build/docs`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import pullback

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "pullback"
version = release = pullback.__version__
copyright = "the pullback authors"
extensions = ["myst_parser", "reference", "charts", "foreign"]
exclude_patterns = ["_extensions", "_templates"]
nitpicky = True
html_theme = "furo"
html_title = f"pullback {version}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["pullback.css"]
html_split_index = True  # by letters; the page of all names is removed below
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3


def check_sizes(app: Sphinx, failed: Exception | None) -> None:
    """No page takes longer to load than a phone's owner waits."""
    pages = Path(app.outdir)
    (pages / "genindex-all.html").unlink(missing_ok=True)
    large = [str(page.relative_to(pages)) for page in pages.rglob("*.html") if page.stat().st_size > 300_000]
    if large and not failed:
        raise ExtensionError(f"pages of more than 300 KB: {', '.join(large)}; split them.")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", check_sizes)
