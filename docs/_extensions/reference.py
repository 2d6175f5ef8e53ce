"""The API reference: a page for each part of the package, written by the build, and the directive `op-table`.

Docstrings are read as Markdown, like the pages. No name is listed by hand, so none can be forgotten.
"""

import inspect
import itertools
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import pullback
from pullback.checkpoint.recompute.save_policies import SavePolicy
from pullback.cli import op_rows

#: The pages by file name: the title, and the sections of names on it by the ends of their titles.
PAGES = {
    "tensors": ("Tensors, dtypes, creating arrays", r"Arrays|Tape|Dtypes|Constants|Ops: (creation|dtype_info)"),
    "elementwise": ("Elementwise functions", r"Ops: elementwise"),
    "shapes": ("Shapes, joining, splitting", r"Ops: shape"),
    "indexing": ("Indexing, sorting, searching", r"Ops: (index|order)"),
    "reductions": ("Reductions and products", r"Ops: (reduce|contract|window|functions)"),
    "linalg": ("Linear algebra: pb.linalg", r"Ops: linalg"),
    "fft": ("Fourier transforms: pb.fft", r"Ops: fft"),
    "special": ("Special functions: pb.special", r"Special"),
    "random": ("Random numbers: pb.random", r"Random"),
    "rules": ("Custom rules, control flow, tapes", r"Transforms: (custom|control|gradient_tape|stage|debug)"),
    "transforms": ("Transforms: grad, jvp, vmap, hessian", r"Transforms: .*"),
    "compile": ("Compiling and programs: pb.jit, pb.Graph", r"Compile|Graph|Program|Settings|Ops: fusion"),
    "memory": ("Checkpoints and memory", r"Checkpoint"),
    "implicit": ("Equations: pb.implicit", r"Implicit: .*"),
    "nn-layers": ("Networks: modules and layers", r"Networks: (layers|module|parameter).*"),
    "nn-layers-losses": ("Networks: losses as modules", r"Networks: losses as layers"),
    "nn-layers-pooling": ("Networks: pooling as modules", r"Networks: pooling as layers"),
    "nn-layers-functions": ("Networks: activations and other functions as modules", r"Networks: functions as layers"),
    "nn-losses": ("Networks: losses", r"Networks: losses"),
    "nn-images": ("Networks: convolutions, pooling, images", r"Networks: (convolution|pooling|image)"),
    "nn-functions": ("Networks: other functions of pb.nn", r"Networks: (?!init).*"),
    "nn-init": ("Networks: initialization, pb.nn.init", r"Networks: init"),
    "optim": ("Optimizers: pb.optim", r"Optim: (algorithms|stateful)"),
    "optim-rules": ("Optimizers: rules around rules", r"Optim: (?!schedules).*"),
    "optim-schedules": ("Learning rate schedules: pb.optim.schedules", r"Optim: schedules"),
    "errors": ("Errors", r"Errors"),
    "tools": ("Saving, tools, interoperability", r".*"),
}


def write_pages(app: Sphinx) -> None:
    """Write the pages of the reference beside `api.md`, and touch only those that changed."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    for page, text in pages().items():
        path = folder / f"{page}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def pages() -> dict[str, str]:
    """The Markdown of each page; a section is on the first page that wants it."""
    texts = {page: [f"# {title}"] for page, (title, _) in PAGES.items()}
    for heading, entries in sections():
        page = next(page for page, (_, wanted) in PAGES.items() if re.fullmatch(wanted, heading))
        texts[page] += [f"## {heading.rpartition(': ')[2].replace('_', ' ').capitalize()}", *entries]
    return {page: "\n\n".join(text) + "\n" for page, text in texts.items()}


class OpTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        heading, *rows = op_rows()
        lines = [heading, ["---"] * len(heading), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def sections() -> Iterator[tuple[str, list[str]]]:
    """Headings with their entries, the ops by subject; a name of no known kind stops the build."""
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
        yield heading, [entry(name, public[name], public) for _, name in group]


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
        return f"Networks: {networks_section(name, thing.__module__.split('.')[2:])}"
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


def networks_section(name: str, module: list[str]) -> str:
    """Layers that are functions with their settings are on pages by their kind."""
    if "function_layers" not in module:
        return module[0]
    if "Pool" in name:
        return "pooling as layers"
    return "losses as layers" if name.endswith("Loss") else "functions as layers"


def is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def entry(name: str, thing: object, public: dict[str, object]) -> str:
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
        bases = [n for base in thing.__mro__[1:] for n, other in public.items() if other is base]
        inherited = [f"Has all that {{py:class}}`{bases[0]}` has."] if bases else []
        return block("py:class", f"{name}{signature(thing)}",
                     "\n\n".join([markdown(thing), *inherited, *members(thing, public)]))  # fmt: skip
    return block("py:function", f"{name}{signature(thing)}", markdown(thing))


def members(cls: type, public: dict[str, object]) -> Iterator[str]:
    """Public methods and properties with docstrings, in source order, without those of a public base."""
    documented = {id(thing) for thing in public.values() if inspect.isclass(thing)}
    own = itertools.takewhile(lambda base: base is cls or id(base) not in documented, cls.__mro__)
    for name in dict.fromkeys(n for base in own if base.__module__.startswith("pullback") for n in vars(base)):
        member = inspect.getattr_static(cls, name)
        described = inspect.isroutine(member) or isinstance(member, (property, cached_property))
        if name.startswith("_") or not described or not inspect.getdoc(member):
            continue  # a plain value would bring the docstring of its type
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
    app.connect("builder-inited", write_pages)
    app.add_directive("op-table", OpTable)
    return {"parallel_read_safe": True}
