# The public names of `pullback.distributed.codecs` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from .choice import best as best
from .codec import Codec as Codec
from .codec_report import report as report
from .feedback import error_feedback as error_feedback
from .halves import bfloat16 as bfloat16, float16 as float16
from .integers import int8 as int8
from .largest import threshold as threshold, top_k as top_k
from .low_rank import power_sgd as power_sgd
from .phases import after as after
from .predicates import larger_than as larger_than, matrices as matrices, only as only
from .random_places import random_k as random_k
from .sign_bits import one_bit as one_bit
