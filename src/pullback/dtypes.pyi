# What `import pullback.dtypes` is to type checkers; at run time `public_names` finds it.
from .arrays.dtypes import *  # noqa: F403
