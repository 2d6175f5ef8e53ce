"""`PReLU`: a rectifier with a slope that is learned."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ..module import Module
from ..rectifiers import prelu
from .parameters import filled_parameter


@final
class PReLU(Module):
    """`prelu` with slopes of its own: one, or one for each channel (axis 1).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.PReLU()(np.array([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = np.float32) -> None:
        self.weight = filled_parameter(num_parameters, init, dtype)

    def forward(self, x: Any) -> Any:
        return prelu(x, self.weight)
