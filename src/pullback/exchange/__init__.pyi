# Every public name of the namespace once, with the module that it lives in.
from .c_library import CLibrary as CLibrary
from .c_library import to_c_library as to_c_library
from .events import EventWriter as EventWriter
from .export import to_dot as to_dot
from .export import to_onnx as to_onnx
from .export import to_stablehlo as to_stablehlo
