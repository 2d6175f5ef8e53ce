"""Codecs for some of the arrays: by shape and size."""

from __future__ import annotations

from collections.abc import Callable

from ...arrays.argument_checks import check_count, check_functions
from ...arrays.picklable import picklable
from ...arrays.spec import Spec
from .codec import Codec, check_codec


@picklable
def only(predicate: Callable[[Spec], bool], codec: Codec) -> Codec:
    """Use a codec for arrays whose spec (shape and dtype) a predicate holds for, such as `matrices` or
    `larger_than(10_000)`; sum others plainly.

    >>> import numpy as np, pullback as pb
    >>> codecs = pb.distributed.codecs
    >>> codec = codecs.only(codecs.matrices, codecs.int8())
    >>> codec.applies(pb.spec_of(np.ones((20, 30)))), codec.applies(pb.spec_of(np.ones(600)))
    (True, False)
    """
    check_functions("only", predicate)
    check_codec(codec, "only")

    def sent_bytes(spec: Spec) -> float:
        return codec.sent_bytes(spec) if predicate(spec) else spec.nbytes

    name = getattr(predicate, "__name__", "predicate")
    return Codec(f"only({name}, {codec.name})", codec.start, codec.run, sent_bytes)


def matrices(spec: Spec) -> bool:
    """Whether an array has two axes or more, for `only`: weights, not biases.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.codecs.matrices(pb.spec_of(np.ones((2, 3))))
    True
    """
    return spec.ndim >= 2


@picklable
def larger_than(elements: int) -> Callable[[Spec], bool]:
    """Whether an array has more than so many elements, for `only`.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.codecs.larger_than(5)(pb.spec_of(np.ones((2, 3))))
    True
    """
    least = check_count(elements, "larger_than: elements", 0)

    def is_larger(spec: Spec) -> bool:
        return spec.size > least

    is_larger.__name__ = f"larger_than({least})"
    return is_larger
