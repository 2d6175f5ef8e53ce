"""`EventWriter`: numbers, histograms, pictures, text and programs of a training for TensorBoard to show."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import check_count
from ..arrays.backends import is_array, to_host
from ..arrays.files import name_of_path
from ..arrays.tensor import Tensor
from ..errors import ArgumentError, ShapeError, StorageError
from ..program.ir import Program
from .export import as_program
from .graph_def import encode_graph
from .png import as_pixels, encode_png
from .protobuf import data, double, integer, packed_doubles, single
from .records import encode_record

#: The first event of each file.
_VERSION = "brain.Event:2"
#: The numbers that TensorFlow has for text, and for channels of a picture.
_TEXT_DTYPE = 7
_FILES = itertools.count()


@final
class EventWriter:
    """Writes a file of events to a directory, which `tensorboard --logdir` shows. Each event is on its way to the file
    when the call returns, so a kill loses none.

    >>> import os, tempfile, numpy as np, pullback as pb
    >>> directory = tempfile.mkdtemp()
    >>> with pb.exchange.EventWriter(directory) as events:
    ...     for step in range(3):
    ...         events.add_scalar("loss", 1 / (1 + step), step)
    ...     events.add_histogram("weights", np.linspace(-1, 1, 100), step=3)
    >>> os.listdir(directory)[0].startswith("events.out.tfevents.")
    True
    """

    def __init__(self, directory: Any) -> None:
        folder = Path(name_of_path(directory, "EventWriter"))
        ending = f"{socket.gethostname()}.{os.getpid()}.{next(_FILES)}"
        #: The file.
        self.path = folder / f"events.out.tfevents.{int(time.time()):010d}.{ending}"
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor: int | None = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
            )
        except OSError as error:
            raise StorageError(f"EventWriter: cannot write in {folder}: {error.strerror}.") from error
        self._write(data(3, _VERSION))

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add_scalar(self, tag: str, value: Any, step: int = 0) -> None:
        """A number of a step, kept in single precision.

        >>> import tempfile, pullback as pb
        >>> with pb.exchange.EventWriter(tempfile.mkdtemp()) as events:
        ...     events.add_scalar("loss", pb.tensor(0.5), step=1)
        """
        number = _as_host(value, "add_scalar")
        if number.size != 1:
            raise ShapeError(f"add_scalar: wants one number, got an array of shape {number.shape}.")
        with np.errstate(over="ignore"):
            self._add(tag, single(2, float(np.float32(number.item()))), step, "add_scalar")

    def add_histogram(self, tag: str, values: Any, step: int = 0, bins: int = 64) -> None:
        """How the numbers of an array are distributed. NaN and infinities are left out.

        >>> import tempfile, numpy as np, pullback as pb
        >>> with pb.exchange.EventWriter(tempfile.mkdtemp()) as events:
        ...     events.add_histogram("gradient", np.random.default_rng(0).normal(size=1000), step=1)
        """
        numbers = _as_host(values, "add_histogram").astype(np.float64).reshape(-1)
        numbers = numbers[np.isfinite(numbers)]
        count = check_count(bins, "add_histogram: bins")
        self._add(tag, data(5, _encode_histogram(numbers, count)), step, "add_histogram")

    def add_image(self, tag: str, image: Any, step: int = 0) -> None:
        """A picture: (height, width), or with 1 to 4 channels (height, width, channels); bytes, or numbers from 0 to 1.

        >>> import tempfile, numpy as np, pullback as pb
        >>> with pb.exchange.EventWriter(tempfile.mkdtemp()) as events:
        ...     events.add_image("ramp", np.linspace(0, 1, 64).reshape(8, 8))
        """
        pixels = as_pixels(_as_host(image, "add_image"), "add_image")
        height, width, channels = pixels.shape
        message = integer(1, height) + integer(2, width) + integer(3, channels) + data(4, encode_png(pixels))
        self._add(tag, data(4, message), step, "add_image")

    def add_text(self, tag: str, text: str, step: int = 0) -> None:
        """Text, shown as Markdown.

        >>> import tempfile, pullback as pb
        >>> with pb.exchange.EventWriter(tempfile.mkdtemp()) as events:
        ...     events.add_text("settings", "| rate | 0.1 |")
        """
        if not isinstance(text, str):
            raise ArgumentError(f"add_text: wants text, got a {type(text).__name__}.")
        shape = data(2, data(2, integer(1, 1)))
        tensor = integer(1, _TEXT_DTYPE) + shape + data(8, _encode_text(text, "add_text"))
        plugin = data(9, data(1, data(1, "text")))
        self._add(tag, data(8, tensor) + plugin, step, "add_text")

    def add_graph(self, f: Program | Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The ops of a program, or of a function staged on example arguments.

        >>> import tempfile, numpy as np, pullback as pb
        >>> with pb.exchange.EventWriter(tempfile.mkdtemp()) as events:
        ...     events.add_graph(pb.grad(lambda x: pb.sum(pb.sin(x) ** 2)), np.ones(3))
        """
        self._write(data(4, encode_graph(as_program("add_graph", f, args, kwargs))))

    def close(self) -> None:
        """Close the file; later events are refused.

        >>> import tempfile, pullback as pb
        >>> events = pb.exchange.EventWriter(tempfile.mkdtemp())
        >>> events.close()
        """
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def _add(self, tag: str, content: bytes, step: int, what: str) -> None:
        if not isinstance(tag, str) or not tag:
            raise ArgumentError(f"{what}: the first argument is a tag, a text, got {tag!r}.")
        value = data(1, _encode_text(tag, what)) + content
        self._write(integer(2, check_count(step, f"{what}: step", 0)) + data(5, data(1, value)))

    def _write(self, event: bytes) -> None:
        record = memoryview(encode_record(double(1, time.time()) + event))
        with self._lock:
            if self._descriptor is None:
                raise StorageError("EventWriter: the file is closed.")
            start = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            try:
                while record:
                    record = record[os.write(self._descriptor, record) :]
            except OSError as error:
                # a part of a record would hide all that comes after it
                with suppress(OSError):
                    os.ftruncate(self._descriptor, start)
                    os.lseek(self._descriptor, start, os.SEEK_SET)
                raise StorageError(f"EventWriter: cannot write {self.path}: {error.strerror}.") from error


def _as_host(x: Any, what: str) -> Any:
    """Numbers as an array on the host."""
    bare = x.detach().value if isinstance(x, Tensor) else x
    host = to_host(bare) if is_array(bare) else np.asarray(bare)
    if host.dtype.kind not in "biufV":
        raise ArgumentError(f"{what}: wants real numbers, got {host.dtype if is_array(bare) else type(x).__name__}.")
    return host if host.dtype.kind != "V" else host.astype(np.float32)


def _encode_text(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what}: a text holds half a character (a lone surrogate), which no file can.") from None


def _encode_histogram(numbers: Any, bins: int) -> bytes:
    """Counts between edges, and moments."""
    if not numbers.size:
        return (
            b"".join(double(field, 0.0) for field in range(1, 6)) + packed_doubles(6, [0.0]) + packed_doubles(7, [0.0])
        )
    low, high = float(numbers.min()), float(numbers.max())
    part = np.linspace(0, 1, bins + 1 if high > low else 2)
    edges = low * (1 - part) + high * part  # whose distance may overflow
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    with np.errstate(over="ignore"):
        moments = (low, high, float(numbers.size), float(numbers.sum()), float(np.square(numbers).sum()))
    head = b"".join(double(field, number) for field, number in enumerate(moments, 1))
    return head + packed_doubles(6, edges[1:].tolist()) + packed_doubles(7, counts.tolist())
