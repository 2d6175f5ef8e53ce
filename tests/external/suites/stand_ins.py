"""What the examples want beside autograd: plots that draw nothing, data that are random, the same in every run."""

import sys
import types
from typing import Any
from unittest.mock import MagicMock

import numpy as np

DRAWN = np.random.RandomState(3)


class Drawing(MagicMock):
    """Any module, figure or axis of matplotlib; two of them where a pair is unpacked."""

    def __iter__(self) -> Any:
        return iter([Drawing(), Drawing()])


class Seeded(np.random.RandomState):
    """A generator that starts at 0 where NumPy's would start anywhere."""

    def __init__(self, seed: Any = 0) -> None:
        super().__init__(seed)


def put_in_place() -> None:
    """To be called before autograd is imported, since it copies NumPy's names."""
    np.random.RandomState = Seeded  # type: ignore[misc]
    np.random.seed(0)
    library, plots = Drawing(), Drawing()
    plots.imread, library.pyplot = picture, plots
    sys.modules |= {"matplotlib": library, "matplotlib.pyplot": plots}
    sys.modules |= {"matplotlib.cm": Drawing(), "matplotlib.image": Drawing()}
    data: Any = types.ModuleType("data_mnist")
    data.mnist = digits
    sys.modules["data_mnist"] = data


def digits() -> tuple[np.ndarray, ...]:
    """Images and labels to train with, and to test with, in MNIST's form."""
    train, test = (DRAWN.randint(0, 256, (count, 28, 28)).astype(np.uint8) for count in (600, 200))
    return train, DRAWN.randint(0, 10, 600), test, DRAWN.randint(0, 10, 200)


def picture(path: Any) -> np.ndarray:
    """The smoke at the start has colours; the skull is grey and twice as large."""
    return DRAWN.rand(40, 40, 4) if "smoke" in str(path) else DRAWN.rand(80, 80)
