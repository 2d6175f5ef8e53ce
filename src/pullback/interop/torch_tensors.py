"""Tensors of PyTorch as arrays, and arrays as such tensors, in the same memory."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from ..arrays.dlpack import export_capsule, import_array
from ..arrays.dtypes import as_dtype
from ..arrays.spec import Spec, make_spec
from ..errors import ArgumentError, DeviceError, DtypeError


def import_torch(what: str) -> Any:
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what}: PyTorch is not installed.\n  Install it: pip install torch.") from error


def is_transformed(tensor: Any) -> bool:
    """Whether a tensor is inside of a transform of PyTorch's, such as a batch of cotangents, and has no memory."""
    return bool(import_torch("interop.torch")._C._functorch.is_functorch_wrapped_tensor(tensor))


def refuse_recording(what: str) -> None:
    """Raise where PyTorch records its operations to run them later: results of this call would be constants there."""
    recorder = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if recorder is not None and recorder.get_proxy_mode() is not None:
        raise ArgumentError(
            f"{what}: PyTorch records its own operations here (torch.export, make_fx, torch.func.linearize), and does "
            "not see what this function computes.\n"
            "  Call it outside of what is recorded; derivatives are those of torch.func.jvp and vjp."
        )


def is_fake(tensor: Any) -> bool:
    """Whether a tensor has a shape and no numbers."""
    return tensor.is_meta or isinstance(tensor, import_module("torch._subclasses.fake_tensor").FakeTensor)


def spec_of_tensor(tensor: Any) -> Spec:
    device = "cpu" if tensor.device.type in ("cpu", "meta") else f"cuda:{tensor.device.index or 0}"
    return make_spec(tuple(tensor.shape), as_dtype(str(tensor.dtype).removeprefix("torch.")), device=device)


def make_empty(spec: Spec, what: str) -> Any:
    """A tensor of a spec."""
    torch = import_torch(what)
    found = getattr(torch, spec.dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise ArgumentError(f"{what}: PyTorch has no dtype {spec.dtype}.")
    return torch.empty(spec.shape, dtype=found, device=spec.device)


def as_array(tensor: Any, what: str) -> Any:
    """The numbers of a tensor, in its memory: NumPy's array, or CuPy's on a GPU."""
    tensor = tensor.detach()
    if tensor.is_complex():
        raise DtypeError(
            f"{what}: gradients of complex tensors have another convention in PyTorch, and are not passed."
        )
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise ArgumentError(f"{what}: wants dense tensors, got one of layout {tensor.layout}, {tensor.dtype}.")
    kind = tensor.device.type
    if kind == "cpu":
        is_plain = not tensor.is_neg() and str(tensor.dtype) != "torch.bfloat16"
        return tensor.numpy() if is_plain else import_array(np, tensor.resolve_neg())
    if kind != "cuda":
        raise DeviceError(f"{what}: a tensor on {tensor.device} cannot be shared.\n  Move it to the CPU: x.cpu().")
    try:
        return import_array(import_module("cupy"), tensor)
    except ModuleNotFoundError as error:
        raise DeviceError(f"{what}: this tensor is on a GPU, and CuPy is not installed.") from error


def as_tensor(array: Any, what: str) -> Any:
    """A tensor in the memory of an array, as far as PyTorch has such; of one that is read-only, to be read alone."""
    torch = import_torch(what)
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array if hasattr(array, "__dlpack__") else np.asarray(array))
    if array.dtype.kind == "c":
        raise DtypeError(f"{what}: gradients of complex arrays have another convention in PyTorch, and are not passed.")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    elif min(array.strides, default=0) < 0 or any(s % array.itemsize for s in array.strides):
        array = array.copy()
    if array.flags.writeable and array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_dlpack(export_capsule(array, max_version=(1, 0)))
