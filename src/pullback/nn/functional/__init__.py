"""The functions of `pullback.nn` as PyTorch's users import them: `import pullback.nn.functional as F`.

Only those that take the same arguments as PyTorch's (with `axis` for `dim`); for the others an error says what to call.

>>> import pullback as pb
>>> import pullback.nn.functional as F
>>> F.relu is pb.nn.relu
True
"""

from ...public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "nn.functional")
