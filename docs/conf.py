"""How the docs are built: `sphinx -W -b html docs build/docs`."""

import sys
from pathlib import Path

import pullback

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "pullback"
version = release = pullback.__version__
copyright = "the pullback authors"
extensions = ["myst_parser", "reference", "charts", "foreign", "gallery", "fast_search", "page_checks"]
exclude_patterns = ["_extensions", "_templates"]
nitpicky = True
python_maximum_signature_line_length = 88
html_theme = "furo"
html_title = f"pullback {version}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["pullback.css"]
html_copy_source = False  # most pages are generated
html_split_index = True  # by letters
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
