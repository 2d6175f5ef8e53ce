"""Methods that search: roots, fixed points, minima."""
