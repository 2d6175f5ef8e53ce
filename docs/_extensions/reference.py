"""Two Sphinx directives: `public-names` documents `pullback.__all__`, `op-table` lists the op records.

Docstrings are read as Markdown, like the pages. Nothing is listed by hand, so nothing can be forgotten.
"""

import inspect
import itertools
import re
from collections.abc import Iterator
from types import ModuleType

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import pullback
from pullback.checkpoint.recompute.save_policies import SavePolicy
from pullback.cli import op_rows


class PublicNames(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n\n".join(sections()), allow_section_headings=True)


class OpTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        heading, *rows = op_rows()
        lines = [heading, ["---"] * len(heading), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def sections() -> Iterator[str]:
    """One Markdown section per part of the package, the ops by subject; a name of no known kind stops the build."""
    public = {f"pullback.{name}": getattr(pullback, name) for name in pullback.__all__}
    public |= {f"pullback.errors.{name}": getattr(pullback.errors, name) for name in pullback.errors.__all__}
    for part in (pullback.einops, pullback.implicit):
        space = part.__name__.rpartition(".")[2]
        inside = {n: getattr(part, n) for n in part.__all__ if getattr(pullback, n, None) is not getattr(part, n)}
        public |= {f"pullback.{space}.{name}": thing for name, thing in inside.items()}
    for part in ("implicit", "nn", "random", "special"):
        space = getattr(pullback, part)
        inside = {n: getattr(space, n) for n in space.__all__ if getattr(space, n) is not getattr(pullback, n, None)}
        public |= {f"pullback.{part}.{name}": thing for name, thing in inside.items()}
    inside = {n: getattr(pullback.implicit, n) for n in pullback.implicit.__all__ if n not in pullback.__all__}
    public |= {f"pullback.implicit.{name}": thing for name, thing in inside.items()}
    for part in (pullback.optim, pullback.optim.schedules, pullback.interop.scipy):
        public |= {f"{part.__name__}.{name}": getattr(part, name) for name in part.__all__ if name != "Schedule"}
    for part in (pullback.linalg, pullback.fft, pullback.tools):
        public |= {f"pullback.{part.__name__.rpartition('.')[2]}.{name}": getattr(part, name) for name in part.__all__}
    for space, part in {"nn.init": pullback.nn.init}.items():
        things = {name: getattr(part, name) for name in part.__all__}
        public |= {
            f"pullback.{space}.{n}": x for n, x in things.items() if getattr(x, "__name__", n) == n
        }  # no aliases
    names = sorted((title(name, thing), name) for name, thing in public.items() if not isinstance(thing, ModuleType))
    for heading, group in itertools.groupby(names, key=lambda pair: pair[0]):
        yield f"## {heading}"
        yield from (entry(name, public[name]) for _, name in group)


def title(name: str, thing: object) -> str:
    """The section of a name, from the module that defines it."""
    if isinstance(thing, np.dtype):
        return "Dtypes"
    if isinstance(thing, SavePolicy):
        return "Checkpoint"
    if name.startswith(("pullback.random.", "pullback.special.")):
        return name.split(".")[1].capitalize()
    if isinstance(thing, float) or thing is None:
        return "Constants"
    if name.startswith("pullback.nn."):
        return f"Networks: {thing.__module__.split('.')[2]}"
    if hasattr(thing, "op"):
        return f"Ops: {thing.op.family}"
    if callable(thing):
        _, part, *rest = thing.__module__.split(".")
        return (
            f"{part.capitalize()}: {rest[0]}"
            if part in ("ops", "transforms", "implicit", "optim")
            else part.capitalize()
        )
    raise ExtensionError(f"{name} is public, but the reference does not know how to document {type(thing)}.")


def is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def entry(name: str, thing: object) -> str:
    """The docstring under its signature, as a Markdown block that Sphinx indexes and links."""
    if isinstance(thing, np.dtype):
        return block("py:data", name, f"NumPy's dtype `{thing.name}`.")
    if isinstance(thing, SavePolicy):
        return block("py:data", name, thing.doc)
    if isinstance(thing, float) or thing is None:
        return block("py:data", name, f"The constant `{thing}`.")
    if thing.__name__ != name.rpartition(".")[2]:
        space = name.split(".")[1:-1]
        inside = space and thing.__name__ in getattr(pullback, space[0]).__all__
        first = ".".join(["pullback", *(space if inside else []), thing.__name__])
        return block("py:function", name, f"Another name of {{py:func}}`{first}`.")
    home, _, own = name.rpartition(".")
    if thing.__name__ != own:
        return block("py:function", name, f"Another name of {{py:func}}`{home}.{thing.__name__}`.")
    if is_error(thing):
        return block("py:exception", name, markdown(thing))
    if inspect.isclass(thing):
        return block("py:class", f"{name}{signature(thing)}", "\n\n".join([markdown(thing), *members(thing)]))
    return block("py:function", f"{name}{signature(thing)}", markdown(thing))


def members(cls: type) -> Iterator[str]:
    """The public methods and properties with docstrings, in source order."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("pullback")]
    for name in dict.fromkeys(name for base in own for name in vars(base)):
        member = inspect.getattr_static(cls, name)
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        kind = "py:method" if inspect.isroutine(member) else "py:attribute"
        yield block(kind, f"{name}{signature(member, bound=True)}", markdown(member), fence=4)


def markdown(thing: object) -> str:
    """The docstring, its examples (`>>>` to the next empty line) fenced as code."""
    return re.sub(
        r"^>>> .*?(?=\n\n|\Z)", r"```pycon\n\g<0>\n```", inspect.getdoc(thing) or "", flags=re.DOTALL | re.MULTILINE
    )


def block(directive: str, heading: str, body: str, fence: int = 6) -> str:
    return f"{'`' * fence}{{{directive}}} {heading}\n{body}\n{'`' * fence}"


def signature(thing: object, bound: bool = False) -> str:
    """Names and defaults; types are in the source. Empty for errors and what is not callable."""
    if not callable(thing) or is_error(thing):
        return ""
    found = inspect.signature(thing)
    parameters = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    return str(found.replace(parameters=parameters[bound:], return_annotation=found.empty))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public-names", PublicNames)
    app.add_directive("op-table", OpTable)
    return {"parallel_read_safe": True}
