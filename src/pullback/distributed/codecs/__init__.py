"""Codecs: how sums over ranks are sent in fewer bytes, as values that compose.

>>> import pullback as pb
>>> codecs = pb.distributed.codecs
>>> codecs.only(codecs.larger_than(10_000), codecs.error_feedback(codecs.one_bit()))
Codec(name='only(larger_than(10000), error_feedback(one_bit()))')
"""

from ...public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "distributed.codecs")
