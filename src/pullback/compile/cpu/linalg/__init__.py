"""Matrix routines in native code: unrolled ones for small matrices, LAPACK's for others."""
