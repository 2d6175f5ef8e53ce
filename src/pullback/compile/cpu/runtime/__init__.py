"""What runs compiled code: linking, the native entry, threads, callbacks, the BLAS."""
