"""Functions of images: resampling, grid sampling, folding."""
