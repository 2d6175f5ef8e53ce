"""What all tests share: NumPy's own warnings about infinities are not about us, and hypothesis is repeatable."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")

#: Suites of other packages, run by a script of their own.
collect_ignore = ["external"]
