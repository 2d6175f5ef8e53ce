"""Events for TensorBoard, read back by a reader that shares nothing with the writer."""

import itertools
import os
import struct
import zlib

import numpy as np
import pytest
from test_exchange import read_fields

import pullback as pb
from pullback.errors import ArgumentError, DtypeError, ShapeError, StorageError
from pullback.exchange.records import crc32c


def checksum(content):
    """CRC-32C bit by bit: the rest of the division of reversed bytes, from the definition."""
    rest = 0xFFFFFFFF
    for byte in content:
        for bit in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if (rest ^ byte >> bit) & 1 else 0)
    return rest ^ 0xFFFFFFFF


def read_records(raw):
    found = []
    while raw:
        (size,), stop = struct.unpack("<Q", raw[:8]), 12 + struct.unpack("<Q", raw[:8])[0]
        assert len(raw) >= stop + 4, "cut off"
        for content, mask in ((raw[:8], raw[8:12]), (raw[12:stop], raw[stop : stop + 4])):
            turned = (struct.unpack("<I", mask)[0] - 0xA282EAD8) % 2**32
            assert (turned << 15 | turned >> 17) % 2**32 == checksum(content)
        assert stop == 12 + size
        found.append(raw[12:stop])
        raw = raw[stop + 4 :]
    return found


def read_events(directory):
    """The fields of all events of the only file, after the first one, which says the version."""
    (name,) = os.listdir(directory)
    events = [dict(read_fields(record)) for record in read_records((directory / name).read_bytes())]
    assert events[0][3] == b"brain.Event:2"
    times = [struct.unpack("<d", e[1])[0] for e in events]
    assert times == sorted(times)
    return events[1:]


def value_of(event):
    """Step, tag and the fields of the only value of an event."""
    ((_, value),) = read_fields(event[5])
    fields = dict(read_fields(value))
    return event[2], fields.pop(1).decode(), fields


def doubles(raw):
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def read_png(raw):
    """The pixels of a picture whose rows have no filter."""
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        kind, content = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + size]
        assert int.from_bytes(raw[at + 8 + size : at + 12 + size], "big") == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    assert (depth, rest) == (8, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


@pytest.fixture
def events(tmp_path):
    with pb.exchange.EventWriter(tmp_path) as writer:
        yield writer


def test_checksums_are_those_of_the_standard():
    assert crc32c(b"123456789") == checksum(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"") == 0


def test_scalars(events, tmp_path):
    given = [0.25, np.float32(3), pb.tensor(0.5, requires_grad=True) * 2, np.nan, -np.inf, 7, True, 1e300]
    for step, value in enumerate(given):
        events.add_scalar("loss/é", value, 10 * step)
    found = [value_of(e) for e in read_events(tmp_path)]
    assert [(step, tag) for step, tag, _ in found] == [(10 * i, "loss/é") for i in range(8)]
    numbers = [struct.unpack("<f", fields[2])[0] for _, _, fields in found]
    assert np.array_equal(numbers, [0.25, 3, 1, np.nan, -np.inf, 7, 1, np.inf], equal_nan=True)


@pytest.mark.parametrize(
    "x", [np.random.default_rng(0).normal(size=(20, 30)), np.ones(5), np.array([-1.7e308, 1.7e308]), np.arange(4), 3.0]
)
def test_histograms(events, tmp_path, x):
    events.add_histogram("w", x, 3, bins=16)
    ((step, tag, fields),) = [value_of(e) for e in read_events(tmp_path)]
    assert (step, tag) == (3, "w")
    histogram = dict(read_fields(fields[5]))
    low, high, many, total, squares = (struct.unpack("<d", histogram[i])[0] for i in range(1, 6))
    limits, counts = doubles(histogram[6]), doubles(histogram[7])
    x = np.asarray(x, float)
    assert (low, high, many, limits[-1]) == (x.min(), x.max(), x.size, x.max())
    assert np.isclose(total, x.sum())
    with np.errstate(over="ignore"):
        assert np.isclose(squares, np.sum(x**2))
    assert np.all(np.isfinite(limits))
    edges = [low, *limits]
    if high > low:
        inside = [np.sum((x >= a) & (x < b)) for a, b in itertools.pairwise(edges[:-1])]
        assert counts == [*inside, x.size - sum(inside)]
    else:
        assert counts == [x.size]


def test_a_histogram_is_of_finite_numbers(events, tmp_path):
    events.add_histogram("w", [np.nan, 1.0, np.inf, 2.0], bins=2)
    events.add_histogram("none", [np.nan])
    some, none = (dict(read_fields(value_of(e)[2][5])) for e in read_events(tmp_path))
    assert doubles(some[7]) == [1, 1]
    assert doubles(none[7]) == [0]
    assert struct.unpack("<d", none[3]) == (0,)


def test_pictures(events, tmp_path):
    rng = np.random.default_rng(0)
    color = rng.random((5, 7, 3))
    given = [color, rng.integers(0, 256, (4, 2, 4)).astype(np.uint8), np.eye(3), np.eye(3, 5) > 0, color[:, :, :1]]
    given += [np.array([[2.0, -1.0, np.nan]]), np.ones((1, 1, 2), np.float16)]
    for step, image in enumerate(given):
        events.add_image("image", image, step)
    wanted = [x if x.dtype == np.uint8 else np.rint(x.astype(float) * 255) for x in given]
    wanted[5] = np.array([[255, 0, 0]])
    for event, pixels in zip(read_events(tmp_path), wanted, strict=True):
        fields = dict(read_fields(value_of(event)[2][4]))
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        assert (fields[1], fields[2], fields[3]) == pixels.shape
        assert np.array_equal(read_png(fields[4]), pixels)


def test_text(events, tmp_path):
    events.add_text("notes", "*é*\n", 4)
    ((step, tag, fields),) = [value_of(e) for e in read_events(tmp_path)]
    tensor, plugin = dict(read_fields(fields[8])), dict(read_fields(fields[9]))
    assert (step, tag, tensor[1], tensor[8].decode()) == (4, "notes", 7, "*é*\n")
    assert dict(read_fields(plugin[1]))[1] == b"text"


def test_a_graph_has_each_op_with_its_sources(events, tmp_path):
    events.add_graph(lambda x: pb.sum(pb.sin(x) * np.ones(3)), np.ones(3))
    (event,) = read_events(tmp_path)
    nodes = [read_fields(value) for number, value in read_fields(event[4]) if number == 1]
    found = {dict(n)[1].decode(): [v.decode() for i, v in n if i == 3] for n in nodes}
    assert found == {
        "inputs/x0": [], "sin_0": ["inputs/x0"], "constants/multiply_1_1": [],
        "multiply_1": ["sin_0", "constants/multiply_1_1"], "sum_2": ["multiply_1"], "outputs/y0": ["sum_2"],
    }  # fmt: skip


def test_what_makes_no_sense_is_refused(events, tmp_path):
    with pytest.raises(ShapeError, match="one number"):
        events.add_scalar("a", np.ones(2))
    with pytest.raises(ArgumentError, match="real numbers"):
        events.add_scalar("a", 1j)
    with pytest.raises(ArgumentError, match="real numbers"):
        events.add_histogram("a", "text")
    with pytest.raises(ArgumentError, match="tag"):
        events.add_scalar("", 1.0)
    with pytest.raises(ArgumentError, match="step"):
        events.add_scalar("a", 1.0, -1)
    with pytest.raises(ArgumentError, match="half a character"):
        events.add_text("a", "\ud800")
    with pytest.raises(ArgumentError, match="wants text"):
        events.add_text("a", 3)
    with pytest.raises(ShapeError, match="picture"):
        events.add_image("a", np.ones((2, 2, 5)))
    with pytest.raises(DtypeError, match="picture"):
        events.add_image("a", np.ones((2, 2), int))
    assert read_events(tmp_path) == []
    events.close()
    events.close()
    with pytest.raises(StorageError, match="closed"):
        events.add_scalar("a", 1.0)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        pb.exchange.EventWriter(tmp_path / "file")


def test_an_event_that_could_not_be_written_leaves_no_part(events, tmp_path, monkeypatch):
    events.add_scalar("a", 1.0, 1)
    write, left = os.write, [10]

    def full(descriptor, content):
        if not left:
            raise OSError(28, "No space left on device")
        return write(descriptor, content[: left.pop()])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        events.add_scalar("a", 2.0, 2)
    monkeypatch.undo()
    events.add_scalar("a", 3.0, 3)
    assert [e[2] for e in read_events(tmp_path)] == [1, 3]


def test_two_writers_have_files_of_their_own(tmp_path):
    with pb.exchange.EventWriter(tmp_path), pb.exchange.EventWriter(tmp_path):
        assert len(os.listdir(tmp_path)) == 2
