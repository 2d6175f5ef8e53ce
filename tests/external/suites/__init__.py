"""The suites, each a function from a directory to whether its mark was reached."""
