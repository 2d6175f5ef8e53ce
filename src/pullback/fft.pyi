# What `import pullback.fft` is to type checkers; at run time `public_names` finds it.
from .ops.fft import *  # noqa: F403
