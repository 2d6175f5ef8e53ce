"""The backward pass over recorded nodes, its hooks and its threads."""
