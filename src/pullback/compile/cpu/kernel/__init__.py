"""One kernel as a function of LLVM text: loops over rows, loads, folds and stores."""
