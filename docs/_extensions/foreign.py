"""The directive `foreign-names`: what names of other libraries are called here, from the table of the errors."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pullback.foreign_names import ForeignName, load_table

#: What an object of a class is called in code.
OBJECTS = {"Tensor": "x", "Module": "net", "Optimizer": "opt", "GradientTape": "tape", "Jitted": "f"}


class ForeignNames(SphinxDirective):
    """A table of the names of one or several libraries: `{foreign-names} JAX Optax`."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        owners = set(self.arguments[0].split())
        found = {path: name for path, name in load_table().items() if owners & set(name.owners)}
        lines = [f"| {self.arguments[0].replace(' ', ', ')} | here |", "|---|---|"]
        lines += [f"| `{typed(path)}` | {meaning(name)} |" for path, name in sorted(found.items(), key=by_place)]
        return self.parse_text_to_nodes("\n".join(lines))


def by_place(item: tuple[str, ForeignName]) -> tuple[bool, str]:
    return item[0].split(".")[0] in OBJECTS, item[0].lower()


def typed(path: str) -> str:
    """The name as it is typed: `x.chunk` for `Tensor.chunk`."""
    place, _, name = path.partition(".")
    return f"{OBJECTS[place]}.{name}" if place in OBJECTS else path


def meaning(name: ForeignName) -> str:
    """A name or an expression as code; advice, which is in brackets, as text."""
    words = name.meaning.replace("|", "\\|")
    if words.startswith("("):
        return f"no counterpart: {words[1:-1]}"
    return words if ": " in words or (", " in words and "(" not in words) else f"`{words}`"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("foreign-names", ForeignNames)
    return {"parallel_read_safe": True}
