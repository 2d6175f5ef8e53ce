"""Loss functions; `reduction` is none, mean or sum."""
