# What `import pullback.random` is to type checkers; at run time `public_names` finds it.
from .ops.random import *  # noqa: F403
