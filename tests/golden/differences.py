"""Where we differ from PyTorch on purpose: (case, check) to the reason. A test holds that each entry is needed."""

CHECKS = ("value", "vjp", "second order", "strided value", "strided vjp")

DIFFERENCES = {
    ("tensordot-2", check): "a contracted axis of length 1 meets one of length 2: PyTorch broadcasts, we refuse"
    for check in CHECKS
}
DIFFERENCES |= {
    ("as_strided:partial_views-2", check): "PyTorch reads memory outside of the array it is given, we refuse"
    for check in CHECKS
}
