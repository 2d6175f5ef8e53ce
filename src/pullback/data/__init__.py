"""Data for training: shuffled batches of arrays, and a small real data set."""

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..public_names import explain_missing_names
from .loader import Batches, batches

__all__ = ["Batches", "batches", "digits"]
explain_missing_names(__name__, "data")


def digits() -> tuple[NDArray[np.float32], NDArray[Any]]:
    """The 8x8 handwritten digits: `(images, labels)`, NumPy arrays of 1,797 rows.

    `images` is float32 in [0, 1] with shape `(1797, 64)`, one row per image (`reshape(8, 8)` shows it); `labels` holds
    the digits 0 to 9 as int64.

    Origin: the test part of "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine
    Learning Repository, 1998, https://doi.org/10.24432/C50P49, licensed CC BY 4.0. Each pixel counts the ink of a 4x4
    block of a 32x32 bitmap (0 to 16) and is divided by 16 here.

    >>> import pullback as pb
    >>> images, labels = pb.data.digits()
    >>> images.shape, labels[:3].tolist()
    ((1797, 64), [0, 1, 2])
    """
    with (files(__name__) / "digits.npz").open("rb") as file, np.load(file) as archive:
        return archive["images"].astype(np.float32) / 16, archive["labels"].astype(np.int64)
