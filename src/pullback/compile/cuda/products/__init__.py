"""Matrix products of the GPU's target: the vendor's library, and tiles of our own that take in what follows."""
