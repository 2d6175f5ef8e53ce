"""Programs in formats of other systems, run back by their reference runtimes and compared."""

import os
import struct

import exchange_cases
import numpy as np
import onnxruntime_runner
import pytest
import stablehlo_runner
from exchange_cases import (
    FORMATS,
    complex_programs,
    corner_programs,
    corners_of_words,
    digits,
    is_near,
    leaves_of,
    likelihoods,
    op_cases,
    whole_programs,
)

import pullback as pb
from pullback.errors import ArgumentError, ExportError
from pullback.exchange import onnx_weights, protobuf

#: onnxruntime's greatest number of an axis is none that is NaN, its arrays have no bfloat16, and its transforms of
#: lengths that are no powers of two have the digits of float32.
NOT_BY_RUNTIME = {"orders with NaN", "bfloat16", "transforms"}


#: Ops whose vectors may have either sign.
FREE_SIGNS = {"svd", "eigh", "lift"}


def run_onnx(programs):
    """The results of each (model, arguments) by ONNX's own evaluator."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnx.reference")
    found = []
    for model, args in programs:
        loaded = onnx.load_from_string(model)
        onnx.checker.check_model(loaded, full_check=True)
        names = [x.name for x in loaded.graph.input]
        with np.errstate(all="ignore"):
            found.append(onnx.reference.ReferenceEvaluator(loaded).run(None, dict(zip(names, args, strict=True))))
    return found


def run_stablehlo(programs):
    """The results of each (text, arguments) by XLA."""
    if not stablehlo_runner.is_available():
        pytest.skip("jax is not installed")
    return stablehlo_runner.run(programs)


RUNNERS = {"ONNX": run_onnx, "StableHLO": run_stablehlo}


@pytest.fixture(params=list(FORMATS))
def target(request):
    return request.param


def export_functions(target, functions):
    """(name, file, arguments, what we compute) of each (name, function, arguments)."""
    with np.errstate(all="ignore"):
        return [(name, FORMATS[target](f, *args), leaves_of(args), leaves_of(f(*args))) for name, f, args in functions]


def export_ops(target, every):
    """The same of the samples of ops; a refusal names the op and says why."""
    found, refused = [], []
    for name, program, args, wanted in op_cases(every):
        try:
            if wanted is not None:
                found.append((name, FORMATS[target](program), args, wanted))
        except ExportError as error:
            refused.append((error.op, error.why))
    assert all(op and why for op, why in refused)
    return found


def check_run_back(target, exported):
    """Each file returns what we compute, when the format's own runtime runs it."""
    returned = RUNNERS[target]([(file, args) for _, file, args, _ in exported])
    for (name, _, _, wanted), found in zip(exported, returned, strict=True):
        assert len(found) == len(wanted), name
        if name.partition("-")[0] in FREE_SIGNS:
            found, wanted = [np.abs(x) for x in found], [np.abs(x) for x in wanted]
        assert all(is_near(a, b) for a, b in zip(found, wanted, strict=True)), (name, found, wanted)
        if name.startswith("digits"):
            for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
                assert np.allclose(a, b, rtol=1e-13, atol=0, equal_nan=True), (name, number, a, b)
        if name.startswith("signs"):
            assert np.array_equal(np.signbit(found[0]), np.signbit(wanted[0])), name


@pytest.mark.sweep
def test_every_op_runs_back(target):
    exported = export_ops(target, 1)
    assert len(exported) > 500
    check_run_back(target, exported + export_functions(target, corners_of_words()))


def test_programs_run_back(target):
    # of what there is most of a part, the sweep runs all
    exported = export_ops(target, 32) + export_functions(target, corners_of_words()[::4])
    assert len(exported) > 40
    functions = [*whole_programs(), *corner_programs(), *likelihoods(), *complex_programs(), *digits()]
    check_run_back(target, exported + export_functions(target, functions))


def test_programs_run_back_by_onnxruntime():
    if not onnxruntime_runner.is_available():
        assert os.environ.get("PULLBACK_TEST_PEERS") != "required", "onnxruntime is missing"
        pytest.skip("onnxruntime is not installed")
    functions = [*whole_programs(), *corner_programs(), *corners_of_words(), *likelihoods(), *complex_programs()]
    functions = [f for f in functions if f[0] not in NOT_BY_RUNTIME]
    exported = export_functions("ONNX", functions)
    returned = onnxruntime_runner.run([(file, args) for _, file, args, _ in exported])
    assert sum(found is not None for found in returned) > 90
    for (name, _, _, wanted), found in zip(exported, returned, strict=True):
        assert found is None or all(is_near(a, b) for a, b in zip(found, wanted, strict=True)), (name, found, wanted)


def test_a_file_of_stablehlo_is_its_text(tmp_path):
    text = pb.exchange.to_stablehlo(lambda x, y: x, np.ones(2), np.ones((0, 3), np.int8), path=tmp_path / "m.mlir")
    assert (tmp_path / "m.mlir").read_text() == text
    assert "@main(%x0: tensor<2xf64>, %x1: tensor<0x3xi8>) -> (tensor<2xf64>)" in text
    with pytest.raises(ArgumentError, match="to_stablehlo: wants a program"):
        pb.exchange.to_stablehlo(3)


def read_fields(message):
    """The fields of a message, by a reader that shares nothing with the writer."""
    at, found = 0, []

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = bytes(message[at : at + size])
            assert len(value) == size
            at += size
        found.append((key >> 3, value))
    return found


def test_messages_are_those_of_protocol_buffers():
    message = (
        protobuf.integer(1, 300) + protobuf.integer(2, -1) + protobuf.data(16, "né") + protobuf.double(3, 0.1)
        + protobuf.single(4, 0.5) + protobuf.packed_integers(5, [1, 200])
    )  # fmt: skip
    assert read_fields(message) == [
        (1, 300), (2, 2**64 - 1), (16, "né".encode()), (3, struct.pack("<d", 0.1)), (4, struct.pack("<f", 0.5)),
        (5, b"\x01\xc8\x01"),
    ]  # fmt: skip


def test_a_model_has_the_names_and_shapes_that_were_asked_for(tmp_path):
    path = tmp_path / "m.onnx"
    model = pb.exchange.to_onnx(
        lambda x, y: x * y, np.ones((2, 3)), np.ones(3), path=path, input_names=["left", "right"], output_names=["out"]
    )
    assert path.read_bytes() == model
    fields = dict(read_fields(model))
    assert fields[1] == 8  # the version of the format
    graph = read_fields(fields[7])
    names = [dict(read_fields(value))[1].decode() for number, value in graph if number in (11, 12)]
    assert names == ["left", "right", "out"]
    nodes = [dict(read_fields(value)) for number, value in graph if number == 1]
    assert [n[4].decode() for n in nodes] == ["Mul", "Identity"]


def test_large_arrays_beside_the_model(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnx.reference")
    path, other = tmp_path / "m.onnx", tmp_path / "m.onnx.notours.data"
    w, v, x = np.arange(600.0).reshape(30, 20), np.arange(300), np.ones((2, 30))
    other.touch()

    def f(x):
        return x @ w, v + 1, pb.sum(v) + x[0, :3]

    for program in (f, f, lambda x: f(2 * x)):
        model = pb.exchange.to_onnx(program, x, path=path, external_data=True)
        assert path.read_bytes() == model
        assert len(model) < w.nbytes
        (beside,) = set(tmp_path.iterdir()) - {path, other}
        onnx.checker.check_model(str(path), full_check=True)
        found = onnx.reference.ReferenceEvaluator(str(path)).run(None, {"x0": x})
        assert all(map(is_near, found, leaves_of(program(x))))
    assert beside.stat().st_size >= w.nbytes + v.nbytes
    with pytest.raises(ArgumentError, match="beside the model"):
        pb.exchange.to_onnx(f, x, external_data=True)
    monkeypatch.setattr(onnx_weights, "MAX_MODEL_BYTES", 1000)
    with pytest.raises(ExportError, match="external_data=True"):
        pb.exchange.to_onnx(f, x, path=path)
    assert path.read_bytes() == model
    monkeypatch.undo()
    pb.exchange.to_onnx(f, x, path=path)
    assert set(tmp_path.iterdir()) == {path, other}


def test_an_op_without_an_equivalent_is_refused_by_name_and_line():
    with pytest.raises(
        ExportError, match=r"to_onnx: dawsn cannot be exported: its record has no kernel and no form"
    ) as caught:
        pb.exchange.to_onnx(lambda x: pb.special.dawsn(x) + 1.0, np.ones(2))
    assert caught.value.op == "dawsn"
    assert "test_exchange.py" in str(caught.value)
    assert "pb.special.dawsn(x) + 1.0" in str(caught.value)
    with pytest.raises(ExportError, match="polygamma cannot be exported"):  # the order is not known
        pb.exchange.to_onnx(pb.special.polygamma, np.ones(2, int), np.ones(2))
    with pytest.raises(ExportError, match="'less' of complex numbers"):
        pb.exchange.to_stablehlo(pb.sort, np.ones(2, complex))
    with pytest.raises(ExportError, match="'asin' of complex numbers"):
        pb.exchange.to_onnx(lambda x: pb.real(pb.asin(1j * x)), np.ones(2))
    with pytest.raises(ExportError, match="eig cannot be exported"):
        pb.exchange.to_onnx(lambda x: pb.real(pb.linalg.eig(x)[0]), np.eye(2))
    with pytest.raises(ExportError, match="qr cannot be exported: to_stablehlo has no operation for the routine 'qr'"):
        pb.exchange.to_stablehlo(lambda x: pb.linalg.qr(x), np.eye(2, dtype=complex))
    with pytest.raises(ExportError, match="for the routine 'eigh'"):
        pb.exchange.to_stablehlo(pb.linalg.eigvalsh, np.eye(2, dtype=complex))
    with pytest.raises(ExportError, match="have an effect"):
        pb.exchange.to_onnx(lambda x: pb.debug.print("{}", x) or x, np.eye(2))
    for draws in (lambda x: x + pb.random.normal(size=2), lambda x: x * np.random.rand(2), pb.nn.Dropout(0.5)):
        for export in FORMATS.values():
            with pytest.raises(ExportError, match="draws random numbers"):
                export(draws, np.ones(2))
    own = pb.custom_op(lambda x: x + 1.0)
    own.def_spec(lambda x: x)
    with pytest.raises(ExportError, match="its value is not made of other ops") as caught:
        pb.exchange.to_stablehlo(lambda x: own(x), np.ones(2))
    assert caught.value.op == "<lambda>"
    for args in ((np.ones(2, complex),), (np.ones(2),)):
        with pytest.raises(ExportError, match=r"complex128.*\n  Take and return the parts"):
            pb.exchange.to_onnx(lambda x: x + 0j, *args)


def test_what_is_no_function_or_program_is_refused():
    program = pb.stage(pb.sin)(np.ones(2))
    with pytest.raises(ArgumentError, match=r"to_onnx\(f, x, y, path=...\)"):  # PyTorch's order
        pb.exchange.to_onnx(pb.sin, np.ones(2), "sin.onnx")
    with pytest.raises(ArgumentError, match="wants a program or a function"):
        pb.exchange.to_onnx(np.ones(2))
    with pytest.raises(ArgumentError, match="no examples"):
        pb.exchange.to_onnx(program, np.ones(2))
    with pytest.raises(ArgumentError, match="2 different names"):
        pb.exchange.to_onnx(lambda x, y: x + y, 1.0, 2.0, input_names=["a", "a"])
    assert pb.exchange.to_onnx(program) == pb.exchange.to_onnx(pb.sin, np.ones(2))


def test_names_of_the_user_are_not_those_of_values_inside(tmp_path):
    def f(x, y):
        return pb.sin(x * y) + 2, x

    args = np.ones(3), np.full(3, 0.5)
    for names in ({"input_names": ["v1", "v0"], "output_names": ["v2", "v9"]}, {"input_names": ["a b", 'é\n"']}):
        ((found, same),) = run_onnx([(pb.exchange.to_onnx(f, *args, **names), args)])
        assert np.allclose(found, np.sin(0.5) + 2)
        assert np.array_equal(same, args[0])
    for names in ({"input_names": ["a", "b"], "output_names": ["b", "c"]}, {"input_names": ["y0", "y1"]}):
        with pytest.raises(ArgumentError, match="both called"):
            pb.exchange.to_onnx(f, *args, **names)
    with pytest.raises(ArgumentError, match="half a character"):
        pb.exchange.to_onnx(f, *args, input_names=["a", "\ud800"])
    with pytest.raises(pb.errors.StorageError, match="to_onnx: cannot write"):
        pb.exchange.to_onnx(f, *args, path=tmp_path / "none" / "f.onnx")


def test_the_page_has_the_table_of_today():
    text = exchange_cases.PAGE.read_text()
    assert exchange_cases.page_with_table(text) == text, "python tests/exchange_cases.py --write"
