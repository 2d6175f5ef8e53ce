"""Matrix products: tiles, panels, inlined small ones, and the BLAS."""
