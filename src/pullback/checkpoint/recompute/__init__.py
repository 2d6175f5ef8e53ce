"""`checkpoint`: a region that runs again in the backward pass, its arguments and policies."""
