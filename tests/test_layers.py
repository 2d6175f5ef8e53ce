"""The order of the package: a module imports only from layers above its own, and at the top of its file."""

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pullback
from pullback.ops import load_all_ops

ROOT = Path(pullback.__file__).parent
#: From the top down: each line may import from the lines above it and from itself.
LAYERS = [
    ["public_names", "foreign_names"], ["errors"], ["instrument"], ["settings"], ["arrays"], ["ops"], ["program"],
    ["tape"], ["transforms"], ["masked"], ["checkpoint"], ["implicit"], ["sparse"], ["ode"], ["graph"], ["compile"],
    ["saving"],
    ["nn"], ["curvature"], ["optim"], ["distributions"], ["tools"], ["exchange"], ["amp"], ["distributed"],
    ["interop"], ["data", "demo", "cli", "__main__", "__init__"],
]  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
#: Packages that may be missing, or are too slow to come with us: the only ones to be imported inside a function.
OPTIONAL = {
    "cuda", "cupy", "cupy_backends", "cupyx", "einops", "jax", "llvmlite", "ml_dtypes", "mpi4py", "mpmath", "optree",
    "rich", "scipy", "torch",
}  # fmt: skip
#: What `import pullback` may load beside the standard library.
AT_ONCE = {"numpy", "pullback"}

MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in sorted(ROOT.rglob("*.py"))
}


@functools.cache
def tree_of(module):
    return ast.parse(MODULES[module].read_text())


def layer_of(module):
    return module.split(".")[0]


LAYERED = {layer: [m for m in MODULES if layer_of(m) == layer] for layer in LEVEL}


def package_of(module):
    """The package that the module's relative imports start from."""
    return ["pullback", *module.split(".")[:-1]]


@functools.cache
def imports_in(module):
    """(absolute name, line, inside a function, only for types) for each import of a module, and of its stub, which is
    imported from too.
    """
    stub = MODULES[module].with_suffix(".pyi")
    tree = ast.parse(MODULES[module].read_text() + (stub.read_text() if stub.exists() else ""))
    found = []

    def visit(node, inside, typing):
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, inside, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package_of(module)
            base = base[: len(base) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            found.extend((f"{start}.{alias.name}", node.lineno, inside, typing) for alias in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = typing or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for child in ast.iter_child_nodes(node):
            visit(child, inside, typing)

    visit(tree, False, False)
    return found


def ours(name):
    """The layer an absolute name of this package lies in; None for other packages."""
    parts = name.split(".")
    if parts[0] != "pullback":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "__init__"


def test_every_module_has_a_layer():
    assert {layer_of(m) for m in MODULES} <= set(LEVEL)
    assert set(LEVEL) == {layer_of(m) for m in MODULES}, "a layer that is gone must leave the list"


@pytest.mark.parametrize("layer", LEVEL)
def test_modules_import_only_from_layers_above(layer):
    upward = [
        f"{module}, line {line}: {name}"
        for module in LAYERED[layer]
        for name, line, _, _ in imports_in(module)
        if (other := ours(name)) is not None and LEVEL[other] > LEVEL[layer]
    ]
    assert upward == []


@pytest.mark.parametrize("layer", LEVEL)
def test_imports_inside_functions_are_of_optional_packages(layer):
    hidden = [
        f"{module}, line {line}: {name}"
        for module in LAYERED[layer]
        for name, line, inside, _ in imports_in(module)
        if inside and name.split(".")[0] not in OPTIONAL
    ]
    assert hidden == []


def imports_by_name(module):
    """What a module imports by `importlib.import_module("…")`, which is an import too."""
    calls = (n for n in ast.walk(tree_of(module)) if isinstance(n, ast.Call) and n.args)
    asked = [
        c.args[0]
        for c in calls
        if getattr(c.func, "attr", getattr(c.func, "id", "")) in ("import_module", "__import__")
    ]
    return [n.value for a in asked for n in ast.walk(a) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def may_import_by_name(module):
    """The package loads its own parts late."""
    return OPTIONAL | ({"pullback"} if module in ("__init__", "ops.__init__", "ops.lazy", "public_names") else set())


@pytest.mark.parametrize("layer", LEVEL)
def test_what_is_imported_by_name_is_an_optional_package(layer):
    named = [(m, name) for m in LAYERED[layer] for name in imports_by_name(m) if name.strip(".")]
    assert [(m, name) for m, name in named if name.split(".")[0] not in may_import_by_name(m)] == []


def module_named(name):
    """The module that an absolute name of this package lies in; None for other packages."""
    parts = name.split(".")[1:] if name.split(".")[0] == "pullback" else []
    while parts:
        found = next((m for m in (".".join(parts), ".".join([*parts, "__init__"])) if m in MODULES), None)
        if found:
            return found
        parts.pop()
    return None


def lazy_imports_in(module):
    """What a module names in `lazy_function("place", "name")`, and so imports at the first call. With a third argument
    it is what another layer implements, often a later one.
    """
    calls = (n for n in ast.walk(tree_of(module)) if isinstance(n, ast.Call) and len(n.args) == 2)
    return [f"pullback.ops.{c.args[0].value}" for c in calls if getattr(c.func, "id", "") == "lazy_function"]


def modules_used_by(module):
    """The modules that a module imports: at its top, inside functions, or at a first call."""
    named = [name for name, _, _, typing in imports_in(module) if not typing] + lazy_imports_in(module)
    return {found for name in named if (found := module_named(name)) not in (None, module)}


def find_cycle(uses):
    """A path that ends where it began, in a graph given by its edges; None if there is none."""
    order, path = {}, []

    def visit(start):
        if order.get(start) == "done":
            return None
        if start in path:
            return [*path[path.index(start) :], start]
        path.append(start)
        for other in sorted(uses[start]):
            if cycle := visit(other):
                return cycle
        path.pop()
        order[start] = "done"
        return None

    return next((cycle for start in sorted(uses) if (cycle := visit(start))), None)


def test_no_module_imports_itself_by_any_path():
    assert find_cycle({module: modules_used_by(module) for module in MODULES}) is None


def test_a_cycle_is_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert "ops.protocol.__init__" in modules_used_by("ops.operators")  # by its name, at the first call
    assert "ops.shape.reshaping" in modules_used_by("ops.reduce.reductions")


def names_in_the_stub(package):
    """(name, level, module, name there) for each public name, in the order of the stub."""
    found, homes = [], {}
    for node in ast.parse(Path(package.__path__[0], "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            assert all(alias.asname == alias.name for alias in node.names), "`name as name` is what exports a name"
            homes |= {alias.name: ("." * node.level + (node.module or ""), alias.name) for alias in node.names}
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            homes[node.targets[0].id] = homes[node.value.id]
            found.append(node.targets[0].id)
    return [(name, *homes[name]) for name in found]


STUBS = [".".join(("pullback", *path.relative_to(ROOT).parts[:-1])) for path in sorted(ROOT.rglob("__init__.pyi"))]


@pytest.mark.parametrize("name", STUBS)
def test_each_public_name_is_listed_once_and_is_what_the_stub_says(name):
    package = importlib.import_module(name)
    listed = names_in_the_stub(package)
    assert sorted(name for name, *_ in listed) == package.__all__
    for name, module, attribute in listed:
        found = getattr(package, name)
        home = importlib.import_module(module, package.__name__)
        if isinstance(found, ModuleType):
            assert found is importlib.import_module(f"{home.__name__}.{attribute}")
        else:
            assert found is getattr(home, attribute)
    assert set(package.__all__) <= set(dir(package))


def test_a_name_that_is_not_public_is_missing():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pullback.nothing


def test_the_package_of_its_name_does_not_hide_checkpoint():
    program = "import pullback.checkpoint.recompute.checkpoint; print(callable(pullback.checkpoint))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_every_optional_package_is_used():
    late = {name for m in MODULES for name, _, inside, _ in imports_in(m) if inside}
    named = {name for m in MODULES for name in imports_by_name(m)}
    assert {name.split(".")[0] for name in late | named} >= OPTIONAL


@pytest.mark.parametrize("layer", LEVEL)
def test_modules_say_what_they_are_and_import_no_stars_but_dtypes(layer):
    for module in LAYERED[layer]:
        tree = tree_of(module)
        assert ast.get_docstring(tree), f"{module}: the first line says what it is for"
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        stars = [n.module for n in imports if any(a.name == "*" for a in n.names)]
        assert stars in ([], ["arrays.dtypes"]), module


def test_importing_the_package_loads_only_what_it_must():
    program = "import sys; before = set(sys.modules); import pullback; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {m.split(".")[0] for m in done.stdout.split()}
    others = {m for m in loaded if m not in sys.stdlib_module_names and not m.startswith("_")}
    assert others <= AT_ONCE


def test_a_function_of_networks_loads_neither_layers_nor_scipy():
    """The first call of a fused function waits for the modules it needs alone."""
    code = (
        "import sys, numpy as np, pullback as pb; pb.nn.gelu(np.ones(3)); pb.nn.linear; "
        "a = np.ones((512, 512)); pb.jit(lambda a, b: a @ b)(a, a); "
        "print(*[m for m in ('scipy', 'pullback.nn.layers', 'pullback.nn.attention') if m in sys.modules]); "
        "from pullback.nn import *; print(callable(linear), callable(dropout), Linear.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["", "True True Linear"]


def test_importing_the_package_loads_no_slow_module_of_the_standard_library():
    """Each takes one to five milliseconds, where the whole package takes forty."""
    program = "import numpy, sys; before = set(sys.modules); import pullback; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {"pathlib", "urllib", "ipaddress", "string", "ctypes", "json", "tempfile", "importlib.resources", "asyncio"}
    assert slow.isdisjoint(done.stdout.split())


def test_rules_and_engine_do_not_name_numpy_functions():
    """`np.` in a rule would pin it to the CPU: the backward pass asks the arrays for their own library."""
    for module in ("tape.pull", "tape.cotangents", "tape.threads", "tape.hooks", "ops.elementwise.pointwise"):
        used = {
            node.attr
            for node in ast.walk(tree_of(module))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np"
        }
        assert used <= {"ndarray", "dtype", "float64", "generic", "asarray"}, module


def _is_op_name(node: ast.AST) -> bool:
    """op.name or x.op.name."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "name"
        and (getattr(node.value, "id", "") == "op" or getattr(node.value, "attr", "") == "op")
    )


def _is_record_of(node: ast.AST, known: set[str]) -> bool:
    """multiply.op or pointwise.multiply.op, for the name of an op."""
    if not isinstance(node, ast.Attribute) or node.attr != "op":
        return False
    return getattr(node.value, "attr", getattr(node.value, "id", "")) in known


def name_switches(tree: ast.AST, known: set[str]) -> list[int]:
    """The lines that ask which op they have: by a comparison with its name or its record, or in a table of names."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = any(map(_is_op_name, sides)) or any(_is_record_of(side, known) for side in sides)
        elif isinstance(node, ast.Subscript):
            constant = isinstance(node.slice, ast.Constant) and getattr(node.value, "id", "") == "OPS"
            asked = constant or _is_op_name(node.slice)
        else:
            is_get = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get"
            asked = is_get and any(map(_is_op_name, node.args))
        if asked:
            found.append(node.lineno)
    return found


def test_what_an_op_is_asked_stands_in_its_record():
    """Not its name: a user's op may have the same, and the next op of a kind would be forgotten."""
    known = {*load_all_ops(), "unrecorded"}
    free = {m for m in MODULES if m == "ops.op" or m.startswith("tools.certify")}  # the register, and tables of tests
    found = {m: name_switches(tree_of(m), known) for m in MODULES if m not in free}
    assert {m: lines for m, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        'e.op.name == "name"',
        "op is not pointwise.multiply.op",
        'OPS["reshape"]',
        "rules.get(e.op.name, ())",
        "t[op.name]",
    ],
)
def test_a_question_for_a_name_is_found(source):
    assert name_switches(ast.parse(source), {"multiply"}) == [1]
