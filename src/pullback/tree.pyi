# What `import pullback.tree` is to type checkers; at run time `public_names` finds it.
from .arrays.tree import *  # noqa: F403
