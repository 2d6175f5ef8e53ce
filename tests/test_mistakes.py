"""Mistakes that newcomers make: each message says what was got, what was wanted and what to do, at the user's line."""

import copy
import dataclasses
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.compile import jit as compiled
from pullback.compile import recompilation, specialization
from pullback.compile.numpy_runner import NumpyRunner


def leaf(*shape):
    return pb.tensor(np.arange(1.0, 1 + math.prod(shape)).reshape(shape), requires_grad=True)


class Line:
    """A class of the user's that holds numbers."""

    slope = 1.0

    def at(self, x):
        return self.slope * x


@dataclasses.dataclass
class Point:
    x: float


def update_on_the_tape():
    w = leaf(3)
    for _ in range(3):
        pb.sum(w * w).backward()
        w -= 0.1 * w.grad


def no_result(x):
    x * x


def halve(x):
    while x > 1.0:
        x = x / 2
    return x


def choose(x):
    return x if x > 0 else -x


ZEROS = np.zeros(3)


def write_into_zeros(x):
    ZEROS[0] = x[0]
    return ZEROS.sum()


def deep_network():
    inner = pb.nn.Sequential(pb.nn.Linear(4, 8), pb.relu, pb.nn.Linear(16, 2))
    return pb.nn.Sequential(pb.nn.Linear(4, 4), inner)


class Steps(pb.nn.Module):
    steps: list


def written_parameter():
    w = leaf(3)
    w[0] = 5.0
    pb.optim.SGD([w], lr=0.1)


def untrained():
    net = pb.nn.Sequential(pb.nn.Linear(2, 2), pb.nn.Linear(2, 1))
    pb.optim.SGD(net, lr=0.1).step()


def step_in_wrong_order():
    rule, params = pb.optim.adam(1e-3), [np.ones(3)]
    rule.update([np.ones(3)], params, rule.init(params))


def truth_of_a_graph():
    total = pb.sum(pb.Graph().placeholder("x", (3,)))
    return 1 if total > 0 else 2


def load_of(write):
    def load(folder):
        write(folder / "model")
        (found,) = folder.iterdir()
        pb.load(found)

    return load


def leaked():
    seen = []
    pb.jit(lambda x: (seen.append(x * 2), x)[1])(1.0)


#: A mistake, its error, and what the message must hold.
MISTAKES = {
    "shapes": (lambda: leaf(3) + leaf(4), errors.ShapeError, ["add", "(3,)", "(4,)"]),
    "matmul": (lambda: leaf(3, 4) @ leaf(3, 4), errors.ShapeError, ["matmul", "(3, 4)"]),
    "concat of other shapes": (lambda: pb.concat([leaf(3, 4), leaf(3, 5)]), errors.ShapeError, ["(3, 4)", "(3, 5)"]),
    "reshape": (lambda: pb.reshape(leaf(6), (4, 2)), errors.ShapeError, ["6", "(4, 2)"]),
    "channels last": (lambda: pb.nn.Conv2d(3, 8, 3)(leaf(1, 32, 32, 3)), errors.ShapeError, ["32 channels", "wants 3"]),
    "widths of layers": (
        lambda: deep_network()(leaf(5, 4)), errors.ShapeError,
        ["(5, 8)", "16", "in Sequential at '1.2', a Linear"],
    ),
    "integers that require": (lambda: pb.tensor([1], requires_grad=True), errors.DtypeError, ["int64", "astype"]),
    "grad of an integer": (lambda: pb.grad(lambda x: x * x)(3), errors.DtypeError, ["int64", "Convert"]),
    "backward of many": (lambda: (leaf(3) * 2).backward(), errors.ShapeError, ["(3,)", "seed", "{here}"]),
    "grad of many": (lambda: pb.grad(lambda x: x * x)(np.ones(3)), errors.ArgumentError, ["float64[3]", "pb.sum"]),
    "no leaf": (lambda: pb.sum(pb.tensor([1.0])).backward(), errors.GraphError, ["requires_grad=True", "no_grad"]),
    "update on the tape": (update_on_the_tape, errors.GraphError, ["no_grad", "pb.optim", "w -= 0.1"]),
    "axis": (lambda: pb.sum(leaf(3), axis=5), errors.AxisError, ["sum", "axis 5", "1 axes"]),
    "axis of a composite": (lambda: pb.softmax(leaf(3), axis=5), errors.AxisError, ["softmax: axis 5"]),
    "axis of a loss": (lambda: pb.nn.log_softmax(leaf(3), axis=5), errors.AxisError, ["log_softmax: axis 5"]),
    "while in jit": (
        lambda: pb.jit(halve)(9.0), errors.ConversionError, ["bool()", "pb.where", "x = pb.while_loop(", "{here}"],
    ),
    "if in vmap": (lambda: pb.vmap(choose)(np.ones(3)), errors.ConversionError, ["pb.where", "{here}"]),
    "copyto": (lambda: np.copyto(np.zeros(3), leaf(3)), errors.UnsupportedFunction, ["np.copyto", "pb.tensor(x)"]),
    "NumPy's that converts": (
        lambda: np.bartlett(leaf(1)[0]), errors.ConversionError, ["np.bartlett works on bare arrays", "pb.custom_op"],
    ),
    "item in jit": (lambda: pb.jit(lambda x: x.item())(2.0), errors.ConversionError, ["item()", "static", "{here}"]),
    "float in jit": (lambda: pb.jit(lambda x: float(x))(2.0), errors.ConversionError, ["float()", "static", "{here}"]),
    "another device": (lambda: leaf(3).to_device("tpu"), errors.DeviceError, ["'tpu'", "'cuda:0'"]),
    "arrays in an optimizer": (
        lambda: pb.optim.SGD([np.ones(3)], lr=0.1), errors.ArgumentError, ["params[0]", "pb.tensor"],
    ),
    "a parameter written to": (
        written_parameter, errors.GraphError, ["params[0]", "{here}", "pb.no_grad()"],
    ),
    "step before backward": (untrained, errors.GraphError, ["params[0].weight", "params[1].bias", "backward"]),
    "update in wrong order": (step_in_wrong_order, errors.ArgumentError, ["adam", "update(gradients, state, params)"]),
    "ragged": (lambda: pb.tensor([[1.0, 2.0], [3.0]]), errors.DtypeError, ["list", "different lengths", "Pad"]),
    "state of another": (
        lambda: pb.nn.Linear(2, 3).load_state_dict(pb.nn.Linear(2, 4).state_dict()), errors.ShapeError,
        ["weight", "(4, 2)", "(3, 2)"],
    ),
    "a Generator as key": (
        lambda: pb.random.normal(key=np.random.default_rng(0), size=(3,)), errors.ArgumentTypeError,
        ["random.normal", "Generator", "pb.random.key"],
    ),
    "JAX's order": (
        lambda: pb.random.normal(pb.random.key(0), (3,)), errors.ArgumentTypeError, ["key=key", "random.normal"],
    ),
    "logits after a key": (
        lambda: pb.random.categorical(pb.random.key(0), np.zeros(4)), errors.ArgumentTypeError, ["key=key"],
    ),
    "argnums": (lambda: pb.grad(lambda x: x, argnums=3)(1.0), errors.ArgumentError, ["argument 3", "1 positional"]),
    "by keyword": (lambda: pb.grad(lambda x: x)(x=1.0), errors.ArgumentError, ["by position"]),
    "grad of a value": (lambda: pb.grad(3.0), errors.ArgumentTypeError, ["wants a function", "float"]),
    "torch's grad": (
        lambda: pb.grad(pb.sum(leaf(3)), leaf(3)), errors.ArgumentTypeError,
        ["Tensor", "pb.gradients(outputs, inputs)"],
    ),
    "torch's grad, with a value": (
        lambda: pb.value_and_grad(leaf(3)), errors.ArgumentTypeError, ["pb.gradients(outputs, inputs)"],
    ),
    "a tuple": (lambda: pb.grad(lambda x: (x, x))(1.0), errors.ArgumentError, ["tuple of 2", "has_aux"]),
    "no return": (lambda: pb.grad(no_result)(1.0), errors.ArgumentError, ["returned None", "`return` missing"]),
    "vmap sizes": (
        lambda: pb.vmap(pb.add)(np.ones(3), np.ones(4)), errors.ShapeError, ["argument[0] has 3", "argument[1] has 4"],
    ),
    "vmap of a number": (lambda: pb.vmap(pb.sin)(1.0), errors.ShapeError, ["argument[0]", "in_axes"]),
    "unhashable": (
        lambda: pb.jit(lambda x, y: x, static_argnums=1)(1.0, [1]), errors.ArgumentError, ["list", "1", "Pass a tuple"],
    ),
    "an object in jit": (
        lambda: pb.jit(lambda x, y: x)(1.0, object()), errors.ArgumentError, ["object", "static_argnums=1"],
    ),
    "a string in jit": (
        lambda: pb.jit(lambda x, mode: x)(1.0, "a"), errors.ArgumentError, ["a str as argument 1", "static_argnums=1"],
    ),
    "a string by name": (
        lambda: pb.jit(lambda x, mode: x)(1.0, mode="a"), errors.ArgumentError, ["str", "static_argnames='mode'"],
    ),
    "a method in jit": (
        lambda: pb.jit(Line.at)(Line(), 1.0), errors.ArgumentError, ["Line", "static_argnums=0", "pb.nn.Module"],
    ),
    "a dataclass in jit": (
        lambda: pb.jit(lambda p: p.x)(Point(1.0)), errors.ArgumentError, ["Point", "pb.register_tree"],
    ),
    "a dataclass in grad": (lambda: pb.grad(lambda p: p.x)(Point(1.0)), errors.DtypeError, ["Point", "register_tree"]),
    "leaked": (leaked, errors.LeakError, ["return the value instead"]),
    "label": (lambda: pb.nn.cross_entropy(leaf(2, 3), np.array([0, 7])), errors.IndexingError, ["7", "3 classes", "2"]),
    "labels that are floats": (
        lambda: pb.nn.cross_entropy(leaf(2, 3), np.zeros(2)), errors.ShapeError, ["pass integers"],
    ),
    "row of an embedding": (
        lambda: pb.nn.Embedding(10, 4)(np.array([11])), errors.IndexingError, ["index 11", "10 rows", "9"],
    ),
    "index": (lambda: leaf(3)[7], errors.IndexingError, ["7", "(3,)"]),
    "arrays in place of a list": (lambda: pb.concat(leaf(3), leaf(3)), errors.ArgumentTypeError, ["pb.concat([a, b])"]),
    "matrices in place of a list": (
        lambda: pb.concat(np.ones((2, 2)), np.ones((2, 2))), errors.ArgumentTypeError, ["pb.concat([a, b])"],
    ),
    "the same of stack": (lambda: pb.stack(leaf(3), leaf(3)), errors.ArgumentTypeError, ["pb.stack([a, b])"]),
    "sizes one by one": (lambda: pb.reshape(leaf(3), 3, 1), errors.ArgumentTypeError, ["pb.reshape(x, (3, 1))"]),
    "zeros": (lambda: pb.zeros(2, 3), TypeError, ["pb.zeros((2, 3))"]),
    "ones": (lambda: pb.ones(2, 3, 4), TypeError, ["pb.ones((2, 3, 4))"]),
    "a traced size": (lambda: pb.jit(lambda n: pb.zeros(n))(3), errors.ConversionError, ["zeros: shape", "static"]),
    "a traced count": (lambda: pb.jit(lambda n: pb.arange(n))(3), errors.ConversionError, ["static", "{here}"]),
    "nonzero in jit": (lambda: pb.jit(pb.nonzero)(np.ones(3)), errors.ConversionError, ["pb.where", "{here}"]),
    "mask in jit": (lambda: pb.jit(lambda x: x[x > 0])(np.ones(3)), errors.ConversionError, ["pb.where", "{here}"]),
    "numpy()": (lambda: leaf(3).numpy(), errors.ConversionError, ["detach()", "{here}"]),
    "scan": (
        lambda: pb.scan(lambda c, x: (pb.stack([c, c]), x), 1.0, np.ones(3)), errors.ShapeError,
        ["carry", "float64[2]"],
    ),
    "no forward": (lambda: type("M", (pb.nn.Module,), {})()(1.0), errors.ArgumentError, ["M", "def forward(self, x)"]),
    "dropout in jit": (
        lambda: pb.jit(lambda x: pb.nn.dropout(x, 0.5))(np.ones(3)), errors.ArgumentError, ["key=key", "{here}"],
    ),
    "truth of many": (lambda: bool(leaf(3) > 0), errors.ShapeError, ["(3,)", "pb.any"]),
    "names of einsum": (lambda: pb.einsum("ij,jk->iz", leaf(2, 2), leaf(2, 2)), errors.ArgumentError, ["ij,jk->iz"]),
    "singular": (lambda: pb.linalg.inv(pb.zeros((2, 2))), errors.SingularError, ["(2, 2)", "singular"]),
    "dtype": (lambda: pb.zeros(3, dtype="flaot32"), errors.DtypeError, ["flaot32", "float32"]),
    "complex loss": (
        lambda: pb.sum(pb.tensor([1j], requires_grad=True)).backward(), errors.DtypeError,
        ["complex128", "pb.real", "seed", "{here}"],
    ),
    "grad of a complex function": (lambda: pb.grad(lambda x: x * x)(1j), errors.DtypeError, ["complex128", "pb.real"]),
    "a list of numbers": (
        lambda: pb.grad(lambda x: np.linalg.norm([x[0], x[1]]))(np.ones(2)), errors.ConversionError,
        ["np.linalg.norm(np.stack([a, b]))"],
    ),
    "lists of lists": (
        lambda: pb.grad(lambda x: np.hstack([[x[0]], [1.0]])[0])(np.ones(2)), errors.ConversionError, ["use pb.hstack"],
    ),
    "a shape that is set": (
        lambda: pb.grad(lambda x: setattr(x, "shape", (2, 1)))(np.ones(2)), errors.GraphError,
        ["x = x.reshape((2, 1))"],
    ),
    "zeros written to": (lambda: pb.grad(write_into_zeros)(np.ones(3)), errors.ConversionError, ["np.zeros_like(x)"]),
    "zeros written to in jit": (
        lambda: pb.jit(write_into_zeros)(np.ones(3)), errors.ConversionError, ["np.zeros_like(x)"],
    ),
    "math": (lambda: pb.grad(lambda x: math.sin(x))(1.0), errors.ConversionError, ["np.sin", "math"]),
    "math on the tape": (lambda: math.sin(leaf(1)), errors.ConversionError, ["np.sin", "math"]),
    "np.array": (lambda: np.array([leaf(1)[0], leaf(1)[0]]), errors.ConversionError, ["np.stack"]),
    "a list": (lambda: pb.grad(lambda x: pb.sum(x**2))([1.0, 2.0]), TypeError, ["argument 0 is a list", "np.array"]),
    "truth in a graph": (truth_of_a_graph, errors.ConversionError, ["of a graph", "g.run", "{here}"]),
    "a module with a function": (
        lambda: pb.save(os.devnull, pb.nn.Sequential(pb.nn.Linear(2, 2), pb.relu)), errors.ArgumentError,
        ["the value at '1' is a function", "state_dict()"],
    ),
    "a function in a list of a module": (
        lambda: pb.save(os.devnull, {"net": Steps([pb.nn.Linear(2, 2), pb.relu])}), errors.ArgumentError,
        ["'net.steps.1'", "state_dict()"],
    ),
    "gradcheck of a tuple": (lambda: pb.gradcheck(pb.sum, (np.ones(3),)), errors.ArgumentTypeError, ["(f, x, y)"]),
    "dim": (lambda: leaf(2, 3).sum(dim=0), errors.ArgumentTypeError, ["sum", "'dim'", "axis="]),
    "dim of a composite": (lambda: pb.softmax(leaf(2, 3), dim=1), errors.ArgumentTypeError, ["softmax", "axis="]),
    "dim of a method": (lambda: leaf(2, 3).argmax(dim=1), errors.ArgumentTypeError, ["argmax", "axis="]),
    "dims": (lambda: pb.flip(leaf(3), dims=0), errors.ArgumentTypeError, ["flip", "axis="]),
    "keepdim": (lambda: pb.mean(leaf(3), keepdim=True), errors.ArgumentTypeError, ["mean", "keepdims="]),
    "inplace": (lambda: pb.nn.dropout(leaf(3), inplace=True), errors.ArgumentTypeError, ["Results are always new"]),
    "a misspelt keyword": (lambda: pb.std(leaf(3), keepdmis=True), errors.ArgumentTypeError, ["keepdims="]),
    "an unknown keyword": (lambda: pb.softmax(leaf(3), out=1), errors.ArgumentTypeError, ["keywords are axis"]),
    "iteration of a number": (lambda: iter(pb.tensor(1.0)), TypeError, ["0-d", "x.item()"]),
    "size of a float": (lambda: range(pb.tensor(3.0)), TypeError, ["integer", "float64", "int(x)"]),
}  # fmt: skip


def message_of(error):
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("name", MISTAKES)
def test_message_says_what_to_do(name):
    mistake, kind, parts = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    message = message_of(caught.value)
    for part in parts:
        assert part.format(here="test_mistakes.py:") in message, message


def torch_like(path):
    np.savez(f"{path}.npz", np.ones(9))


FILES = {
    "zip": (torch_like, ["not a safetensors file", "zip", "torch.load"]),
    "npy": (lambda path: np.save(f"{path}.npy", np.ones(9)), ["np.save", "np.load"]),
    "pickle": (lambda path: Path(path).write_bytes(b"\x80\x04\x95abcdefghijkl"), ["pickle.load"]),
    "text": (lambda path: Path(path).write_text("{'a': 1, 'b': 2, 'c': 3}"), ["JSON"]),
}


@pytest.mark.parametrize("name", FILES)
def test_load_of_another_format_says_what_reads_it(name, tmp_path):
    write, parts = FILES[name]
    with pytest.raises(errors.FormatError) as caught:
        load_of(write)(tmp_path)
    assert all(part in str(caught.value) for part in parts), caught.value


def by_logsumexp(x):
    from scipy import special

    return special.logsumexp(x)


def by_norm(x):
    from scipy import stats

    return stats.norm.logpdf(x).sum()


def by_solve(x):
    import scipy.linalg

    return scipy.linalg.solve(np.eye(3), x).sum()


def by_quad(x):
    from scipy import integrate

    return integrate.quad(lambda t: x[0] * t, 0, 1)[0]


def by_brentq(x):
    from scipy import optimize

    return optimize.brentq(lambda t: t * t - x[0], 0, 5)


def by_pchip(x):
    from scipy import interpolate

    return interpolate.PchipInterpolator([0, 1, 2], x)(0.5)


SCIPY = {
    by_logsumexp: ["special.logsumexp works on bare arrays", "pb.special.logsumexp", "SCIPY_ARRAY_API=1"],
    by_solve: ["scipy.linalg.solve works", "pb.linalg.solve"],
    by_quad: ["integrate.quad works", "pb.trapezoid"],
    by_brentq: ["optimize.brentq works", "pb.root"],
    by_pchip: ["interpolate.PchipInterpolator works", "CubicSpline"],
}


@pytest.mark.parametrize("f", [by_logsumexp, by_norm, by_solve])
def test_functions_of_scipy_with_a_rule_work_in_a_transform(f):
    assert pb.grad(f)(np.ones(3)).any()


@pytest.mark.parametrize("f", [by_quad, by_brentq, by_pchip])
def test_other_functions_of_scipy_name_ours_in_a_transform(f):
    with pytest.raises(errors.PullbackError) as caught:
        pb.grad(f)(np.ones(3))
    assert SCIPY[f][1] in str(caught.value)


@pytest.mark.filterwarnings("default")  # what C code replaces is a warning too
@pytest.mark.parametrize("f", SCIPY)
def test_functions_of_scipy_name_ours_on_a_tape(f):
    # C code replaces the error; outside of a transform it can only be read as the cause
    is_replaced = f is by_brentq
    with pytest.raises(SystemError if is_replaced else errors.ConversionError) as caught:
        f(leaf(3))
    error = caught.value.__cause__ if is_replaced else caught.value
    assert isinstance(error, errors.ConversionError)
    assert all(part in str(error) for part in SCIPY[f]), error


def test_a_bound_in_c_code_that_replaces_errors_is_warned_of():
    from scipy import optimize

    warned = pytest.warns(RuntimeWarning, match=r"optimize.brentq works on bare arrays: use pb.root")
    with warned as caught, pytest.raises(RuntimeError, match="parse"):
        optimize.brentq(lambda t: t * t - 2, 0, leaf(1)[0] * 5)
    assert caught[0].filename == __file__


READS = {"float": lambda x: float(x), "item": lambda x: x.item(), "int": lambda x: int(x), "complex": complex}


@pytest.mark.parametrize("name", READS)
def test_reading_a_number_follows_one_rule(name):
    read = READS[name]
    assert read(leaf(1) * 2) == 2, "on the tape a training loop reads its loss"
    messages = set()
    for transform in (pb.grad, pb.jit, lambda f: lambda x: pb.vjp(f, x), lambda f: lambda x: pb.jvp(f, (x,), (x,))):
        with pytest.raises(errors.ConversionError) as caught:
            transform(lambda x: x * read(x))(np.array(2.0))
        messages.add(str(caught.value).partition("\n")[2])
    with pytest.raises(errors.ConversionError):
        pb.vmap(lambda x: x * read(x))(np.ones(2))
    assert "Use the tensor itself in place of the number." in "\n".join(messages)


def test_gradient_of_an_intermediate_warns_once_a_line():
    x = leaf(3)
    y = x * 2.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            assert y.grad is None
        copy.deepcopy(y)  # the package's own reading is silent
        assert x.grad is None
        assert pb.tensor([1.0]).grad is None
    (warning,) = caught
    assert "retain_grad() before backward" in str(warning.message)
    assert warning.filename == __file__


def test_retained_gradients_do_not_warn():
    x = leaf(3)
    y = x * 2.0
    y.retain_grad()
    assert y.grad is None
    z = x * 3.0
    pb.sum(y * z).backward(inputs=[x, z])
    assert y.grad is not None
    assert z.grad is not None
    x *= 2.0
    assert x.grad is not None, "an updated leaf has the gradient of its value as a leaf"


def test_number_of_another_tape_may_be_read_inside_grad():
    """As `item()`: the function does not differentiate it."""
    w = leaf(1)
    assert pb.grad(lambda x: x * float(w))(2.0) == 1.0


LIBRARY = """
def scaled(x):
    return x * 2.0

def number(x):
    return float(x)
"""


@pytest.fixture
def installed_package(tmp_path, monkeypatch):
    """A package as pip installs it."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "a_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield __import__("a_library")
    del sys.modules["a_library"]


def test_line_is_the_users_where_a_package_calls_the_op(installed_package):
    x = leaf(3)
    y = installed_package.scaled(x)
    assert y.node.where().startswith(f"{os.path.relpath(__file__)}:")
    with pytest.raises(errors.ShapeError, match=r"test_mistakes\.py"):
        y.backward()


def test_number_that_a_package_takes_is_refused(installed_package):
    with pytest.raises(errors.ConversionError, match=r"installed_package.number works on bare arrays"):
        installed_package.number(leaf(1))


def test_line_is_the_users_where_the_standard_library_calls_the_op():
    x = copy.deepcopy(leaf(3) * 2.0)
    assert x.node.where().startswith(f"{os.path.relpath(__file__)}:")
    (y,) = map(pb.sum, [leaf(3)])
    assert "test_mistakes.py" in y.node.where()


def test_lines_are_seen_from_the_working_directory(tmp_path, monkeypatch):
    node = (leaf(3) * 2.0).node
    assert node.where().startswith(os.path.relpath(__file__))
    monkeypatch.chdir(tmp_path)
    assert node.where().startswith(min(os.path.relpath(__file__), __file__, key=len))
    monkeypatch.chdir(Path(__file__).parent)
    assert node.where().startswith("test_mistakes.py:")


def test_errors_of_layers_name_the_layer_once():
    net = deep_network()
    with pytest.raises(errors.ShapeError) as caught:
        net(leaf(5, 4))
    assert caught.value.__notes__ == ["  in Sequential at '1.2', a Linear"]
    with pytest.raises(errors.ShapeError) as caught:
        pb.nn.Linear(4, 8)(leaf(5, 3))
    assert not hasattr(caught.value, "__notes__"), "there is one layer, and the message is about it"
    with pytest.raises(errors.ShapeError) as caught:
        pb.jit(lambda net, x: net(x))(net.arrays(), np.ones((5, 4)))
    assert "1.2" in message_of(caught.value)


def test_copy_of_a_tracked_tensor_is_on_its_tape():
    x = leaf(3)
    pb.sum(pb.asarray(x, copy=True) ** 2).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(pb.asarray(x, copy=True) ** 2))(np.ones(2)), [2.0, 2.0])


def test_numbers_are_not_iterable_to_numpy():
    assert not np.iterable(pb.tensor(1.0))
    assert np.iterable(pb.tensor([1.0]))


def test_histogram_of_a_tensor_is_drawn():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    counts, _, _ = pyplot.hist(pb.tensor([1.0, 2.0, 2.0]))
    assert counts.sum() == 3


def test_missing_cupy_names_its_extra():
    code = (
        "import sys; sys.modules['cupy'] = None\n"
        "import pullback as pb\n"
        "try: pb.tensor(1.0).to_device('cuda:0')\n"
        "except pb.errors.DeviceError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "pullback[cuda12]"' in found
    assert "pullback doctor" in found


@pytest.fixture
def no_shared_code(monkeypatch):
    """What other tests compiled for other sizes is not found."""
    link = pytest.importorskip("pullback.compile.cpu.runtime.link", reason="llvmlite is not installed")
    monkeypatch.setattr(link, "_SHARED", {})


@pytest.mark.usefixtures("quick_code", "no_shared_code")
def test_a_storm_of_traces_warns_once_and_names_the_argument(monkeypatch):
    monkeypatch.setattr(compiled, "STORM", 4)
    monkeypatch.setattr(recompilation, "STORM", 4)
    f = pb.jit(lambda x, p: x * 2.0 + p["w"])
    with pytest.warns(RuntimeWarning, match=r"<lambda> was traced 4 times.*argument\[1\]\['w'\]") as caught:
        [f(np.ones(()), {"w": np.ones((2,) * n)}) for n in range(1, 8)]
    assert len(caught) == 1
    assert "Pad it to a few sizes" in str(caught[0].message)
    assert caught[0].filename == __file__


STORMS = {
    "static": (lambda: pb.jit(lambda x, n: x * n, static_argnums=1), lambda n: (np.ones(2), n), "static values"),
    "structure": (lambda: pb.jit(lambda xs: sum(xs)), lambda n: ([np.ones(2)] * n,), "structures"),
    "dtype": (
        lambda: pb.jit(lambda x: x * 2),
        lambda n: (np.ones(2, ["f4", "f8", "i4", "i8", "i2", "u1", "u2"][n]),), "one dtype",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("quick_code", "no_shared_code")
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_says_what_changes(name, monkeypatch):
    monkeypatch.setattr(compiled, "STORM", 4)
    make, arguments, message = STORMS[name]
    f = make()
    with pytest.warns(RuntimeWarning, match=message):
        [f(*arguments(n)) for n in range(1, 5)]


@pytest.mark.usefixtures("quick_code")
def test_traces_and_fallbacks_are_logged(caplog, monkeypatch):
    with caplog.at_level("DEBUG", logger="pullback"):
        pb.jit(lambda x: x * 2.0)(np.ones(3))
    assert "jit: <lambda> is traced for float64[3]: 1 times so far" in caplog.text
    monkeypatch.setattr(specialization, "make_runner", numpy_runner)
    with caplog.at_level("INFO", logger="pullback"):
        form = pb.jit(lambda x: x * 3.0)
        form(np.ones(3))
        with pytest.raises(errors.ArgumentError, match="runs on NumPy, and there is no native code"):
            form.lower(np.ones(3)).explain()
    assert "runs on NumPy, op by op" in caplog.text


def numpy_runner(program, options, lines):
    return NumpyRunner(program, options.donated)
