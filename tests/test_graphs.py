"""Graphs as data: staged, printed, read back, kept, drawn, derived, built by hand; and everything hostile refused."""

import base64
import contextlib
import copy
import importlib
import itertools
import json
import pickle
import pkgutil
import re
import xml.etree.ElementTree as ET
from typing import NamedTuple

import numpy as np
import pytest
from records import cases, flat_vector, name

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, GraphError, LeakError, PullbackError, ShapeError
from pullback.ops.dispatch import apply
from pullback.ops.op import Op
from pullback.program import passes
from pullback.program.encoding import closed_scope, ops_by_name
from pullback.program.ir import Equation, Program, Symbol
from pullback.transforms.custom.custom_op import CustomOp
from pullback.transforms.stage import stage


def mixed(x):
    return {"s": pb.sum(pb.sin(x["a"]) * x["b"][0]), "t": (x["a"], None, [pb.exp(x["b"][1])])}


EXAMPLE = {"a": np.array([0.5, 1.0, 2.0]), "b": (np.float32(2.0), np.ones((2, 2), "float32"))}


def again(graph, **options):
    """The graph by text and by JSON, which must say the same as it does."""
    text = graph.text()
    read = pb.Program.parse(text, **options)
    assert read.text() == text
    kept = pb.Program.from_json(graph.to_json(), **options)
    assert kept.text() == text
    assert kept.to_json() == graph.to_json() == read.to_json()
    return read, kept


def same(found, wanted):
    for f, w in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
        np.testing.assert_array_equal(f, w)


# Every op


@pytest.mark.parametrize("case", cases(lambda op: op.spec is not None), ids=name)
def test_every_op_round_trips(case):
    graph = stage(lambda *xs: apply(case.op, *xs, **case.static))(*map(np.asarray, case.args))
    wanted = flat_vector(graph.verify().run(*map(np.asarray, case.args)))
    for read in again(graph):
        np.testing.assert_array_equal(flat_vector(read.run(*map(np.asarray, case.args))), wanted)


@pytest.mark.parametrize("case", cases(lambda op: op.spec is not None and op.differentiable), ids=name)
def test_every_gradient_round_trips(case):
    """Rules with the samples themselves as constants: every constant and every static of every rule."""
    if not case.floats:
        pytest.skip("nothing to differentiate")
    graph = stage(pb.grad(case.scalar, argnums=tuple(range(len(case.floats)))))(*case.floats)
    graph.verify()
    wanted = flat_vector(graph.run(*case.floats))
    for read in again(graph):
        np.testing.assert_array_equal(flat_vector(read.run(*case.floats)), wanted)


# Staging


def test_trees_go_in_and_come_out():
    graph = stage(mixed)(EXAMPLE)
    found, wanted = graph.run(EXAMPLE), mixed(EXAMPLE)
    assert found["t"][1] is None
    np.testing.assert_array_equal(found["s"], wanted["s"])
    np.testing.assert_array_equal(found["t"][2][0], wanted["t"][2][0])
    for read in again(graph):
        assert flat_vector(read.run(EXAMPLE)["t"][2][0]).tolist() == flat_vector(wanted["t"][2][0]).tolist()


def test_specs_stage_without_arrays_and_keywords_stay_keywords():
    graph = pb.stage(lambda x, *, scale: x * scale)(pb.Spec((2, 3), "float32"), scale=pb.Spec((), "float32"))
    assert graph.run(np.ones((2, 3), "float32"), scale=np.float32(3)).tolist() == [[3.0] * 3] * 2
    with pytest.raises(ArgumentError, match="wants arguments"):
        graph.run(np.ones((2, 3), "float32"), np.float32(3))
    assert again(graph)[0](np.ones((2, 3), "float32"), scale=np.float32(3)).dtype == np.float32


def test_a_graph_without_inputs_equations_or_outputs():
    assert again(stage(lambda: np.arange(3.0))())[0].run().tolist() == [0.0, 1.0, 2.0]
    assert again(stage(lambda x: ())(np.ones(2)))[0].run(np.ones(2)) == ()
    assert again(stage(lambda x: None)(np.ones(2)))[0].run(np.ones(2)) is None
    assert again(stage(lambda x: x)(np.ones(2)))[1].run(np.ones(2)).tolist() == [1.0, 1.0]
    assert again(stage(lambda x: (x, x))(np.ones(())))[1].run(4.0) == (4.0, 4.0)
    assert again(stage(lambda x: [x])(np.ones(())))[1].run(4.0) == [4.0]


def test_what_the_function_meets_is_kept_as_it_was():
    a = np.ones(3)
    graph = stage(lambda x: (x * a, a))(np.ones(3))
    a[:] = 7.0
    assert flat_vector(graph.run(np.ones(3))).tolist() == [1.0] * 6


def test_untracked_tensors_are_constants_and_tracked_ones_stay_on_the_tape():
    graph = stage(lambda x: x * pb.ones(2))(np.zeros(2))
    assert again(graph)[0].run(np.ones(2)).tolist() == [1.0, 1.0]
    w = pb.tensor([1.0, 2.0], requires_grad=True)
    graph = stage(lambda x: pb.sum(x * w))(np.zeros(2))
    graph.run(np.array([3.0, 4.0])).backward()
    assert w.grad.tolist() == [3.0, 4.0]
    assert "<Tensor" in graph.text()
    with pytest.raises(ArgumentError, match="could not be serialized"):
        pb.Program.parse(graph.text())
    with pytest.raises(ArgumentError, match="equation 0, multiply: an object of class Tensor"):
        graph.to_json()


def test_staging_refuses_what_is_no_array():
    with pytest.raises(ArgumentError, match="argument is a tree of arrays, got a str"):
        stage(lambda x: x)("abc")
    with pytest.raises(ArgumentError, match="each result"):
        stage(lambda x: {"f": len})(np.ones(2))
    with pytest.raises(ArgumentError, match=r"stage\(f\)\(\*examples\)"):
        stage(np.ones(2))
    with pytest.raises(ConversionError):
        stage(lambda x: float(x))(np.ones(()))


def test_run_checks_before_anything_runs():
    graph = stage(mixed)(EXAMPLE)
    with pytest.raises(ShapeError, match=r"input 0 \(arguments\[0\]\[0\]\['a'\]\) of this program is float64\[3\]"):
        graph.run({**EXAMPLE, "a": np.ones(4)})
    with pytest.raises(DtypeError, match=r"is float32\[\], got float64\[\]"):
        graph.run({**EXAMPLE, "b": (np.float64(2), EXAMPLE["b"][1])})
    with pytest.raises(ArgumentError, match="wants arguments"):
        graph.run(EXAMPLE, 1.0)
    with pytest.raises(ArgumentError, match="wants 1 inputs"):
        Program(graph.inputs[:1], (), ()).run()


def test_graphs_replay_on_every_kind_of_value():
    def f(x):
        return pb.sum(pb.sin(x) * x)

    x = np.array([0.3, 1.0, 2.0])
    graph = stage(f)(x)
    np.testing.assert_allclose(pb.grad(graph)(x), pb.grad(f)(x))
    np.testing.assert_allclose(pb.jvp(graph.run, (x,), (x,))[1], pb.jvp(f, (x,), (x,))[1])
    np.testing.assert_allclose(pb.vmap(graph)(np.stack([x, 2 * x])), [f(x), f(2 * x)])
    np.testing.assert_allclose(pb.hessian(graph.run)(x), pb.hessian(f)(x))
    assert stage(graph.run)(x).text() == graph.text()
    tensor = pb.tensor(x, requires_grad=True)
    graph(tensor).backward()
    np.testing.assert_allclose(tensor.grad.numpy(), pb.grad(f)(x))


def test_a_scope_that_is_over_stays_over():
    graph = stage(pb.sin)(np.ones(2))
    with pytest.raises(LeakError):
        pb.sin(graph.inputs[0])
    with pytest.raises(LeakError):
        pb.sin(again(graph)[0].inputs[0])


def test_custom_ops_are_named_and_given():
    @pb.custom_op
    def cube(x):
        return x**3

    cube.def_spec(lambda x: x)
    graph = stage(cube)(np.ones(2))
    with pytest.raises(ArgumentError, match=r"no op 'cube'.*\n.*ops="):
        pb.Program.parse(graph.text())
    for ops in ([cube], {"cube": cube}, cube):
        for read in again(graph, ops=ops):
            assert read.run(np.array([2.0, 3.0])).tolist() == [8.0, 27.0]
    with pytest.raises(ArgumentError, match="wants ops"):
        pb.Program.parse(graph.text(), ops=[len])


def test_control_flow_and_other_transforms_stage():
    def f(x):
        return pb.scan(lambda c, y: (c + y, c * y), x[0], x)[1]

    x = np.array([1.0, 2.0, 3.0])
    for read in again(stage(f)(x)):
        np.testing.assert_array_equal(read.run(x), f(x))
    for transform in (pb.grad(lambda x: pb.sum(f(x))), pb.jacobian(f), pb.vmap(lambda y: f(x * y))):
        for read in again(stage(transform)(x)):
            np.testing.assert_allclose(read.run(x), transform(x))


# Constants


@pytest.mark.parametrize("dtype", sorted(pb.dtypes.NAMES))
def test_constants_of_every_dtype_come_back_to_the_last_bit(dtype):
    dtype = pb.dtypes.as_dtype(dtype)
    rng = np.random.default_rng(3)
    for shape in ((), (0,), (3,), (2, 0, 3), (4, 5)):
        raw = rng.integers(0, 2 if dtype.name == "bool" else 256, (int(np.prod(shape)), dtype.itemsize), np.uint8)
        constant = raw.reshape(-1).view(dtype).reshape(shape)  # NaNs with odd bits among them
        graph = stage(lambda x, c=constant: (x, c))(np.ones(2))
        for read in again(graph):
            assert read.outputs[1].tobytes() == constant.tobytes()
            assert (read.outputs[1].dtype, read.outputs[1].shape) == (dtype, shape)
            with pytest.raises(ValueError, match="read-only"):
                read.outputs[1][...] = 1


@pytest.mark.parametrize("number", [True, 0, -3, 10**30, 1.5, -0.0, 1e-320, 1e300, float("inf"), float("-inf"), 2 - 3j])
def test_python_numbers_stay_python_numbers(number):
    x = np.ones(2, "complex64")
    graph = stage(lambda x: pb.multiply(x, number if abs(number) < 1e20 else float(number)))(x)
    for read in again(graph):
        assert read.outputs[0].spec == graph.outputs[0].spec
        with np.errstate(all="ignore"):
            same(read.run(x), graph.run(x))


def test_nan_is_a_number_in_text_and_json():
    graph = stage(lambda x: x * float("nan") + np.float32(np.nan))(np.ones(2))
    for read in again(graph):
        assert np.isnan(read.run(np.ones(2))).all()
    assert "NaN" not in graph.to_json()


def test_a_constant_used_twice_is_kept_once():
    big = np.arange(100.0)
    graph = stage(lambda x: x * big + big)(np.ones(100))
    assert graph.text().count("c0 = ") == 1
    assert "c1" not in graph.text()
    for read in again(graph):
        assert read.equations[0].args[1] is read.equations[1].args[1]
    assert "..." in str(graph)
    assert len(str(graph)) < 400


def test_layouts_and_byte_orders_do_not_matter():
    a = np.arange(24.0).reshape(4, 6)
    for view in (a.T, a[::2, ::-1], np.asfortranarray(a), np.broadcast_to(a[0], (3, 6))):
        graph = stage(lambda x, v=view: (x, v))(1.0)
        for read in again(graph):
            np.testing.assert_array_equal(read.outputs[1], view)


# Text


def test_text_is_readable():
    graph = stage(lambda x, y: pb.sum(x[1:, pb.asarray([0, 2])] * y).astype("float32"))(np.ones((3, 4)), 2.0)
    assert graph.text() == (
        "graph(x0: float64[3, 4], x1: float)\n"
        "  t0: float64[2, 2] = getitem(x0, array(int64[2], [0, 2]), index=(slice(1, None, None), SLOT))\n"
        "  t1: float64[2, 2] = multiply(t0, x1)\n"
        "  t2: float64[] = sum(t1, axis=(0, 1), keepdims=False)\n"
        "  t3: float32[] = astype(t2, dtype=float32)\n"
        "  return t3"
    )
    again(graph)


def test_text_by_hand_may_name_things_as_it_likes():
    graph = pb.Program.parse(
        """
        graph(weights: float64[2], x: float64[2]) from (({"x": x, "w": weights},), {})

          y: float64[2] = multiply(weights, x,)
          total: float64[] = sum(y, axis=(0,), keepdims=False)
          return [total, c]
        constants
          c = array(float32[1], "AACAPw==")
        """
    )
    total, c = graph.run({"w": np.array([1.0, 2.0]), "x": np.array([3.0, 4.0])})
    assert (total, c.tolist()) == (11.0, [1.0])


GOOD = """graph(x0: float64[3])
  t0: float64[3] = sin(x0)
  t1: float64[] = sum(t0, axis=(0,), keepdims=False)
  return t1"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph(", "program(", "line 1: the first line starts with graph"),
        ("sin(x0)", "nothing(x0)", "line 2: there is no op 'nothing'"),
        ("sin(x0)", "sin(x1)", "line 2: x1 is no value"),
        ("sin(x0)", "sin(t0)", "line 2: t0 is no value"),
        ("sin(x0)", "sin(t1)", "line 2: t1 is no value"),
        ("sin(x0)", "sin(x0", "line 2: wanted ','"),
        ("sin(x0)", "sin(x0) t", "line 2: wanted the end"),
        ("sin(x0)", "sin()", "equation 0, sin"),
        ("sin(x0)", "sin(x0, x0)", "equation 0, sin"),
        ("sin(x0)", "sin('x0')", "line 2: cannot read"),
        ("sin(x0)", 'sin("x0")', "line 2: a str stands where an array"),
        ("sin(x0)", "sin(float32)", "stands where an array"),
        ("sin(x0)", "sin(__import__)", "is no value"),
        ("sin(x0)", "sin(x0, axis=1)", "equation 0, sin"),
        ("sin(x0)", "sin(<Tensor>)", "could not be serialized"),
        ("t0: float64[3]", "t0: float32[3]", r"makes float64\[3\], the program has float32\[3\]"),
        ("t0: float64[3]", "t0: float64[4]", "the program has"),
        ("t0: float64[3]", "t0: quaternion[3]", "'quaternion' is no dtype"),
        ("t0: float64[3]", "t0: float64[-3]", "sizes that are not negative"),
        ("t0: float64[3]", "t0: float64[3.5]", "sizes that are not negative"),
        ("t0: float64[3]", "x0: float64[3]", "x0 is made twice"),
        ("t0: float64[3]", "t0: float64[3] on tpu:0", "'tpu:0' is no device"),
        ("t0: float64[3]", "t0: float64[1000000000, 1000000000]", "more elements than any memory"),
        ("axis=(0,)", "axis=(0)", "a tuple of one has a comma"),
        ("axis=(0,)", "axis=(7,)", "equation 1, sum"),
        ("axis=(0,)", "axis=None", "equation 1, sum"),
        ("axis=(0,)", "axis=" + "(" * 5000, "nested too deeply"),
        ("axis=(0,)", "axis=" + "9" * 5000, "too long"),
        ("axis=(0,)", "axis=slice(1)", "not well formed"),
        ("axis=(0,)", "axis=(0,), axis=(0,)", "axis is given twice"),
        ("axis=(0,)", "axis=(0,), x0", "before static"),
        ("keepdims=False", "keepdims=exit()", "exit is no value"),
        ("return t1", "return t2", "t2 is no value"),
        ("return t1", "return (t1, *)", "a structure is made of"),
        ("return t1", "return {3.5: t1}", "a structure is made of"),
        ("return t1", 'return {"a": SLOT}', "a structure is made of"),
        ("return t1", "return t1 t1", "wanted ','"),
        ("return t1", "return", "wanted a value"),
        ("return t1", "return t1\nmore", "only constants"),
        ("return t1", "return t1\nconstants\n  x0 = 2.0", "line 1: x0 is made twice"),
        ("return t1", "return t1\nconstants\n  c = array(float64[2], [1.0])", "has 2 elements, got 1"),
        ("return t1", "return t1\nconstants\n  c = array(float64[99999999999], [1.0])", "elements, got 1"),
        ("return t1", 'return t1\nconstants\n  c = array(float64[99999999999], "AAAA")', "characters of base64"),
        ("return t1", 'return t1\nconstants\n  c = array(uint8[3], "????")', "not in base64"),
        ("return t1", "return t1\nconstants\n  c = array(uint8[1], [256])", "do not fit"),
        ("return t1", "return t1\nconstants\n  c = array(uint8[1], [[1]])", "flat list"),
        ("return t1", "", "ends with return"),
        ("x0: float64[3])", "x0: float64[3]) from ((x0, x0), {})", "once each"),
        ("x0: float64[3])", "x0: float64[3]) from ((2.0,), {})", "once each"),
        ("x0: float64[3])", "x0: float64[3]) from 3", "arguments are a pair"),
        ("x0: float64[3])", "x0: float64[3]) from ((<Line>,), {})", "could not be serialized"),
    ],
)
def test_bad_text_is_refused_with_its_line(old, new, message):
    assert old in GOOD
    with pytest.raises(PullbackError, match=message):
        pb.Program.parse(GOOD.replace(old, new, 1))


def test_text_cut_or_changed_anywhere_never_escapes():
    """Fuzzing: whatever is done to the text, it reads as a graph or is refused with an error of ours."""
    text = stage(lambda x, y: pb.sum(x[1:, np.array([0, 2])] * y))(np.ones((3, 4)), 2.0).text()
    rng = np.random.default_rng(0)
    for _ in range(600):
        letters = list(text)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(letters)))
            letters[at] = rng.choice(
                ["", "(", ")", ",", "0", "9", "-", '"', "x", "[", "{", "*", "=", ":", "<", "\n", "é"]
            )
        changed = "".join(letters)
        try:
            graph = pb.Program.parse(changed)
        except PullbackError:
            continue
        assert pb.Program.parse(graph.text()).text() == graph.text()


# JSON


def test_json_cut_or_changed_anywhere_never_escapes():
    text = stage(lambda x, y: pb.sum(x[1:, np.array([0, 2])] * y))(np.ones((3, 4)), 2.0).to_json()
    rng = np.random.default_rng(0)
    for _ in range(600):
        letters = list(text)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(letters)))
            letters[at] = rng.choice(["", "(", "]", ",", "0", "9", "-", '"', "x", "[", "{", "}", "null", ":"])
        try:
            graph = pb.Program.from_json("".join(letters))
        except PullbackError:
            continue
        assert pb.Program.from_json(graph.to_json()).text() == graph.text()


def test_every_part_of_the_json_replaced_by_anything_never_escapes():
    data = json.loads(stage(lambda x: pb.sum(x[1:, np.array([0, 2])] * 2.5))(np.ones((3, 4))).to_json())
    strange = [
        None,
        True,
        -1,
        1e308,
        "",
        "x",
        [],
        {},
        [[]],
        {"value": 99},
        {"tuple": 3},
        {"slice": [1]},
        {"float": "1"},
    ]

    def places(node, path=()):
        yield path
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            yield from places(node[key], (*path, key))

    for path, new in itertools.product(list(places(data)), strange):
        changed = copy.deepcopy(data)
        if not path:
            changed = new
        else:
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = new
        with contextlib.suppress(PullbackError):
            pb.Program.from_json(json.dumps(changed)).text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "not the JSON of a pullback graph"),
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.pop("outputs"), "KeyError"),
        (lambda d: d["equations"][0].update(op="os.system"), "no op 'os.system'"),
        (lambda d: d["equations"][0].update(args=[{"value": 1}]), "number of nothing made before"),
        (lambda d: d["equations"][0].update(args=[{"value": -1}]), "number of nothing made before"),
        (lambda d: d["equations"][0].update(args=["text"]), "a str stands where an array"),
        (lambda d: d["equations"][0]["results"][0].update(shape=[10**12, 10**12]), "more elements"),
        (lambda d: d["equations"][0]["results"][0].update(shape=[4]), "the program has"),
        (lambda d: d["inputs"][0].update(dtype="object"), "is no dtype"),
        (lambda d: d["constants"].append({"dtype": "float64", "shape": [10**9], "base64": "AAAA"}), "characters"),
        (lambda d: d["constants"].append({"dtype": "float64", "shape": [1], "base64": 5}), "in base64"),
        (lambda d: d["equations"][0].update(static={"f": {"call": "x"}}), "'call' is no kind of value"),
        (lambda d: d.update(arguments={"tree": {"tuple": [{"mark": "star"}]}}), "arguments are a pair"),
    ],
)
def test_bad_json_is_refused(change, message):
    data = json.loads(stage(pb.sin)(np.ones(3)).to_json())
    change(data)
    with pytest.raises(PullbackError, match=message):
        pb.Program.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 10_000, "null", "[]", b"\xff\xfe", None])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ArgumentError, match="from_json"):
        pb.Program.from_json(text)


def test_indices_of_absurd_shape_take_no_memory():
    text = """graph(x0: float64[5], x1: int64[1000000, 1000000])
  t0: float64[1000000, 1000000] = getitem(x0, x1, index=(SLOT,))
  return t0"""
    assert pb.Program.parse(text).text() == text


class Pair(NamedTuple):
    x: object
    y: object


def test_containers_that_cannot_be_written_are_said_so():
    graph = stage(lambda p: Pair(p.x * p.y, p.y))(Pair(np.ones(2), np.ones(2)))
    assert graph.run(Pair(np.ones(2), np.full(2, 3.0))).x.tolist() == [3.0, 3.0]
    assert "Pair" in graph.text()
    with pytest.raises(ArgumentError, match="could not be serialized"):
        pb.Program.parse(graph.text())
    with pytest.raises(ArgumentError, match="only tuples, lists, dicts"):
        graph.to_json()


def test_copies_and_pickles():
    graph = stage(mixed)(EXAMPLE)
    assert copy.copy(graph) is graph
    assert copy.deepcopy(graph) is graph
    assert pickle.loads(pickle.dumps(graph)).text() == graph.text()


# The verifier


def simple():
    return stage(lambda x: pb.sum(pb.sin(x) * 2.0))(np.ones(3))


def test_the_verifier_finds_each_kind_of_damage():
    graph = simple()
    first, second, third = graph.equations
    stranger = Symbol(first.results[0].spec, closed_scope(), [], {})
    wrong = Symbol(pb.Spec((4,), "float64"), closed_scope(), [], {})
    damaged = {
        "argument 0 .* is no input": (graph.inputs, (second, first, third), graph.outputs),
        "output 0 .* is no input": (graph.inputs, graph.equations, (stranger,)),
        "is made twice": (graph.inputs, (first, first, second, third), graph.outputs),
        "inputs: .* is made twice": (graph.inputs * 2, graph.equations, graph.outputs),
        "the program has": (graph.inputs, (Equation((wrong,), first.op, first.args, {}),), ()),
        "equation 0, sum": (graph.inputs, (Equation((wrong,), third.op, first.args, {"axis": (3,)}),), ()),
        "a float stands": (graph.inputs, (Equation((2.0,), first.op, first.args, {}),), ()),
        "no input and no earlier": (graph.inputs, (Equation((wrong,), first.op, (stranger,), {}),), ()),
        "makes .*, the program has nothing": (graph.inputs, (Equation((), first.op, first.args, {}),), ()),
    }
    assert graph.verify() is graph
    for message, parts in damaged.items():
        with pytest.raises(PullbackError, match=message):
            Program(*parts).verify()


def test_a_pass_that_breaks_a_graph_is_found(monkeypatch):
    def forgetful(graph):
        return Program(graph.inputs, graph.equations[1:], graph.outputs)

    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, forgetful))
    with pytest.raises(GraphError, match="no input and no earlier result"):
        passes.optimize(simple())


def test_passes_keep_the_structure_and_the_result():
    graph = stage(lambda x: {"y": pb.sin(x["a"]) * 1.0 + pb.sin(x["a"]), "z": pb.exp(np.zeros(2)) + x["a"]})(
        {"a": np.ones(2)}
    )
    small = passes.optimize(graph)
    assert len(small.equations) < len(graph.equations)
    a = {"a": np.array([0.5, 1.0])}
    np.testing.assert_array_equal(small.run(a)["y"], graph.run(a)["y"])
    again(small)


# Derivatives and compiling


def test_gradients_and_jvp_are_graphs():
    def f(w, x, n):
        return {"loss": pb.sum((x @ w["a"]) ** 2) * w["b"], "other": pb.sum(w["a"]), "count": n + 1}

    w, x = {"a": np.array([1.0, 2.0]), "b": np.array(3.0)}, np.eye(3, 2)
    graph = stage(f)(w, x, np.array(4))
    loss = [graph.run(w, x, np.array(4))[k] for k in ("count", "loss", "other")]
    assert [float(v) for v in loss] == [5.0, 15.0, 3.0]
    found = graph.gradients(outputs=1, wrt=0).run(w, x, np.array(4))
    wanted = pb.grad(lambda w: f(w, x, 4)["loss"])(w)
    assert (found["a"].tolist(), float(found["b"])) == (wanted["a"].tolist(), float(wanted["b"]))
    both = graph.gradients([1, 2], (0, 1)).run(w, x, np.array(4))
    assert both[0]["a"].tolist() == (wanted["a"] + 1).tolist()
    assert both[1].shape == (3, 2)
    pushed = graph.jvp(0).run(w, x, np.array(4), w)
    assert float(pushed[1]["loss"]) == pytest.approx(45.0)
    for derived in (graph.gradients(1), graph.jvp()):
        again(derived)
    second = graph.gradients(1, 1).jvp(1).run(w, x, np.array(4), x)[1]
    wanted = pb.jvp(pb.grad(lambda x: f(w, x, 4)["loss"]), (x,), (x,))[1]
    np.testing.assert_allclose(second, wanted)


def test_gradients_refuse_what_has_none():
    graph = stage(lambda x, n: (x * 2.0, n))(np.ones(2), np.array(1))
    with pytest.raises(ArgumentError, match=r"output 0 is float64\[2\], wanted one"):
        graph.gradients(0)
    with pytest.raises(ArgumentError, match=r"output 1 is int64"):
        graph.gradients(1)
    with pytest.raises(ArgumentError, match="there is no 2"):
        graph.gradients(2)
    with pytest.raises(ArgumentError, match="wrt: there is no 'x'"):
        graph.gradients((), wrt=["x"])
    with pytest.raises(ArgumentError, match="no argument is floating"):
        stage(lambda n: n)(np.array(1)).jvp()


def test_compiled_graphs_are_functions_like_others():
    graph = stage(mixed)(EXAMPLE)
    compiled = graph.compile()
    for _ in range(2):
        np.testing.assert_allclose(compiled(EXAMPLE)["s"], mixed(EXAMPLE)["s"])
    found = pb.grad(lambda x: compiled(x)["s"])(EXAMPLE)
    np.testing.assert_allclose(found["a"], pb.grad(lambda x: mixed(x)["s"])(EXAMPLE)["a"])
    with pytest.raises(ShapeError, match="of this program"):
        compiled({**EXAMPLE, "a": np.ones(4)})
    x = np.ones(3)
    again(stage(lambda x: x * 2.0)(x))[0].compile(donate_argnums=0)(x)


# Pictures


def deep(x):
    for _ in range(40):
        x = pb.tanh(x * 1.01)
    return pb.sum(x)


@pytest.mark.parametrize(
    "graph",
    [
        stage(mixed)(EXAMPLE),
        stage(pb.grad(deep))(np.ones(3)),
        stage(lambda: np.ones(2))(),
        stage(lambda x: ())(1.0),
        stage(lambda x: pb.split(x, 3))(np.ones(6)),
    ],
    ids=["trees", "deep", "no inputs", "no outputs", "several results"],
)
def test_pictures_are_well_formed_and_nothing_overlaps(graph, tmp_path):
    graph.draw(tmp_path / "g.svg")
    root = ET.fromstring((tmp_path / "g.svg").read_text())
    space = "{http://www.w3.org/2000/svg}"
    boxes = [g.find(f"{space}rect").attrib for g in root.findall(f"{space}g")]
    assert len(boxes) == len(graph.inputs) + len(graph.equations) + len(graph.outputs)
    rows = {}
    for box in boxes:
        left, width = float(box["x"]), float(box["width"])
        assert left >= 0
        assert left + width <= float(root.attrib["width"])
        rows.setdefault(box["y"], []).append((left, left + width))
    for row in rows.values():
        row.sort()
        assert all(one[1] < other[0] for one, other in itertools.pairwise(row))
    page = graph.draw(tmp_path / "g.html")
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_edges_lead_down_from_maker_to_user():
    graph = simple()
    found = re.findall(r'data-from="n(\d+)" data-to="n(\d+)"', graph.draw())
    assert found == [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")]


def test_names_cannot_break_out_of_a_picture(tmp_path):
    @pb.custom_op
    def evil(x, *, text="<script>alert(1)</script>"):
        return x

    evil.name = '"></text><script>'
    evil.def_spec(lambda x, text: x)
    page = stage(evil)(np.ones(2)).draw(tmp_path / "x.html")
    assert page.count("<script>") == 1
    with pytest.raises(ArgumentError, match=r"\.svg, \.html or \.dot"):
        simple().draw(tmp_path / "x.png")
    with pytest.raises(ArgumentError, match=r"\.svg, \.html or \.dot"):
        simple().draw("x")


# The builder


def regression():
    rng = np.random.default_rng(1)
    data = rng.normal(size=(6, 3)), rng.normal(size=6)
    g = pb.Graph()
    x, y = g.placeholder("x", (None, 3)), g.placeholder("y", (None,))
    w, b = g.variable("w", np.array([0.5, -1.0, 2.0])), g.variable("b", 0.25)
    return g, x, y, w, b, pb.mean(pb.square(x @ w + b - y)), data


def by_hand(data, w, b, rate=0.1):
    x, y = data
    loss, (dw, db) = pb.value_and_grad(lambda w, b: pb.mean(pb.square(x @ w + b - y)), argnums=(0, 1))(w, b)
    return loss, w - rate * dw, b - rate * db


def test_a_training_step_for_several_sizes():
    g, _, _, w, b, loss, (x, y) = regression()
    dw, db = g.gradients(loss, [w, b])
    step = g.compile([loss], updates=[(w, w - 0.1 * dw), (b, b - 0.1 * db)])
    now = np.array([0.5, -1.0, 2.0]), np.array(0.25)
    memory = g.values["w"]
    for n in (6, 6, 2, 1, 4, 6):
        wanted, *now = by_hand((x[:n], y[:n]), *now)
        (found,) = step({"x": x[:n], "y": y[:n]}) if n % 2 else step(x=x[:n], y=y[:n])
        np.testing.assert_allclose(found, wanted)
        np.testing.assert_allclose(g.read(w), now[0])
        np.testing.assert_allclose(g.read("b"), now[1])
    assert len(step.compiled) == 4
    assert g.values["w"] is memory, "updated in place"


def test_run_is_the_same_without_compiling():
    g, _, _, w, b, loss, (x, y) = regression()
    grads = g.gradients(loss, [w, b])
    found = g.run({"loss": loss, "grads": grads}, {"x": x[:4], "y": y[:4]})
    compiled = g.compile({"loss": loss, "grads": grads})(x=x[:4], y=y[:4])
    np.testing.assert_allclose(found["loss"], compiled["loss"])
    np.testing.assert_allclose(found["grads"][0], compiled["grads"][0])
    assert g.run(w).tolist() == [0.5, -1.0, 2.0], "placeholders that are not needed need not be fed"
    g.run(w)[0] = 9.0
    assert g.read(w).tolist() == [0.5, -1.0, 2.0]


def test_feeding_what_does_not_fit_changes_nothing():
    g, x, _, w, _, loss, (a, b) = regression()
    step = g.compile(loss, updates=[(w, w * 2.0)])
    for feeds, kind, message in [
        ({"x": a}, ArgumentError, "y are not fed"),
        ({"x": a, "y": b, "z": b}, ArgumentError, "'z' is no placeholder of this graph; there are x, y"),
        ({"x": a, "y": b, "w": b}, ArgumentError, "'w' is no placeholder"),
        ({"x": a, "y": b[:2]}, ShapeError, r"'y' has shape \(None,\), got \(2,\).*None: 6"),
        ({"x": a[:, :2], "y": b}, ShapeError, r"'x' has shape \(None, 3\), got \(6, 2\)"),
        ({"x": a[0], "y": b}, ShapeError, "'x' has shape"),
        ({"x": a.astype("float32"), "y": b}, DtypeError, "'x' is float64, got float32"),
        ({"x": a, "y": b > 0}, DtypeError, "'y' is float64, got bool"),
        ({"x": a, "y": "text"}, PullbackError, "'y' is float64, got"),
        ({"x": a, "y": loss}, ArgumentError, "bare arrays"),
    ]:
        with pytest.raises(kind, match=message):
            step(feeds)
        with pytest.raises(kind, match=message):
            g.run(loss, feeds)
    assert g.read(w).tolist() == [0.5, -1.0, 2.0]
    assert step({x: a, "y": b.tolist()}).shape == (), "lists have no dtype of their own, and values name themselves"
    step(x=a[::-1], y=pb.tensor(b))


def test_values_are_those_before_the_step():
    g = pb.Graph()
    p, q = g.variable("p", np.ones(3)), g.variable("q", np.zeros(3))
    swap = g.compile((p, q, p + q), updates=[(p, q), (q, p)])
    assert flat_vector(swap()).tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert (g.read(p).tolist(), g.read(q).tolist()) == ([0.0] * 3, [1.0] * 3)
    kept = swap()[1]
    swap()
    assert kept.tolist() == [1.0] * 3, "what was fetched is nobody else's memory"
    g.compile((), updates=[(p, p), (q, q + 1.0)])()
    assert (g.read(p).tolist(), g.read(q).tolist()) == ([0.0] * 3, [2.0] * 3)
    g.compile((), updates=[(q, np.full(3, 5.0))])()
    g.assign(p, [1.0, 2.0, 3.0])
    assert (g.read(p).tolist(), g.read(q).tolist()) == ([1.0, 2.0, 3.0], [5.0] * 3)
    assert g.compile(q, updates=[(p, q)])().tolist() == [5.0] * 3
    assert g.read(p).tolist() == [5.0] * 3
    g.compile((), updates=[(p, p * 0.0)])()
    assert g.read(q).tolist() == [5.0] * 3, "two variables never share memory"


def test_updates_are_checked():
    g = pb.Graph()
    v, x = g.variable("v", np.ones(3, "float32")), g.placeholder("x", 3)
    for updates, kind, message in [
        ([(v, x)], DtypeError, "'v' is float32, its new value float64"),
        ([(v, pb.sum(v))], ShapeError, r"shape \(3,\), its new value \(\)"),
        ([(v, v), (v, v)], ArgumentError, "'v' is updated twice"),
        ([(x, x)], ArgumentError, "no variable; there are v"),
        ([v], ArgumentError, "pairs"),
        ([(v, pb.Graph().variable("v", np.ones(3, "float32")))], LeakError, "another graph"),
    ]:
        with pytest.raises(kind, match=message):
            g.compile((), updates=updates)
    with pytest.raises(ArgumentError, match="fetches: wants a value of this graph"):
        g.compile(2.0)
    with pytest.raises(LeakError, match="another graph"):
        pb.Graph().run(v)
    with pytest.raises(LeakError, match="another graph"):
        v + pb.Graph().variable("v", 1.0)


def test_names_and_shapes_of_the_builder_are_checked():
    g = pb.Graph()
    g.placeholder("x", (None, "rows", 3))
    with pytest.raises(ArgumentError, match="'x' is already in this graph"):
        g.variable("x", 1.0)
    for shape in ((-1,), (2.5,), (True,)):
        with pytest.raises(ArgumentError, match="a shape is made of sizes"):
            g.placeholder("y", shape)
    for bad in ("", 3, None):
        with pytest.raises(ArgumentError, match="called by a string"):
            g.placeholder(bad)
    with pytest.raises(GraphError, match="Make it a variable"):
        g.placeholders["x"] * pb.tensor(1.0, requires_grad=True)


def test_gradients_of_the_builder_are_total_and_nest():
    g = pb.Graph()
    a = g.variable("a", 2.0)
    b = a * a
    c = b * b * a  # a^5
    da, db = g.gradients(c, [a, b])
    (dda,), (dab,), (dbb,) = g.gradients(da, [a]), g.gradients(da, [b]), g.gradients(db, [b])
    # da = 2 b a (2 a) + b^2, as the graph has it: its derivative by b is 4 a^2 + 2 b
    wanted = [80.0, 16.0, 160.0, 24.0, 4.0]
    assert [float(v) for v in g.run([da, db, dda, dab, dbb])] == wanted
    assert [float(v) for v in g.compile([da, db, dda, dab, dbb])()] == wanted
    with pytest.raises(GraphError, match="no path"):
        g.gradients(b, [c])
    with pytest.raises(GraphError, match="no path"):
        g.gradients(c, [g.variable("other", 1.0)])
    with pytest.raises(ArgumentError, match="of one floating number"):
        g.gradients(g.variable("v", np.ones(2)), [a])
    with pytest.raises(DtypeError, match="not floating"):
        g.gradients(c, [g.variable("n", 1)])


def test_what_is_computed_from_unknown_sizes_is_computed_again():
    g = pb.Graph()
    x, m = g.placeholder("x", (None, 4)), g.placeholder("m", ("rows", None))
    found = {
        "mean": pb.mean(x), "rows": pb.mean(x, axis=0), "var": pb.var(x, axis=0, correction=1), "std": pb.std(x),
        "flat": x.reshape(-1), "pairs": x.reshape(-1, 2, 2), "less": x[1:], "last": x[-1], "turn": x[::-1] + x,
        "product": m @ x, "tall": pb.concat([x, x]), "diff": pb.sum(x[1:] - x[:-1]), "zeros": x + pb.zeros_like(x),
        "broad": pb.broadcast_to(x[:1], (7, 4)), "gram": pb.mean(x @ x.T), "soft": pb.softmax(x, axis=0),
        "split": pb.mean(pb.stack([x, x * x]), axis=1), "sorted": pb.cumulative_sum(x, axis=0), "top": pb.max(x),
        "tiled": pb.tile(x, (2, 1)), "rolled": pb.roll(x, 1, axis=0), "pad": pb.pad(x, ((1, 1), (0, 0))),
        "lse": pb.logsumexp(x),
    }  # fmt: skip
    (dx,) = g.gradients(found["mean"] + pb.sum(found["var"]) + pb.sum(found["pairs"] ** 2) + found["lse"], [x])
    found["dx"] = dx

    def plain(x, m):
        def total(x):
            pairs = pb.reshape(x, (-1, 2, 2))
            return pb.mean(x) + pb.sum(pb.var(x, axis=0, correction=1)) + pb.sum(pairs**2) + pb.logsumexp(x)

        return {
            "mean": x.mean(), "rows": x.mean(0), "var": x.var(0, ddof=1), "std": x.std(), "flat": x.ravel(),
            "pairs": x.reshape(-1, 2, 2), "less": x[1:], "last": x[-1], "turn": x[::-1] + x, "product": m @ x,
            "tall": np.concatenate([x, x]), "diff": (x[1:] - x[:-1]).sum(), "zeros": x,
            "broad": np.broadcast_to(x[:1], (7, 4)), "gram": (x @ x.T).mean(), "soft": pb.softmax(x, axis=0),
            "split": np.stack([x, x * x]).mean(1), "sorted": x.cumsum(0), "top": x.max(), "tiled": np.tile(x, (2, 1)),
            "rolled": np.roll(x, 1, 0), "pad": np.pad(x, ((1, 1), (0, 0))),
            "lse": pb.logsumexp(x), "dx": pb.grad(total)(x),
        }  # fmt: skip

    rng = np.random.default_rng(5)
    step = g.compile(found)
    for n, rows in ((5, 3), (2, 2), (64, 1), (100, 7)):
        feeds = {"x": rng.normal(size=(n, 4)), "m": rng.normal(size=(rows, n))}
        wanted = plain(feeds["x"], feeds["m"])
        for answer in (step(feeds), g.run(found, feeds)):
            for key, value in wanted.items():
                assert answer[key].shape == np.shape(value), key
                np.testing.assert_allclose(answer[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


def test_what_cannot_be_followed_is_refused():
    g = pb.Graph()
    x = g.placeholder("x", (None,))
    feeds = {"x": np.arange(10.0)}
    assert g.run(x[:4], {"x": np.arange(10.0)}).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert g.run(pb.sum(x[::2]), feeds).item() == 20.0
    assert g.run(pb.prod(x + 1.0), feeds).item() == 3628800.0
    with pytest.raises(GraphError, match="needs a size that is not known yet"):
        np.arange(x.spec.shape[0])
    with pytest.raises(ShapeError, match=r"built for sizes with None >= 100; they are \{None: 10\}"):
        g.compile(pb.sum(x[:100]))(feeds)
    with pytest.raises(ShapeError, match="len: the size of this axis is not known"):
        len(x)
    with pytest.raises(ShapeError, match="not known"):
        list(x)
    with pytest.raises(TypeError):
        x / x.shape[0]
    assert (x.shape, x.size, x[1:].shape, (x @ x).shape) == ((None,), None, (None,), ())
    with pytest.raises(ShapeError):
        x + g.placeholder("y", ("other",))
    other = pb.Graph()
    with pytest.raises(ArgumentError, match="no array that was fed determines"):
        other.run(pb.zeros_like(other.placeholder("x", (None,))) + other.variable("v", 1.0))


@pytest.mark.parametrize("number", [30000, 1e-8, 1e6, 50257.0, 1 / 30089, 65536, 30089, 30089.0, 2.0**40, 86400])
def test_ordinary_large_numbers_are_left_alone(number):
    g = pb.Graph()
    x = g.placeholder("x", (None,))
    assert g.run(x * number + 0.0, {"x": np.ones(3)}).tolist() == [number * 1.0] * 3


def test_sizes_that_were_written_are_no_unknown_ones():
    g = pb.Graph()
    x, table = g.placeholder("x", (None,)), g.variable("table", np.ones(30090))
    found = pb.sum(pb.reshape(table, (30090, 1))) * pb.sum(x)
    assert float(g.run(found, {"x": np.ones(2)})) == 60180.0


def test_the_same_value_may_be_asked_for_twice():
    g = pb.Graph()
    a = g.variable("a", 3.0)
    b = a * a
    assert [float(v) for v in g.run(g.gradients(b * 1.0, [a, b, a, b]))] == [6.0, 1.0, 6.0, 1.0]


def test_gradients_in_results_that_depend_on_no_floating_input():
    g = pb.Graph()
    w, i = g.variable("w", np.array([1.0, -2.0])), g.placeholder("i", (2,), np.int64)
    rounded, scale = pb.floor(w), i.astype(np.float64)
    loss = pb.sum(scale * scale * rounded)
    found = g.gradients(loss, [scale, w, rounded, loss])
    (second,) = g.gradients(pb.sum(found[0]), [scale])
    beside = rounded * w  # on no path to a loss
    fetched = [*found, second, beside]
    feeds = {"i": np.array([3, 4])}
    wanted = ([6.0, -16.0], [0.0, 0.0], [9.0, 16.0], 1.0, [2.0, -4.0], [1.0, 4.0])
    for values in (g.run(fetched, feeds), g.compile(fetched)(feeds)):
        for got, expected in zip(values, wanted, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_loss_is_computed_once_for_itself_and_its_gradient():
    g = pb.Graph()
    w = g.variable("w", np.ones(2))
    loss = pb.sum(pb.exp(pb.sin(w)))
    names = [e.op.name for e in g.stage([loss, *g.gradients(loss, [w])]).equations]
    assert names.count("exp") == names.count("sin") == 1


def test_a_complex_loss_has_no_gradient():
    g = pb.Graph()
    z = g.variable("z", 1.0j)
    with pytest.raises(DtypeError, match="of a real number"):
        g.gradients(z * z, [z])


def test_named_sizes_must_agree_and_may_differ():
    g = pb.Graph()
    a, b, c = g.placeholder("a", ("n", "k")), g.placeholder("b", ("k", "m")), g.placeholder("c", ("n", "m"))
    loss = pb.mean(pb.square(a @ b - c))
    (da,) = g.gradients(loss, [a])
    rng = np.random.default_rng(0)
    for n, k, m in ((2, 3, 4), (1, 1, 1), (5, 5, 5)):
        x, y, z = rng.normal(size=(n, k)), rng.normal(size=(k, m)), rng.normal(size=(n, m))
        found = g.compile(da)(a=x, b=y, c=z)
        np.testing.assert_allclose(found, pb.grad(lambda x: pb.mean(pb.square(x @ y - z)))(x))  # noqa: B023
    with pytest.raises(ShapeError, match=r"'b' has shape \('k', 'm'\), got \(2, 4\)"):
        g.compile(da)(a=np.ones((2, 3)), b=np.ones((2, 4)), c=np.ones((2, 4)))
    assert repr(a) == "<a: float64[n, k] of a graph>"


def test_built_graphs_become_data():
    g, _, _, w, b, loss, (x, y) = regression()
    grads = g.gradients(loss, [w, b])
    graph = g.stage({"loss": loss, "grads": grads}, sizes={None: 6})
    wanted = g.run({"loss": loss, "grads": grads}, {"x": x, "y": y})
    for read in again(graph):
        found = read.run(x=x, y=y, w=g.read(w), b=g.read(b))
        np.testing.assert_allclose(found["loss"], wanted["loss"])
        np.testing.assert_allclose(found["grads"][0], wanted["grads"][0])
    with pytest.raises(ArgumentError, match=r"give the sizes \[None\]"):
        g.stage(loss)
    names = [(e.op.name, tuple(map(id, e.args)), repr(e.static)) for e in graph.equations]
    assert len(set(names)) == len(names), "what gradients computed again is there once"


def test_transforms_of_built_values():
    g = pb.Graph()
    x = g.placeholder("x", (None,))
    y = pb.grad(lambda x: pb.sum(x**3))(x)
    np.testing.assert_allclose(g.run(y, {"x": np.array([1.0, 2.0])}), [3.0, 12.0])


def test_jitted_functions_are_written_into_what_is_built_or_staged():
    f = pb.jit(lambda z: pb.sin(z) * 2.0)
    g = pb.Graph()
    a = g.placeholder("a", (None,))
    np.testing.assert_allclose(g.compile(f(a))(a=np.arange(3.0)), 2 * np.sin(np.arange(3.0)))
    outer = pb.jit(lambda x: pb.jit(lambda y: y * x)(np.ones(3)) + f(x))
    for x in (np.arange(3.0), np.arange(3.0) + 1):
        np.testing.assert_allclose(outer(x), x + 2 * np.sin(x))
    assert repr(g) == "<graph being built: 1 placeholders, 0 variables, 2 lines>"


def test_an_index_out_of_range_leaves_variables_as_they_were():
    g = pb.Graph()
    i, table = g.placeholder("i", (None,), "int64"), g.variable("table", np.ones((4, 2)))
    rows = table[i]
    (dt,) = g.gradients(pb.sum(rows * rows), [table])
    step = g.compile(rows, updates=[(table, table - 0.25 * dt)])
    with pytest.raises(IndexError):
        step(i=np.array([0, 9]))
    assert g.read(table).tolist() == np.ones((4, 2)).tolist()
    step(i=np.array([0, 0]))
    assert g.read(table).tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]


def test_base64_of_the_table_is_what_it_says():
    graph = stage(lambda x: x * np.arange(9.0))(np.ones(9))
    data = re.search(r'c0 = array\(float64\[9\], "(.*)"\)', graph.text())[1]
    assert np.frombuffer(base64.b64decode(data), "<f8").tolist() == list(range(9))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: pb.scale_gradient(x, 0.5) ** 2,
        lambda x: pb.reverse_gradient(x) ** 2,
        lambda x: 3.0 * pb.clip_gradient(x * x, -0.5, np.inf),
        lambda x: pb.straight_through(pb.sign)(x) * x,
        pb.vmap(lambda x: pb.scale_gradient(x, 0.5) ** 2),
    ],
    ids=["scale", "reverse", "clip", "straight_through", "vmap"],
)
def test_ops_that_change_derivatives_are_read_back(f):
    graph, x = pb.stage(f)(np.zeros(3)), np.array([-0.3, 0.2, 2.0])
    for read in (
        pb.Program.parse(graph.text()),
        pb.Program.from_json(graph.to_json()),
        pickle.loads(pickle.dumps(graph)),
    ):
        assert read.text() == graph.text()
        np.testing.assert_array_equal(pb.grad(lambda x, g=read: pb.sum(g(x)))(x), pb.grad(lambda x: pb.sum(f(x)))(x))
        pb.jit(read)(x)


@pytest.mark.parametrize(
    "wrong",
    [
        "scale_gradient(x0, factor=inf)",
        "scale_gradient(x0, factor=2)",
        "scale_gradient(x0)",
        "clip_gradient(x0, low=1.0, high=-1.0)",
        "clip_gradient(x0, low=nan, high=1.0)",
        "straight_through(x0, x0, factor=1.0)",
        "straight_through(x0, 1.0)",
        'clip_gradient(x0, low="a", high=1.0)',
    ],
)
def test_what_those_ops_are_given_is_checked_when_it_is_read(wrong):
    text = f"graph(x0: float64[3])\n  t0: float64[3] = {wrong}\n  return t0"
    with pytest.raises(GraphError, match=f"equation 0, {wrong.split('(', 1)[0]}"):
        pb.Program.parse(text)


@pytest.mark.parametrize(
    ("f", "op"),
    [
        (lambda x: pb.checkpoint_loop(lambda i, c: pb.sin(c), x, 3), "checkpoint_loop"),
        (lambda x: pb.root(lambda z, x: z * z - x, np.ones(3), x), "root"),
        (lambda x: pb.linear_solve(lambda v: 2.0 * v, x), "linear_solve"),
    ],
    ids=["checkpoint_loop", "root", "linear_solve"],
)
def test_ops_with_functions_in_them_are_refused_by_name_and_not_taken_for_custom_ops(f, op):
    for graph in (
        pb.stage(f)(np.ones(3)),
        pb.jit(f).lower(np.ones(3)).graph,
    ):  # compiled, they are written in other ops
        with pytest.raises(
            ArgumentError, match=r"line \d+: what stands in <angle brackets> could not be serialized.*\n.*stage it"
        ):
            pb.Program.parse(graph.text())
        with pytest.raises(ArgumentError, match=r"equation \d+, \w+, \w+: an object of class \w+ cannot be serialized"):
            graph.to_json()
    with pytest.raises(ArgumentError, match=f"equation 0, {op}, "):
        pb.stage(f)(np.ones(3)).to_json()


#: Ops of the package that hold functions of Python, or come only beside such ones where roots and solves are compiled.
WITHOUT_TEXT = {
    "_print", "attention_bands", "attention_on_chip", "attention_on_chip_gradients", "checkpoint_loop",
    "checkpoint_loop_pull", "custom_root", "dense_solve", "dense_fit",
    "check_solution", "linear_solve", "power_near", "root", "check_root", "check_solve", "solve_ode", "solve_ode_pull",
    "_with_slope", "banded_solve", "check_active_set", "check_dense", "module_boundary", "read_solution",
    "solve_ode_adjoint",
}  # fmt: skip


def test_every_op_of_the_package_is_found_by_its_name_or_holds_what_has_no_text():
    found = pkgutil.walk_packages(pb.__path__, "pullback.")
    modules = [importlib.import_module(m.name) for m in found if not m.name.startswith("pullback.demo")]
    named = [x for m in modules for x in vars(m).values()]
    records = {x for x in named if isinstance(x, Op)} | {x.record() for x in named if isinstance(x, CustomOp)}
    known = ops_by_name(())
    assert {o.name for o in records if known.get(o.name) is not o} == WITHOUT_TEXT
