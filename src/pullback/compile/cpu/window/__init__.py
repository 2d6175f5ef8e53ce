"""Windows over grids in native code: convolutions and pooling as functions of arrays, for programs and eager calls."""
