"""What a value is: dtypes, specs, array libraries, tensors and the nodes that made them."""
