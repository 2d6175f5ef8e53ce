# What `import pullback.debug` is to type checkers; at run time `public_names` finds it.
from .transforms.debug import *  # noqa: F403
