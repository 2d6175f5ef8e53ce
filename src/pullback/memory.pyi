# What `import pullback.memory` is to type checkers; at run time `public_names` finds it.
from .tools.memory import *  # noqa: F403
