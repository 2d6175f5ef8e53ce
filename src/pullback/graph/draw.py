"""Drawings of programs, or of cards with edges: SVG or DOT text, or a self-contained HTML page around the former."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arrays.backends import is_array
from ..arrays.html_text import html_block, html_folded, html_image
from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..errors import ArgumentError
from ..program.ir import Program, Symbol
from ..program.text import format_program, format_spec
from .dot_text import write_dot
from .draw_layout import Box, DrawingLayout, lay_out

_HEIGHT, _LAYER_STEP, _MARGIN, _CHARACTER_WIDTH = 38.0, 78.0, 20.0, 6.7
#: A notebook draws programs of no more equations.
_MOST_DRAWN = 120
#: What a file is by the ending of its name.
FORMS = {".svg": "svg", ".html": "html", ".htm": "html", ".dot": "dot", ".gv": "dot"}
_COLORS = {
    "input": "#d7e8fa", "output": "#fae3c8", "elementwise": "#e4f2dc", "reduction": "#f6d9d9", "contraction": "#e6dcf5",
    "linear": "#f2efe0", "custom": "#fbe0ef",
}  # fmt: skip
_STYLE = """
.node rect{stroke:#555;stroke-width:1;rx:5}
.node text{font:12px ui-monospace,monospace;text-anchor:middle;fill:#111}
.node .spec{fill:#666;font-size:10px}
.edge{fill:none;stroke:#999;stroke-width:1.2}
.lit{stroke:#d33;stroke-width:2.4}
"""
_HTML_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>graph</title><style>
body{{margin:0;font-family:system-ui,sans-serif;display:flex;height:100vh}}
#view{{flex:2;overflow:hidden;cursor:grab;background:#fff}} #view svg{{transform-origin:0 0}}
pre{{flex:1;overflow:auto;margin:0;padding:12px;background:#f7f7f5;font:12px ui-monospace,monospace}}
</style></head><body><div id="view">{svg}</div><pre>{text}</pre><script>
const view=document.getElementById('view'),svg=view.firstElementChild;let x=0,y=0,k=1,held=null;
const put=()=>svg.style.transform=`translate(${{x}}px,${{y}}px) scale(${{k}})`;
view.onwheel=e=>{{e.preventDefault();const f=Math.exp(-e.deltaY/500),p=e.clientX,q=e.clientY;
  x=p-(p-x)*f;y=q-(q-y)*f;k*=f;put()}};
view.onpointerdown=e=>{{held=[e.clientX-x,e.clientY-y]}};
window.onpointerup=()=>{{held=null}};
window.onpointermove=e=>{{if(held){{x=e.clientX-held[0];y=e.clientY-held[1];put()}}}};
for(const node of svg.querySelectorAll('.node')){{
  const edges=svg.querySelectorAll(`[data-from="${{node.id}}"],[data-to="${{node.id}}"]`);
  node.onmouseenter=()=>edges.forEach(e=>e.classList.add('lit'));
  node.onmouseleave=()=>edges.forEach(e=>e.classList.remove('lit'));
}}
</script></body></html>
"""


@dataclass(frozen=True, slots=True)
class DrawingCard:
    """What one box shows: two lines, the whole equation when pointed at, and its kind (an op's family, "input")."""

    label: str
    below: str
    hint: str
    kind: str

    @property
    def width(self) -> float:
        return max(60.0, _CHARACTER_WIDTH * 1.1 * max(len(self.label), 0.85 * len(self.below)) + 16)


def draw_program(program: Program, form: str) -> str:
    """A program as "svg", as "html" with its text beside, or as "dot"."""
    cards, edges = _make_cards(program)
    return draw_cards(cards, edges, format_program(program, data=False), form)


def draw_cards(cards: list[DrawingCard], edges: list[tuple[int, int]], text: str, form: str) -> str:
    """The same for cards in an order in which edges go from earlier to later ones."""
    if form == "dot":
        return write_dot(cards, edges, _COLORS)
    picture = _draw_svg(cards, edges, lay_out([c.width for c in cards], edges))
    return picture if form == "svg" else _HTML_PAGE.format(svg=picture, text=html.escape(text))


def program_html(program: Program, *more: str) -> str:
    """What a notebook shows of a program: its drawing, unless it is too large to be looked at, and its text."""
    text = html_folded("text", format_program(program, data=False))
    drawing = html_image(draw_program(program, "svg")) if len(program.equations) <= _MOST_DRAWN else ""
    return html_block(repr(program).strip("<>"), drawing, text, *more)


def save_drawing(program: Program, path: str | Path | None) -> str:
    """The drawing's text; written to a `.svg`, `.html` or `.dot` file if a path is given."""
    form = "svg" if path is None else FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise ArgumentError(f"draw: writes .svg, .html or .dot files, got {str(path)!r}.")
    picture = draw_program(program, form)
    if path is not None:
        Path(path).write_text(picture, encoding="utf-8")
    return picture


def _make_cards(program: Program) -> tuple[list[DrawingCard], list[tuple[int, int]]]:
    cards: list[DrawingCard] = []
    edges: list[tuple[int, int]] = []
    makers: dict[int, int] = {}
    lines = format_program(program, data=False).split("\n")
    for i, s in enumerate(program.inputs):
        makers[id(s)] = len(cards)
        cards.append(DrawingCard(f"input {i}", format_spec(s.spec), format_spec(s.spec), "input"))
    for e, line in zip(program.equations, lines[1:], strict=False):
        number = len(cards)
        edges += _edges_to(e.args, makers, number)
        makers |= {id(s): number for s in e.results}
        made = ", ".join(format_spec(s.spec) for s in e.results)
        cards.append(DrawingCard(_op_label(e.op.name, e.args), made, line.strip(), e.op.family))
    for i, o in enumerate(program.outputs):
        edges += _edges_to((o,), makers, len(cards))
        shown = "" if isinstance(o, Symbol) else _format_constant(o)
        cards.append(DrawingCard(f"output {i}", format_spec(spec_of(o)), shown or format_spec(spec_of(o)), "output"))
    return cards, edges


def _edges_to(args: Any, makers: dict[int, int], to: int) -> list[tuple[int, int]]:
    """An edge from each producer, a single one where an op takes a value twice."""
    return [(start, to) for start in dict.fromkeys(makers[id(a)] for a in args if id(a) in makers)]


def _op_label(name: str, args: tuple[Any, ...]) -> str:
    """The op, with its constants in their places."""
    if all(isinstance(a, Symbol) for a in args):
        return name[:40]
    return f"{name}({', '.join('·' if isinstance(a, Symbol) else _format_constant(a) for a in args)})"[:60]


def _format_constant(a: Any) -> str:
    if is_array(a) or isinstance(a, Value):
        return f"{a.item():.6g}" if is_array(a) and not a.ndim and a.dtype.kind == "f" else format_spec(spec_of(a))
    return f"{a:.6g}" if isinstance(a, float) else str(a)[:20]


def _draw_svg(cards: list[DrawingCard], edges: list[tuple[int, int]], layout: DrawingLayout) -> str:
    places = [box for layer in layout.layers for box in layer]
    width = max((b.x + b.width / 2 for b in places), default=0.0) + 2 * _MARGIN
    height = len(layout.layers) * _LAYER_STEP - (_LAYER_STEP - _HEIGHT) + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#999"/></marker></defs>',
    ]
    for (a, b), route in zip(edges, layout.routes, strict=True):
        lines.append(
            f'<path class="edge" data-from="n{a}" data-to="n{b}" marker-end="url(#tip)" d="{_edge_path(route)}"/>'
        )
    for i, (card, box) in enumerate(zip(cards, layout.boxes, strict=True)):
        lines.append(_draw_box(i, card, box))
    return "\n".join([*lines, "</svg>"])


def _box_top(box: Box) -> float:
    return _MARGIN + box.layer * _LAYER_STEP


def _edge_path(route: list[Box]) -> str:
    """Down from the first box, through the bends, to the last: each piece leaves and arrives upright."""
    x, y = route[0].x + _MARGIN, _box_top(route[0]) + _HEIGHT
    path = f"M{x:.1f} {y:.1f}"
    for box in route[1:]:
        to_x, to_y = box.x + _MARGIN, _box_top(box)
        half = (y + to_y) / 2
        path += f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}"
        if box is not route[-1]:
            path += f"V{to_y + _HEIGHT:.1f}"
        x, y = to_x, to_y + _HEIGHT
    return path


def _draw_box(number: int, card: DrawingCard, box: Box) -> str:
    left, top, middle = box.x + _MARGIN - box.width / 2, _box_top(box), box.x + _MARGIN
    colour = _COLORS.get(card.kind, "#eee")
    hint, label, below = (html.escape(t) for t in (card.hint[:500], card.label, card.below[:80]))
    return (
        f'<g class="node" id="n{number}"><title>{hint}</title>'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{_HEIGHT:.0f}" fill="{colour}"/>'
        f'<text x="{middle:.1f}" y="{top + 16:.1f}">{label}</text>'
        f'<text class="spec" x="{middle:.1f}" y="{top + 30:.1f}">{below}</text></g>'
    )
