# What `import pullback.special` is to type checkers; at run time `public_names` finds it.
from .ops.special import *  # noqa: F403
