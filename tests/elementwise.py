"""Words of the scalar vocabulary, run on arrays: no graph, no record, just the kernel."""

import ctypes

import numpy as np

from pullback.compile.cpu.kernel.render import render_kernel
from pullback.compile.cpu.math.functions import FUNCTIONS
from pullback.compile.cpu.runtime.link import link, vector_bytes
from pullback.compile.cpu.target import cpu_limits
from pullback.compile.loop_ir import Buffer, Kernel, KernelLine, Store

assert FUNCTIONS
_linked = {}


def run_word(word, *arrays, out=None, width=None):
    """The word on each element of arrays of one dtype and length; `out` is the result's dtype."""
    dtype, size = arrays[0].dtype, arrays[0].size
    out = np.dtype(out or dtype)
    key = (word, dtype, size, out, width)
    if key not in _linked:
        _linked[key] = _compiled(word, len(arrays), dtype, size, out, width or vector_bytes())
    result = np.empty(size, out)
    pointers = [a.ctypes.data for a in (*[np.ascontiguousarray(a) for a in arrays], result)]
    linked, order = _linked[key]
    kinds = [ctypes.c_void_p] * (len(pointers) + 1)
    ctypes.CFUNCTYPE(None, *kinds)(linked.addresses["word"])(*[pointers[i] for i in order], 0)
    return result


def _compiled(word, count, dtype, size, out, width):
    buffers = [Buffer("input", size, dtype, i) for i in range(count)] + [Buffer("output", size, out)]
    loads = [KernelLine("load", dtype, frozenset((0,)), buffer=b, strides=(1,)) for b in buffers[:-1]]
    line = KernelLine(
        "apply", out, frozenset((0,)), args=tuple(loads), compute_dtype=dtype, kernel=lambda k, *x: getattr(k, word)(*x)
    )
    kernel = Kernel((size,), 0, [*loads, line], [Store(line, buffers[-1], (1,))])
    rendered = render_kernel(kernel, cpu_limits(width))
    text = rendered.text.replace("internal void @NAME", "void @word")
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width * 8}" }}'
    module = "\n".join([*sorted(rendered.declared), *rendered.functions.values(), text, attributes])
    return link(module, ["word"]), [buffers.index(b) for b in rendered.buffers]
