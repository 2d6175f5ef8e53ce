# What `import pullback.cuda` is to type checkers; at run time `public_names` finds it.
from .arrays.cuda import *  # noqa: F403
