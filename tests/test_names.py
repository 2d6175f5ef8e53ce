"""Names that people bring from elsewhere: each exists here, or its error says what it is called."""

import functools
import importlib.util
import re
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from newcomer_names import TYPED

import pullback as pb
from pullback.foreign_names import SPACES, load_table
from pullback.public_names import MissingAttribute, MissingFunction

CLASSES = {
    "Tensor": pb.Tensor, "Module": pb.nn.Module, "Optimizer": pb.optim.Optimizer, "GradientTape": pb.GradientTape,
    "Jitted": type(pb.jit(abs)), "SparseArray": pb.sparse.SparseArray, "MaskedArray": pb.masked.MaskedArray,
    "Solution": pb.ode.Solution, "Distribution": pb.distributions.Distribution, "Bijector": pb.distributions.Bijector,
}  # fmt: skip


@functools.cache
def things():
    x = pb.tensor(np.ones((2, 2)), requires_grad=True)
    return {
        "pb": pb, "x": x, "m": pb.nn.Linear(2, 2), "opt": pb.optim.Adam([x], lr=0.1), "tape": pb.GradientTape(),
        "f": pb.jit(abs), "np": np, "out": x * 2, "module": pb.nn.Linear(1, 1), "loss": x.sum(),
        "A": pb.sparse.diagonal(np.ones(2)), "M": pb.masked.array(x, np.eye(2, dtype=bool)),
        "d": pb.distributions.Normal(), "solution": pb.ode.solve(lambda t, y: -y, 1.0, (0, 1)),
    }  # fmt: skip


def outcome(name):
    """Whether a name "exists", has a "message" that names ours, or "nothing"."""
    try:
        found = eval(name, dict(things()))
        if isinstance(found, MissingFunction):
            found()
    except AttributeError as error:
        return "message" if re.search(r"\bhere\b", str(error)) else "nothing"
    return "exists"


@pytest.mark.parametrize("background", TYPED)
def test_every_name_that_people_type_exists_or_is_explained(background):
    found = {name: outcome(name) for name in TYPED[background].split()}
    assert not {name for name, what in found.items() if what == "nothing"}
    print(background, dict(Counter(found.values())))  # shown by pytest -rP


def test_names_of_ours_in_explanations_exist():
    known = things()
    for name in load_table().values():
        for called in re.findall(
            r"\b((?:pb|x|m|A|M|d|solution|opt|tape|f|out|module)(?:\.[A-Za-z_]\w*)+)", name.meaning
        ):
            if not called.endswith(".name"):  # an attribute to be set
                eval(called, dict(known))


def test_explained_attributes_are_those_of_the_table_and_no_real_ones():
    for place, kind in CLASSES.items():
        names = {path.removeprefix(f"{place}.") for path in load_table() if path.startswith(f"{place}.")}
        for name in names:
            owner = next((k for k in kind.__mro__ if name in vars(k)), None)
            assert owner is not None, f"{place}.{name} is in the table, and the class does not know it"
            assert type(vars(owner)[name]) is MissingAttribute, f"{place}.{name} exists"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.ode.solve(abs, 0.0, (0, 1), t_eval=[1]), "solve: there is no argument 't_eval'.\n  Here it is s"),
        (lambda: pb.ode.solve(abs, 0.0, (0, 1), args=(2,)), "What the function takes besides is passed by position"),
        (lambda: pb.ode.solve(abs, 0.0), "'span'.\n  It is ode.solve\\(f, y0, span, \\*params, sav"),
        (lambda: pb.distributions.Normal(mean=0.0), "Normal: there is no argument 'mean'.\n  Here it is loc="),
        (lambda: pb.distributions.Gamma(2.0, scale=1.0), "Its keywords are concentration, rate"),
        (lambda: pb.distributions.mcmc(abs, 0.0), "'key'.\n  It is mcmc\\(log_density, initial, \\*, key, kernel"),
        (lambda: pb.distributions.Normal().sample(size=3), "sample: there is no argument 'size'.\n  Here it is shape="),
        (lambda: pb.sparse.csr((1, 2, 3), shape=(2, 2)), "It is sparse.csr\\(data, indices, indptr, shape\\)"),
        (lambda: pb.data.batches(np.ones(3), batch_size=2), "Here it is size="),
        (lambda: pb.vmap(abs, in_dims=0), "Here it is in_axes="),
        (lambda: pb.argmin(abs, 0.0, method="BFGS"), "unknown option method.\n  Here it is solver="),
        (lambda: pb.linalg.ldl_solve(1, 2), "It is ldl_solve\\(ld, pivots, b, /, \\*, hermitian=False\\)"),
        (lambda: pb.masked.array(np.ones(2)).sum(dim=0), "sum: there is no argument 'dim'.\n  Here it is axis="),
        (lambda: pb.nn.create_block_mask(abs, B=1, H=1, Q_LEN=4, KV_LEN=4), "Here it is batch="),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_explained(call, message):
    with pytest.raises(pb.errors.ArgumentTypeError, match=message):
        call()


def test_kernels_and_densities_in_the_wrong_place():
    mcmc, key = pb.distributions.mcmc, pb.random.key(0)
    with pytest.raises(pb.errors.ArgumentError, match=r"such as pb.distributions.NUTS\(\), got a type"):
        mcmc(pb.sum, np.zeros(2), key=key, kernel=pb.distributions.NUTS)
    with pytest.raises(pb.errors.ArgumentError, match="max_depth must be an integer"):
        pb.distributions.NUTS(pb.sum)
    with pytest.raises(pb.errors.ArgumentTypeError, match=r"The order is mcmc\(log_density, initial, key=key\)"):
        mcmc(np.zeros(2), pb.sum, key=key)


def test_a_type_error_of_the_users_function_stays_its_own():
    with pytest.raises(TypeError, match=r"takes 2 positional arguments but 3 were given") as raised:
        pb.ode.solve(lambda t, y: -y, 1.0, (0, 1), 2.0)
    assert type(raised.value) is TypeError


def test_no_name_in_the_table_exists():
    for path in load_table():
        place, _, name = path.removesuffix(".*").rpartition(".")
        if place.split(".")[0] not in CLASSES and place in SPACES:
            assert name not in dir(eval(f"pb.{place}".rstrip("."))), path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pb.cat", "pullback has no 'cat': that is PyTorch's name; here it is pb.concat(arrays, /, axis=0, *, dty"),
        ("pb.lax.scan(f)", "pullback has no 'lax': pb.lax.scan is JAX's name; here it is pb.scan("),
        ("pb.numpy.sin", "pullback has no 'numpy': pb.numpy.sin is JAX's name; here it is pb.sin(x)"),
        ("pb.numpy", "pullback has no 'numpy': that is JAX's namespace; here its names are in pb"),
        ("pb.keras.layers.Dense(3)", "pb.keras.layers.Dense is TensorFlow's name; here it is pb.nn.Linear("),
        ("pb.nn.utils.clip_grad_norm_", "pb.nn.utils.clip_grad_norm_ is PyTorch's name; here it is pb.optim.clip_grad"),
        ("pb.nn.functional.layer_norm", "pullback.nn.functional has no 'layer_norm': that is PyTorch's name; here it"),
        ("pb.nn.functional.pad", "here it is pb.pad(x, ((before, after), ...)), a pair for each axis from the first"),
        ("pb.nn.functional.swiglu", "pullback.nn.functional has no 'swiglu': here it is pb.nn.swiglu("),
        ("pb.jit.script(f)", "pullback.jit has no 'script': that is PyTorch's name; here it is pb.jit("),
        ("pb.jit.trace(f, (x,))", "pullback.jit has no 'trace': that is PyTorch's name; here it is pb.jit("),
        ("pb.nn.logsumexp", "pullback.nn has no 'logsumexp': here it is pb.logsumexp("),
        ("pb.Linear", "pullback has no 'Linear': here it is pb.nn.Linear"),
        ("pb.norm", "that is PyTorch's and TensorFlow's name; here it is pb.linalg.norm("),
        ("pb.onnx.export", "here it is pb.exchange.to_onnx"),
        ("pb.utils.tensorboard.SummaryWriter", "here it is pb.exchange.EventWriter"),
        ("pb.safe_open", "here it is pb.StoredArrays"),
        ("x.floor()", "a tensor has no 'floor': here it is pb.floor(x)"),
        ("x.at[0]", "a tensor has no 'at': that is JAX's name; here it is pb.set_at(x, index, values)"),
        ("A.toarray()", "a sparse array has no 'toarray': that is SciPy's name; here it is A.todense()"),
        ("pb.sparse.linalg.spsolve", "pb.sparse.linalg.spsolve is SciPy's name; here it is pb.sparse.solve("),
        ("pb.sparse.csr_matrix", "has no 'csr_matrix': that is SciPy's name; here it is pb.sparse.csr(data"),
        ("d.logpdf(1.0)", "a distribution has no 'logpdf': that is SciPy's name; here it is d.log_prob(x)"),
        ("pb.distributions.Exp().inv", "a bijector has no 'inv': that is PyTorch's name; here it is pb.dis"),
        ("pb.distributions.constraints.greater_than(0)", "here it is pb.distributions.constraints.interval(low, is"),
        ("m.half", 'a module has no \'half\': that is PyTorch\'s name; here it is m.to(pb.float16)'),
    ],
)  # fmt: skip
def test_an_error_says_whose_name_it_is_and_gives_the_call(text, message):
    with pytest.raises(AttributeError) as raised:
        eval(text, dict(things()))
    assert message in str(raised.value)
    assert raised.value.obj is None, "Python would add a guess of its own"


@pytest.mark.parametrize(
    ("text", "guess"), [("pb.hesian", "hessian"), ("pb.nn.Linaer", "Linear"), ("x.reshpe", "reshape")]
)
def test_misspelled_names_keep_the_guess_of_python(text, guess):
    with pytest.raises(AttributeError) as raised:
        eval(text, dict(things()))
    assert raised.value.name == text.rpartition(".")[2]
    assert guess in dir(raised.value.obj)


def test_missing_names_are_missing():
    made = things()
    assert not any(hasattr(pb, name) for name in ("cat", "lax", "compile", "keras", "nothing"))
    assert not hasattr(made["x"], "data")
    assert getattr(made["x"], "name", 3) == 3
    assert not hasattr(pb.Tensor, "data")
    assert not {"data", "add_", "name"} & set(dir(made["x"]))
    assert not {"half", "fit"} & set(dir(made["m"]))
    assert {"reshape", "grad"} <= set(dir(made["x"]))
    assert {"weight", "forward"} <= set(dir(made["m"]))


def test_a_module_may_have_attributes_of_these_names():
    class Net(pb.nn.Module):
        weights: pb.Tensor
        fit: int = 3

    net = Net(pb.tensor([1.0]))
    net.half = pb.tensor([2.0])
    assert net.fit == 3
    assert net.half.tolist() == [2.0]
    assert "half" in dir(net)
    assert {name for name, _ in net.named_parameters()} == {"weights", "half"}


def test_an_import_statement_is_explained_too():
    with pytest.raises(ImportError, match=r"has no 'cat': that is PyTorch's name; here it is pb.concat"):
        exec("from pullback import cat")
    with pytest.raises(ImportError, match=r"here its names are in pb.nn"):
        exec("from pullback.nn import utils")
    with pytest.raises(ImportError, match=r"pullback.optim has no 'lr_scheduler': .* are in pb.optim.schedules"):
        exec("import pullback.optim.lr_scheduler")
    with pytest.raises(ImportError, match=r"has no 'numpy': that is JAX's namespace; here its names are in pb"):
        exec("import pullback.numpy as jnp")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'pullback.nothing'$"):
        exec("import pullback.nothing")
    assert importlib.util.find_spec("pullback.nothing") is None


MODULES = [name for name in pb.__all__ if isinstance(getattr(pb, name), types.ModuleType)]


def test_namespaces_are_modules_to_import_statements():
    program = "\n".join(
        f"import pullback.{name} as m, pullback; from pullback.{name} import {getattr(pb, name).__all__[0]} as _\n"
        f"assert m is pullback.{name} and m.__spec__.name == m.__name__, {name!r}"
        for name in MODULES
        if hasattr(getattr(pb, name), "__all__")
    )
    assert run(f"{program}\nprint('linalg' in {MODULES})") == ["True"]


@pytest.mark.parametrize("name", MODULES)
def test_type_checkers_find_the_modules_that_import_statements_do(name):
    folder, home = Path(pb.__file__).parent, getattr(pb, name).__name__
    stub = folder / f"{name}.pyi"
    found = (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
    assert found or f"from {home.removeprefix('pullback')} import *" in stub.read_text()


def test_functional_has_functions_of_nn_and_nothing_else():
    functional = pb.nn.functional
    assert set(functional.__all__) <= set(pb.nn.__all__)
    assert all(getattr(functional, name) is getattr(pb.nn, name) for name in functional.__all__)


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_table_is_read_when_a_name_is_missing_and_not_before():
    program = (
        "import sys, pullback as pb; import pullback.nn, pullback.optim\n"
        "print('pullback.foreign_names' in sys.modules, hasattr(pb, 'cat'), 'pullback.foreign_names' in sys.modules)"
    )
    assert run(program) == ["False", "False", "True"]


def test_the_compiler_is_no_attribute_of_the_package():
    program = (
        "import numpy as np, pullback as pb; print(hasattr(pb, 'compile'))\n"
        "pb.jit(lambda x: x + 1)(np.ones(3)); pb.nn.gelu(np.ones(3)); print(hasattr(pb, 'compile'))\n"
        "import pullback.compile.jit as j; print(j.jit is pb.jit)"
    )
    assert run(program) == ["False", "False", "True"]


@pytest.mark.parametrize("space", ["nn", "optim", "random", "special", "linalg", "fft", "tree", "debug", "nn.init"])
def test_namespaces_list_their_public_names_alone(space):
    module = eval(f"pb.{space}")
    assert {name for name in dir(module) if not name.startswith("__")} == set(module.__all__)


def test_methods_under_names_of_pytorch_are_loaded_at_their_first_use():
    program = (
        "import sys, numpy as np, pullback as pb; from pullback.ops.operators import _ALIASES\n"
        "x = pb.tensor(np.ones((2, 3))); print('pullback.ops.method_aliases' in sys.modules)\n"
        "print(x.view(3, 2).shape == (3, 2), all(callable(getattr(x, name)) for name in _ALIASES.split()))\n"
        "from pullback.ops.method_aliases import _ALIASES as a, _PLAIN as p\n"
        "print(sorted(_ALIASES.split()) == sorted([*a, *p, 'clone']))"
    )
    assert run(program) == ["False", "True", "True", "True"]
