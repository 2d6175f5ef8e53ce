# What `import pullback.einops` is to type checkers; at run time `public_names` finds it.
from .ops.shape.einops import *  # noqa: F403
