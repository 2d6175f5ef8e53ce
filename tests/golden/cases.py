"""The stored subset in, `Case` objects out: a call, its results and its derivatives as NumPy arrays."""

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Input:
    """An array argument of a case, and what PyTorch knew about it."""

    array: np.ndarray
    differentiable: bool
    contiguous: bool


@dataclass(frozen=True)
class SecondOrder:
    """The gradient, by every input, of the sum of <vectors[k], vjp[of[k]]>."""

    vectors: list
    of: list
    gradient: list


@dataclass(frozen=True)
class Case:
    """One call of a torch op; None in a gradient is zeros. `second` is None where the vjp is constant in the inputs."""

    name: str
    op: str
    variant: str
    args: list
    kwargs: dict
    outputs: list
    cotangents: list
    vjp: list
    second: SecondOrder | None


def load():
    """All stored cases, in the order of the source."""
    with gzip.open(DATA / "cases.json.gz", "rt") as file:
        records = json.load(file)["cases"]
    with np.load(DATA / "arrays.npz") as file:
        store = dict(file)
    return [read_case(record, store) for record in records]


def read_case(record, store):
    """One JSON record as a case."""

    def arrays(key):
        return [None if reference is None else read_array(reference, store) for reference in record[key]]

    label = f"{record['op']}:{record['variant']}" if record["variant"] else record["op"]
    return Case(
        name=f"{label}-{record['i']}",
        op=record["op"],
        variant=record["variant"],
        args=[read_argument(argument, store) for argument in record["args"]],
        kwargs={key: read_argument(argument, store) for key, argument in record["kwargs"].items()},
        outputs=arrays("out"),
        cotangents=arrays("cot"),
        vjp=arrays("vjp"),
        second=SecondOrder(arrays("u"), record["u_of"], arrays("vjp2")) if "u" in record else None,
    )


def read_array(reference, store):
    """`[dtype, offset, shape]` as the array it names."""
    dtype, offset, shape = reference
    return store[dtype][offset : offset + math.prod(shape)].reshape(shape)


def read_argument(argument, store):
    """One argument: an `Input`, or the plain Python value it stands for."""
    match argument:
        case {"array": reference}:
            return Input(read_array(reference, store), argument["diff"], argument["contig"])
        case {"seq": items}:
            return (tuple if argument["tuple"] else list)(read_argument(item, store) for item in items)
        case {"slice": bounds}:
            return slice(*bounds)
        case {"float": text}:
            return float(text)
        case {"lit": value} | {"dtype": value}:
            return value
    raise ValueError(f"golden: unknown kind of argument {argument}")
