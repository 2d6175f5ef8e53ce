# What `import pullback.linalg` is to type checkers; at run time `public_names` finds it.
from .ops.linalg import *  # noqa: F403
