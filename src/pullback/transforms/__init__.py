"""Functions of functions: each transform is one interpreter and one wrapper over the same op records."""
