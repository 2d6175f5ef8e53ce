"""The API reference: a page for each function and class, pages that list them by subject, and the directive `op-table`.

The build writes them from the docstrings, which are read as Markdown, like the other pages. No name is listed by hand,
so none can be forgotten. The pages of names are in no table of contents: with a thousand entries each sidebar would
take longer to make than its page, so that one is made and kept.
"""

import inspect
import itertools
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from typed_signatures import typed_signature

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
    "masked": ("Masked arrays: pb.masked", r"Masked.*"),
    "linalg": ("Linear algebra: pb.linalg", r"Linalg"),
    "fft": ("Fourier transforms: pb.fft", r"Fft"),
    "special": ("Special functions: pb.special", r"Special"),
    "random": ("Random numbers: pb.random", r"Random"),
    "distributions": ("Probability: pb.distributions", r"Distributions"),
    "rules": ("Custom rules, control flow, tapes", r"Transforms: (custom|control|gradient_tape|stage|debug)"),
    "transforms": ("Transforms: grad, jvp, vmap, hessian", r"Transforms: .*"),
    "compile": ("Compiling and programs: pb.jit, pb.Graph", r"Compile|Graph|Program|Settings|Ops: fusion"),
    "amp": ("Mixed precision: pb.autocast, pb.Policy, pb.amp", r"Amp|Nn|Ops: autocast"),
    "distributed": ("Many ranks: pb.distributed", r"Distributed"),
    "memory": ("Checkpoints and memory", r"Checkpoint|Memory"),
    "implicit": ("Equations: pb.implicit", r"Implicit: .*"),
    "sparse": ("Sparse arrays: pb.sparse", r"Sparse"),
    "ode": ("Differential equations: pb.ode", r"Ode"),
    "exchange": ("Other systems: pb.exchange", r"Exchange"),
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
    "optim-schedules": ("Learning rate schedules: pb.optim.schedules", r"Optim: schedules|Optim"),
    "curvature": ("Curvature and gradients of samples: pb.curvature", r"Curvature"),
    "cuda": ("GPUs: pb.cuda", r"Cuda"),
    "errors": ("Errors", r"Errors"),
    "tools": ("Saving, tools, interoperability", r".*"),
}


#: Titles of sections whose modules are called otherwise.
TITLES = {
    "contract": "Products", "functions": "Other functions", "reduce": "Reductions", "index": "Indexing",
    "order": "Sorting", "window": "Windows", "shape": "Shapes", "Linalg": "Functions", "Fft": "Functions",
    "Cuda": "Functions", "Curvature": "Functions", "Amp": "Functions", "Nn": "Policies", "autocast": "Autocast",
    "Optim": "Types", "Interop": "Interoperability", "dtype_info": "About dtypes",
}  # fmt: skip
#: Folders of the pages of names, by whether they begin with a capital letter: `nn.Fold` and `nn.fold` differ in case
#: alone, which some file systems do not see.
FOLDERS = ("functions", "classes")
#: Where pages of names find what `Array` means.
ARRAY = "../../api.html#types-in-signatures"


def write_pages(app: Sphinx) -> None:
    """Write the pages beside `api.md`: touch only those that changed, and remove those of names that are gone."""
    root = Path(app.srcdir) / "api"
    texts = pages()
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for gone in {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.md")} - texts.keys():
        (root / f"{gone}.md").unlink()
    for page, text in texts.items():
        path = root / f"{page}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def pages() -> dict[str, str]:
    """The Markdown of each page by its path; a section is listed on the first page that wants it."""
    public = Public()
    lists = {page: [f"# {title}"] for page, (title, _) in PAGES.items()}
    texts = {}
    for heading, names in sections(public):
        page = next(page for page, (_, wanted) in PAGES.items() if re.fullmatch(wanted, heading))
        own = [name for name in names if public.page_of(name)]
        lists[page] += [f"## {title_of(heading)}", name_table(own, public)]
        lists[page] += [small_entry(name, public) for name in names if name not in own]
        texts |= {public.page_of(name): name_page(name, public, page) for name in own}
    return texts | {page: "\n\n".join(filter(None, text)) + "\n" for page, text in lists.items()}


class Public:
    """The public names: those of the package and of the modules among them.

    `things` is what each name is; `names` lists by the identity of a thing all of its names, the one first under which
    it has its page: the first that ends as the thing is called itself.
    """

    def __init__(self) -> None:
        self.things = dict(walk_names())
        self.names: dict[int, list[str]] = {}
        for name, thing in self.things.items():
            self.names.setdefault(id(thing), []).append(name)
        for names in self.names.values():
            names.sort(key=lambda name: name.rpartition(".")[2] != getattr(self.things[name], "__name__", ""))
        self.classes = {x.__name__: self.names[id(x)][0] for x in self.things.values() if inspect.isclass(x)}

    def names_of(self, name: str) -> list[str]:
        return self.names[id(self.things[name])]

    def page_of(self, name: str) -> str:
        """Where the page of a name is; empty for what is listed only: values, errors, other names of a thing."""
        thing = self.things[name]
        if is_value(thing) or is_error(thing) or self.names_of(name)[0] != name:
            return ""
        return f"{FOLDERS[name.rpartition('.')[2][0].isupper()]}/{name}"


def walk_names() -> Iterator[tuple[str, Any]]:
    modules: list[tuple[str, Any]] = [("pullback", pullback)]
    for prefix, module in modules:  # grows meanwhile
        for name in module.__all__:
            thing = getattr(module, name)
            if not isinstance(thing, ModuleType):
                yield f"{prefix}.{name}", thing
            elif hasattr(thing, "__all__") and thing not in [known for _, known in modules]:
                modules.append((f"{prefix}.{name}", thing))


def is_value(thing: Any) -> bool:
    """Whether it is documented by its value: numbers, dtypes, policies, types put together from other packages'."""
    return not (inspect.isclass(thing) or inspect.isroutine(thing)) or not thing.__module__.startswith("pullback")


def is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def sections(public: Public) -> Iterator[tuple[str, list[str]]]:
    """Headings with their names, the ops by subject; a name of no known kind stops the build."""
    names = sorted((section(name, thing), name) for name, thing in public.things.items())
    for heading, group in itertools.groupby(names, key=lambda pair: pair[0]):
        yield heading, [name for _, name in group]


def section(name: str, thing: Any) -> str:
    """The section of a name, from the module that defines it."""
    _, space, *_ = name.split(".")
    if isinstance(thing, np.dtype):
        return "Dtypes"
    if isinstance(thing, SavePolicy):
        return "Checkpoint"
    if isinstance(thing, float) or thing is None:
        return "Constants"
    named = (
        "random",
        "special",
        "memory",
        "fft",
        "linalg",
        "cuda",
        "amp",
        "distributed",
        "curvature",
        "distributions",
        "sparse",
    )
    if space in named:
        return space.capitalize()
    if not hasattr(thing, "__module__"):
        raise ExtensionError(f"{name} is public, but the reference does not know how to document {type(thing)}.")
    if space == "nn":
        return f"Networks: {networks_section(name, thing.__module__.split('.')[1:])}"
    if hasattr(thing, "op"):
        return f"Ops: {thing.op.family}"
    if not thing.__module__.startswith("pullback."):
        return space.capitalize()
    _, part, *rest = thing.__module__.split(".")
    divided = part in ("ops", "transforms", "implicit", "optim")
    return f"{part.capitalize()}: {rest[0]}" if divided else part.capitalize()


def networks_section(name: str, module: list[str]) -> str:
    """Layers that are functions with their settings are on pages by their kind."""
    if module[:1] != ["nn"]:
        return "functions of pb"
    if "function_layers" not in module:
        return module[1]
    if "Pool" in name:
        return "pooling as layers"
    return "losses as layers" if name.endswith("Loss") else "functions as layers"


def title_of(heading: str) -> str:
    """The heading of a section as it is shown."""
    part = heading.rpartition(": ")[2]
    return TITLES.get(part, part.replace("_", " ").capitalize())


def name_table(names: list[str], public: Public) -> str:
    """Names with what their docstrings begin with; each leads to its page."""
    rows = [f"| [`{short(name)}`]({public.page_of(name)}.md) | {summary(public.things[name])} |" for name in names]
    return "\n".join(["```{container} names", "| name | |", "|---|---|", *rows, "```"]) if rows else ""


def short(name: str) -> str:
    """The name as it is typed after `import pullback as pb`."""
    return re.sub("^pullback", "pb", name)


def summary(thing: object) -> str:
    """The first sentence of the docstring, in one line."""
    paragraph = (inspect.getdoc(thing) or "").split("\n\n")[0]
    sentence = re.split(r"(?<=[.;])\s|:\s*$", " ".join(paragraph.split()))[0]
    return sentence.rstrip(".;").replace("|", "\\|") + "."


def small_entry(name: str, public: Public) -> str:
    """What has no page of its own."""
    thing = public.things[name]
    if is_error(thing):
        return public_block("py:exception", name, "", markdown(thing))
    if is_value(thing):
        return public_block("py:data", name, "", thing.doc if isinstance(thing, SavePolicy) else f"`{thing}`")
    kind = "class" if inspect.isclass(thing) else "function"
    return public_block(f"py:{kind}", name, "", f"Another name of {{py:obj}}`{public.names_of(name)[0]}`.")


def name_page(name: str, public: Public, page: str) -> str:
    """The page of a function or class: its docstring under its signature, which Sphinx indexes and links to."""
    thing = public.things[name]
    others = ", ".join(f"`{short(other)}`" for other in public.names_of(name)[1:])
    body = [markdown(thing), f"Other names: {others}." if others else ""]
    if inspect.isclass(thing):
        bases = [public.names[id(base)][0] for base in thing.__mro__[1:] if id(base) in public.names]
        body += [f"Has all that {{py:class}}`{bases[0]}` has." if bases else "", *members(thing, public)]
    kind = "class" if inspect.isclass(thing) else "function"
    return "\n\n".join([
        "---\norphan: true\n---", f"[API reference](../../api.md) / [{PAGES[page][0]}](../{page}.md)", f"# {name}",
        public_block(f"py:{kind}", name, signature(thing, public), "\n\n".join(filter(None, body))) + "\n",
    ])  # fmt: skip


def members(cls: type, public: Public) -> Iterator[str]:
    """Public methods and properties with docstrings, in source order, without those of a public base."""
    own = itertools.takewhile(lambda base: base is cls or id(base) not in public.names, cls.__mro__)
    for name in dict.fromkeys(n for base in own if base.__module__.startswith("pullback") for n in vars(base)):
        getattr(cls, name, None)  # some methods are loaded now
        member = inspect.getattr_static(cls, name)
        described = inspect.isroutine(member) or isinstance(member, (property, cached_property))
        if name.startswith("_") or not described or not inspect.getdoc(member):
            continue  # a plain value would bring the docstring of its type
        yield member_entry(name, member, public)


def member_entry(name: str, member: Any, public: Public) -> str:
    """A method or property; one that is a public function, or calls it, leads to that one's page."""
    function = getattr(member, "__func__", member)
    same = public.things.get(f"pullback.{name}")
    if same is not None and inspect.getdoc(same) == inspect.getdoc(function):
        function = same
    body = markdown(function)
    if id(function) in public.names:
        body = f"{summary(function)} See {{py:func}}`{public.names[id(function)][0]}`."
    kind = "py:method" if inspect.isroutine(member) else "py:attribute"
    bound = not isinstance(member, staticmethod)
    return block(kind, f"{name}{signature(function, public, bound)}", body, fence=4)


def markdown(thing: object) -> str:
    """The docstring, its examples (`>>>` to the next empty line) fenced as code."""
    return re.sub(
        r"^>>> .*?(?=\n\n|\Z)", r"```pycon\n\g<0>\n```", inspect.getdoc(thing) or "", flags=re.DOTALL | re.MULTILINE
    )


def block(directive: str, heading: str, body: str, fence: int = 6) -> str:
    return f"{'`' * fence}{{{directive}}} {heading}\n{body}\n{'`' * fence}"


def public_block(directive: str, name: str, signature: str, body: str) -> str:
    """The entry of a public name. The index sorts it by its last part, since the module is named apart."""
    module, _, last = name.rpartition(".")
    return block(directive, f"{last}{signature}", f":module: {module}\n\n{body}")


def signature(thing: Any, public: Public, bound: bool = False) -> str:
    return typed_signature(thing, bound, public.classes) if callable(thing) else ""


class OpTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        heading, *rows = op_rows()
        lines = [heading, ["---"] * len(heading), *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def link_types(app: Sphinx, doctree: nodes.document) -> None:
    """Types in signatures: those of the package stay links, `Array` leads to what it means, others are text. (Sphinx
    would compare each with the last parts of all names.)
    """
    for described in doctree.findall(addnodes.desc_signature):
        for xref in list(described.findall(addnodes.pending_xref)):
            if xref["reftarget"] == "Array":
                xref.replace_self(nodes.reference("", "", *xref.children, refuri=ARRAY, internal=True))
            elif not xref["reftarget"].startswith("pullback."):
                xref.replace_self(xref.children)


def drop_toctree(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Before the theme makes the sidebar of a page: not where that of its folder is known."""
    if posixpath.dirname(page) in app.sidebars:
        del context["toctree"]


def keep_sidebar(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """After the theme has made a sidebar: it is the same for all pages of names in a folder."""
    folder = posixpath.dirname(page)
    if folder.startswith("api/"):
        context["furo_navigation_tree"] = app.sidebars.setdefault(folder, context["furo_navigation_tree"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.sidebars = {}
    app.connect("builder-inited", write_pages)
    app.connect("doctree-read", link_types)
    app.connect("html-page-context", drop_toctree, priority=400)
    app.connect("html-page-context", keep_sidebar, priority=600)
    app.add_directive("op-table", OpTable)
    return {"parallel_read_safe": True}
