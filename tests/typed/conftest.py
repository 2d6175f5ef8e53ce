"""The programs here are for type checkers; `tests/test_types.py` reads and runs them."""

collect_ignore_glob = ["*.py"]
