"""Mathematical functions in the kernel vocabulary, and their coefficients."""
