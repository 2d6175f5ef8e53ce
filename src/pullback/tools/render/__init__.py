"""SVG plots and HTML pages without dependencies."""
