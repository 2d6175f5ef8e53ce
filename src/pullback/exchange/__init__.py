"""Exchange with other systems: programs as ONNX, StableHLO and DOT, and TensorBoard's event files."""

from ..public_names import load_on_access

__getattr__, __dir__ = load_on_access(__name__, "exchange")
