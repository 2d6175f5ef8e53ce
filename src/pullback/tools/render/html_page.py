"""`Page`: one self-contained HTML page, without scripts, fonts or pictures from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from ...arrays.html_text import html_table
from ...errors import ArgumentError

_STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:1080px;margin:2em auto;padding:0 1.2em}
h1{font-size:1.7em;margin-bottom:.2em} h2{font-size:1.2em;margin-top:2em;border-bottom:1px solid #e4e4e0}
table{border-collapse:collapse;font-size:13px} td,th{padding:3px 14px 3px 0;text-align:left;vertical-align:top}
th{border-bottom:1px solid #999} td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
pre{background:#f7f7f5;padding:12px;overflow:auto;font:12px/1.4 ui-monospace,monospace}
svg{max-width:100%;height:auto} .wide{overflow:auto}
.side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:1em}
"""


@dataclass(slots=True)
class Page:
    """A page that is written from the top down. Text is escaped: markup in it is shown, not interpreted.

    >>> page = Page("Result")
    >>> page.heading("Loss")
    >>> page.text("1 < 2")
    >>> "1 &lt; 2" in page.html()
    True
    """

    title: str
    parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        self.parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def pictures(self, *svgs: str) -> None:
        """SVG texts side by side, as far as there is room."""
        inside = "\n".join(f"<div>{svg}</div>" for svg in svgs)
        self.parts.append(f'<div class="side">{inside}</div>')

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> None:
        """A table; columns in `numbers` are right-aligned."""
        self.parts.append(html_table(head, rows, numbers, most=None))

    def html(self) -> str:
        """The page as text."""
        title = escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
            f"<body><h1>{title}</h1>\n" + "\n".join(self.parts) + "\n</body></html>\n"
        )

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.html(), encoding="utf-8")


def write_by_suffix(path: str | Path, writers: Mapping[str, Callable[[], str]]) -> None:
    """Write a report to a file in the form that its suffix names."""
    writer = writers.get(Path(path).suffix.lower())
    if writer is None:
        raise ArgumentError(f"save: wants a name that ends in {', '.join(writers)}, got {str(path)!r}.")
    Path(path).write_text(writer(), encoding="utf-8")
