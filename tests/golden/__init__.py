"""PyTorch's recorded derivatives in, agreement with ours out: values, first and second order."""
