"""How the docs are built: `sphinx -W -b html docs build/docs`."""

import sys
from pathlib import Path

import pullback

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "pullback"
version = release = pullback.__version__
copyright = "the pullback authors"
extensions = ["myst_parser", "reference"]
exclude_patterns = ["_extensions"]
nitpicky = True
html_theme = "furo"
html_title = f"pullback {version}"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
