"""Checks of the finished pages, which stop the build: none is large, and no link between them leads nowhere."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LARGEST = 300_000
LINK = re.compile(r'<a [^>]*href="([^"#:?]*)(?:#([^"]*))?"')


def check_pages(app: Sphinx, failed: Exception | None) -> None:
    """No page takes longer to load than a phone's owner waits, and every link leads somewhere."""
    root = Path(app.outdir)
    (root / "genindex-all.html").unlink(missing_ok=True)  # it is there by letters too
    pages = sorted(root.rglob("*.html"))
    large = [name_in(root, page) for page in pages if page.stat().st_size > LARGEST]
    if failed or app.builder.format != "html":
        return
    if large:
        raise ExtensionError(f"pages of more than {LARGEST // 1000} KB: {', '.join(large)}; split them.")
    broken = [f"{name_in(root, page)}: {link}" for page in pages for link in broken_links(page)]
    if broken:
        raise ExtensionError(f"{len(broken)} links lead nowhere: {'; '.join(broken[:20])}")


def broken_links(page: Path) -> Iterator[str]:
    """The links in the text of a page whose page or place is not there. (Themes make the other links.)"""
    _, _, text = page.read_text().partition("<article")
    for target, place in set(LINK.findall(text.partition("</article>")[0])):
        other = (page.parent / unquote(target)).resolve() if target else page
        if not other.exists() or (place and other.suffix == ".html" and unquote(place) not in places_in(other)):
            yield f"{target}#{place}"


@cache
def places_in(page: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="([^"]*)"', page.read_text()))


def name_in(root: Path, page: Path) -> str:
    return page.relative_to(root).as_posix()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", check_pages)
    return {"parallel_read_safe": True}
