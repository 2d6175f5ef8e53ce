"""A profile as a page: a flame graph of phases, modules, lines and ops, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from ...arrays.text import format_seconds
from ...arrays.timing import BESIDE, GPU, STEP
from ..render.html_page import Page
from ..render.svg_plots import COLORS
from .events import PHASES, Event
from .summary import op_of

if TYPE_CHECKING:
    from .time_profile import Profile

#: Boxes narrower than this share of the whole are left out.
_LEAST = 5e-4
_STYLE = """<style>
.flame{position:relative;width:100%;font:12px system-ui,sans-serif;overflow:hidden;margin:1em 0}
.flame button{position:absolute;height:19px;box-sizing:border-box;border:0;padding:0;font:inherit;
text-indent:4px;text-align:left;
border-right:1px solid Canvas;border-bottom:1px solid Canvas;color:#fff;overflow:hidden;white-space:nowrap;
cursor:zoom-in} .flame button[hidden]{display:none}
.flame button:hover,.flame button:focus{filter:brightness(1.25);outline:none} :root{color-scheme:light dark}
.told{min-height:2.8em;font:13px ui-monospace,monospace;overflow-wrap:anywhere}
</style>"""
#: A box that is clicked fills the width, and the top one shows the whole again. Without scripts the picture stands sti.
_SCRIPT = """<script>
(() => {
  const flame = document.querySelector(".flame"), told = document.querySelector(".told");
  const boxes = [...flame.querySelectorAll("button")];
  const place = (box) => [+box.dataset.from, +box.dataset.width];
  const zoom = (chosen) => {
    const [from, width] = place(chosen);
    for (const box of boxes) {
      const [start, wide] = place(box);
      const left = Math.max((start - from) / width, 0), right = Math.min((start + wide - from) / width, 1);
      box.hidden = right - left < 1e-9;
      box.style.left = 100 * left + "%"; box.style.width = 100 * (right - left) + "%";
    }
  };
  for (const box of boxes) {
    box.onclick = () => zoom(box);
    box.onmouseenter = box.onfocus = () => { told.textContent = box.title; };
  }
})();
</script>"""


@dataclass(slots=True)
class Frame:
    """A box of the graph: the time of everything below it."""

    name: str
    phase: str
    ns: int = 0
    inside: dict[str, Frame] = field(default_factory=dict)


def build_tree(events: Sequence[Event]) -> Frame:
    """Time by phase, module, line, op and, for programs, step."""
    root = Frame("everything", "")
    for event in events:
        if event.own <= 0 or event.kind in (BESIDE, GPU):
            continue
        root.ns += event.own
        at = root
        for name in _path_of(event):
            at = at.inside.setdefault(name, Frame(name, event.phase))
            at.ns += event.own
    return root


def _path_of(event: Event) -> Iterator[str]:
    yield event.phase
    # a dot may be in a name of a list's element, so that the parts of a path are those between dots
    yield from event.module.split(".") if event.module else ()
    yield event.line or "(unknown line)"
    yield op_of(event)
    if event.kind == STEP:
        yield event.name


def _boxes(root: Frame) -> Iterator[tuple[Frame, int, int]]:
    """(frame, depth, nanoseconds left of it), those that can be seen."""
    waiting = [(root, 0, 0)]
    while waiting:
        frame, depth, left = waiting.pop()
        yield frame, depth, left
        for inner in sorted(frame.inside.values(), key=lambda f: -f.ns):
            if inner.ns >= _LEAST * root.ns:
                waiting.append((inner, depth + 1, left))
            left += inner.ns


def draw_flame(events: Sequence[Event]) -> str:
    """The graph as HTML."""
    root = build_tree(events)
    whole = max(root.ns, 1)
    boxes = list(_boxes(root))
    height = 20 * (1 + max(depth for _, depth, _ in boxes))
    drawn = "".join(_draw_box(frame, depth, left, whole) for frame, depth, left in boxes)
    return f'{_STYLE}<div class="flame" style="height:{height}px">{drawn}</div><div class="told"></div>{_SCRIPT}'


def _draw_box(frame: Frame, depth: int, left: int, whole: int) -> str:
    color = COLORS[PHASES.index(frame.phase)] if frame.phase else "#6f7379"
    share = frame.ns / whole
    title = escape(f"{frame.name}: {format_seconds(frame.ns * 1e-9)}, {share:.1%}", quote=True)
    return (
        f'<button title="{title}" data-from="{left / whole:.8f}" data-width="{share:.8f}" '
        f'style="left:{100 * left / whole:.6f}%;width:{100 * share:.6f}%;top:{20 * depth}px;background:{color}">'
        f"{escape(frame.name)}</button>"
    )


def flame_page(profile: Profile) -> str:
    """The page of a profile."""
    page = Page("Profile")
    page.text(profile.title())
    page.parts.append(draw_flame(profile.events))
    page.note(
        "By phase, module, line and op, as wide as their own time. Click a box to enlarge it, the top one to return."
    )
    for by in ("line", "op", "module"):
        page.heading(f"By {by}")
        head, *rows = profile.table_rows(by, 40)
        page.table(head, rows, numbers=range(len(head) - 1))
    if any(e.program for e in profile.events):
        page.heading("Steps of compiled programs")
        head, *rows = profile.table_rows("step", 200)
        page.table(head, rows, numbers=range(6))
    return page.html()
