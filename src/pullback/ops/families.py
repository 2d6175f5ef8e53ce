"""Op families: from what an op states (value, partials, samples) each derives the rest of its record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.size import Size
from ..arrays.spec import FLOAT8_CODES, HALF_CODES, Spec, make_spec, spec_of, zeros
from ..errors import ArgumentError, DeviceError, DtypeError, GraphError, ShapeError
from . import basis, batching, op_samples
from .dispatch import counts_as_number, float8_error, mixed_devices_error, promotion_argument, run, widens_bfloat16
from .eager import public_function
from .lazy import lazy_function
from .op import (
    OPAQUE,
    OPS,
    PURE,
    Algebra,
    Effects,
    Formula,
    MaskedCotangent,
    Op,
    as_formula,
    register,
    widen_arguments,
    widen_halves,
)
from .signatures import Declarations

FormulaFunction = Callable[..., Any]
_compute_kernel = lazy_function("cuda.eager", "compute_kernel", "compile")


def elementwise(
    name: str,
    partials: Mapping[str, FormulaFunction | None],
    *,
    doc: str,
    value: str | FormulaFunction | None = None,
    dtype: str = "same",
    kernel: FormulaFunction | None = None,
    samples: FormulaFunction | None = None,
    push: FormulaFunction | None = None,
    conjugate: bool = True,
    algebra: Algebra = OPAQUE,
    autocast: str = "",
    has_own_bits: bool = False,
    form: Any = None,
) -> Any:
    """An elementwise op: states one partial per argument, or with `bar` among its names, the product of
    the cotangent with the partial. None: the derivative is zero everywhere. Returns the public function.
    `has_own_bits`: CuPy's function rounds otherwise than the kernel, which then computes every call on a GPU.

    For complex arguments the cotangent is multiplied by the conjugate partial; `conjugate=False`: the
    formula already is the whole pull (for functions that are not holomorphic, which then state `push` too).
    """
    ufunc = value if isinstance(value, str) else name if value is None else None
    args, given = tuple(partials), _ufunc_value(ufunc) if ufunc else _check_callable(value)
    op = Op(
        name=name,
        family="elementwise",
        args=args,
        value=_prefer_kernel(name, given) if has_own_bits else given,
        spec=_pointwise_spec(name, ufunc, dtype),
        pulls={a: None if p is None else _pull_from_partial(as_formula(p), conjugate) for a, p in partials.items()},
        push=_push_wide(
            push or _pointwise_push([None if p is None else as_formula(p) for p in partials.values()], args)
        ),
        batch=batching.batch_pointwise,
        kernel=None if kernel is no_kernel else kernel or (lambda k, *scalars: getattr(k, name)(*scalars)),
        samples=samples or op_samples.reals(len(args)),
        ufunc=ufunc,
        algebra=algebra,
        autocast=autocast,
        statics={},
        differentiable=dtype not in ("bool", "bits"),
        form=form,
        wide_value=ufunc is None,
        wide_rules=not algebra.weights,
    )
    return public_function(register(op), _add_example(name, args, ufunc, doc))


def elementwise_op(partials: Mapping[str, FormulaFunction | None], **options: Any) -> Declarations:
    """A decorator of a declaration, which gives an elementwise op its name, its arguments and its docstring; partials
    and options as in `elementwise`.
    """
    return lambda declared: elementwise(declared.__name__, partials, doc=declared.__doc__ or "", **options)


def no_kernel(k: Any, *scalars: Any) -> Any:
    """The kernel of an op that only NumPy or CuPy computes: there is none."""


def same_spec(x: Spec, *others: Spec, **static: Any) -> Spec:
    """The spec of an op whose result is like its first argument."""
    return x


def linear(
    name: str,
    *,
    value: FormulaFunction,
    transpose: FormulaFunction | Mapping[str, FormulaFunction],
    samples: FormulaFunction,
    spec: FormulaFunction = same_spec,
    push: FormulaFunction | None = None,
    batch: FormulaFunction = batching.batch_in_front,
    rearranges: bool = True,
    sums: bool = False,
    form: Any = None,
    effects: Effects = PURE,
    kinds: tuple[str, str] | None = None,
    statics: Mapping[str, Any] | None = None,
    direct: FormulaFunction | None = None,
    autocast: str = "",
    on_gpu: FormulaFunction | None = None,
    picks_rows: bool = False,
) -> Op:
    """An op linear in all its arguments together: states its transpose (a formula of `bar`, specs and statics). With
    a mapping from arguments to formulas it is linear in those, and the arguments after them are indices. It moves,
    copies, drops or adds up elements (`sums`); where a weight may be negative or complex, `rearranges=False`. `push`:
    where a tangent is not the op of the tangents.
    """
    args = _argument_names(value, statics)
    pulls = transpose if isinstance(transpose, Mapping) else {args[-1]: transpose}
    moving = len(pulls) if isinstance(transpose, Mapping) else None

    def push_by_op(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        if len(tangents) == 1 and tangents[0] is not None:
            return run(op, tangents, static)
        if all(t is None for t in tangents):
            return None
        pairs = zip(tangents[:moving], primals, strict=False)
        filled = [zeros(spec_of(x)) if t is None else t for t, x in pairs]
        return run(op, [*filled, *primals[len(filled) :]], static)

    op = Op(
        name=name, family="linear", args=args, value=value, spec=spec,
        pulls={a: as_formula(pulls[a]) if a in pulls else None for a in args}, push=push or push_by_op, batch=batch,
        samples=samples, rearranges=rearranges, form=form, effects=effects, statics=statics or {}, direct=direct,
        wide_value=sums, autocast=autocast, on_gpu=on_gpu, kinds=kinds, picks_rows=picks_rows,
    )  # fmt: skip
    return register(op)


def _argument_names(value: FormulaFunction, statics: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names of a value's arrays: its parameters without `xp` and the static ones."""
    code = inspect.unwrap(value).__code__
    names = tuple(n for n in code.co_varnames[1 : code.co_argcount] if n not in (statics or ()))
    if not code.co_flags & inspect.CO_VARARGS:
        return names
    return (*names, "*" + code.co_varnames[code.co_argcount + code.co_kwonlyargcount])


def contraction(
    name: str,
    *,
    value: FormulaFunction,
    spec: FormulaFunction,
    pull: Mapping[str, FormulaFunction],
    batch: FormulaFunction,
    samples: FormulaFunction,
    form: Any = None,
    statics: Mapping[str, Any] | None = None,
    direct: FormulaFunction | None = None,
    on_gpu: FormulaFunction | None = None,
    narrow: FormulaFunction | None = None,
) -> Op:
    """An op linear in each argument separately: the tangent sums over arguments the op with that one replaced.
    `narrow` computes it on bfloat16 arrays of a GPU, or returns None.
    """

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        total = None
        for i, tangent in enumerate(tangents):
            if tangent is not None:
                replaced = list(primals)
                replaced[i] = tangent
                term = run(op, replaced, static)
                total = term if total is None else basis.add(total, term)
        return total

    op = Op(
        name=name, family="contraction", args=tuple(pull), value=_compute_wide(value, narrow), spec=spec,
        pulls={a: as_formula(p) for a, p in pull.items()}, push=push, batch=batch, samples=samples,
        form=form, statics=statics or {}, direct=direct, on_gpu=on_gpu, wide_value=True,
    )  # fmt: skip
    return register(op)


def _compute_wide(value: FormulaFunction, on_gpu: FormulaFunction | None) -> FormulaFunction:
    """A sum of products of bfloat16, which NumPy and CuPy do not multiply: computed in float32 and rounded once."""

    def compute(xp: Any, *arrays: Any, **static: Any) -> Any:
        narrow = [a.dtype for a in arrays if a.dtype.kind == "V"]
        if not narrow:
            return value(xp, *arrays, **static)
        all_narrow = len(narrow) == len(arrays)
        if xp is not np and on_gpu is not None and all_narrow and (found := on_gpu(*arrays)) is not None:
            return found
        wide = [a.astype(np.float32) if a.dtype.kind == "V" else a for a in arrays]
        found = value(xp, *wide, **static)
        return found.astype(narrow[0]) if all_narrow else found

    return compute


def general(
    name: str,
    *,
    value: FormulaFunction,
    samples: FormulaFunction,
    spec: FormulaFunction = same_spec,
    pulls: Mapping[str, FormulaFunction | None] | None = None,
    joint: FormulaFunction | None = None,
    push: FormulaFunction | None = None,
    args: tuple[str, ...] = (),
    batch: FormulaFunction = batching.batch_in_front,
    family: str = "general",
    rearranges: bool = False,
    form: Any = None,
    statics: Mapping[str, Any] | None = None,
    meet: Callable[..., None] | None = None,
    direct: FormulaFunction | None = None,
    autocast: str = "",
    effects: Effects = PURE,
    wide: bool = True,
    into: FormulaFunction | None = None,
    kinds: tuple[str, str] | None = None,
) -> Op:
    """An op that states both derivatives; without them its results carry none (integers, booleans). Where the pulls
    of its arguments share most of their work, `joint` computes them together. `args` names the arrays where the
    parameters of `value` do not. Without `wide` it takes half precision as it is.
    """
    if (pulls is None and joint is None) != (push is None):
        raise ArgumentError(f"op {name!r} must state pulls and push, or neither.")
    op = Op(
        name=name, family=family, args=args or _argument_names(value, statics), value=value, spec=spec,
        pulls={a: None if p is None else as_formula(p) for a, p in (pulls or {}).items()},
        push=(lambda tangents, out, primals, static: None) if push is None else _push_wide(push),
        batch=batch, samples=samples, wide_value=wide, wide_rules=wide,
        differentiable=push is not None, rearranges=rearranges, form=form,
        joint=None if joint is None else as_formula(joint), statics=statics or {}, meet=meet, direct=direct,
        autocast=autocast, effects=effects, kinds=kinds, into=into,
    )  # fmt: skip
    return register(op)


def _add_example(name: str, args: tuple[str, ...], ufunc: str | None, doc: str) -> str:
    """The docstring with a doctest: its own, or a comparison with NumPy's function."""
    if not doc or ">>>" in doc or ufunc is None:
        return doc
    call = ", ".join("x" for _ in args)
    return (
        f"{doc}\n\n    >>> import numpy as np, pullback as pb\n    >>> x = np.array([0.25, 0.5])\n"
        f"    >>> np.array_equal(pb.{name}({call}), np.{ufunc}({call}))\n    True\n    "
    )


def _ufunc_value(name: str) -> FormulaFunction:
    known = getattr(np, name)
    return lambda xp, *arrays: known(*arrays) if xp is np else _library_function(xp, name)(*arrays)


def _prefer_kernel(name: str, value: FormulaFunction) -> FormulaFunction:
    """The value by the op's kernel on a GPU, if there is one for the arrays."""

    def compute(xp: Any, *arrays: Any) -> Any:
        found = None if xp is np else _compute_kernel(OPS[name], arrays)
        return value(xp, *arrays) if found is None else found

    return compute


def _library_function(xp: Any, name: str) -> FormulaFunction:
    found: FormulaFunction | None = getattr(xp, name, None)
    if found is None:
        raise DeviceError(f"{name}: {xp.__name__} has no such function.\n  Move the array to the CPU.")
    return found


def _check_callable(value: Any) -> FormulaFunction:
    if not callable(value):
        raise ArgumentError("an op's value is the name of an array function or a function of (xp, *arrays).")
    return value  # type: ignore[no-any-return]


def is_complex(x: Any) -> bool:
    return bool(spec_of(x).dtype.kind == "c")


def conjugate_if_complex(x: Any) -> Any:
    """conj(x), without an op where x is real."""
    return basis.conj(x) if is_complex(x) else x


def _pull_from_partial(partial: Formula, conjugate: bool) -> Formula:
    """bar -> bar * conj(partial), from a partial or from a product form: conj(f(conj(bar))) = bar * conj(p)."""
    if not conjugate:
        return partial
    if "bar" in partial.names:
        at = partial.names.index("bar")

        def product(*values: Any) -> Any:
            if not any(is_complex(v) for v in values):
                return partial.function(*values)
            found = partial.function(*values[:at], conjugate_if_complex(values[at]), *values[at + 1 :])
            return conjugate_if_complex(found)

        return Formula(product, partial.names)
    names = ("bar", *partial.names)
    return Formula(lambda bar, *values: scale(bar, conjugate_if_complex(partial.function(*values))), names)


def scale(bar: Any, partial: Any) -> Any:
    """bar * partial, where the constants 1 and -1 cost nothing or little."""
    if type(partial) is float:
        return bar if partial == 1.0 else basis.negative(bar) if partial == -1.0 else basis.multiply(bar, partial)
    return basis.multiply(bar, partial)


def _pointwise_push(partials: Sequence[Formula | None], args: tuple[str, ...]) -> FormulaFunction:
    """The sum over arguments of tangent times partial; the names of each formula are resolved once."""
    places = [None if p is None else tuple(_locate_name(name, args) for name in p.names) for p in partials]

    def push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        total = None
        for i, tangent in enumerate(tangents):
            partial, named = partials[i], places[i]
            if tangent is None or partial is None or named is None:
                continue
            values = [
                primals[at] if kind == 0 else out if kind == 1 else tangent if kind == 2 else spec_of(primals[at])
                for kind, at in named
            ]
            found = partial.function(*values)
            term = found if (2, 0) in named else scale(tangent, found)
            term = term.bar if type(term) is MaskedCotangent else term
            total = term if total is None else basis.add(total, term)
        return total

    return push


def _push_wide(push: FormulaFunction) -> FormulaFunction:
    """A push whose several steps compute in float32 where the result has half precision; the tangent is rounded once,
    by the dual that takes it.
    """

    def push_in_single(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
        first = out[0] if type(out) is tuple else out
        if first.dtype.char in HALF_CODES:
            tangents, out, primals = widen_halves(tangents), widen_halves(out), widen_arguments(primals, first.dtype)
        return push(tangents, out, primals, static)

    return push_in_single


def _locate_name(name: str, args: tuple[str, ...]) -> tuple[int, int]:
    """Where a formula's name is found: (0, i) argument i, (1, 0) the result, (2, 0) the tangent, (3, i) a spec."""
    if name in ("out", "bar"):
        return (1, 0) if name == "out" else (2, 0)
    return (0, args.index(name)) if name in args else (3, args.index(name.removesuffix("_spec")))


def broadcast_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting, with our own error."""
    try:
        return np.broadcast_shapes(*shapes)
    except GraphError:
        return _broadcast_unknown(name, shapes)
    except (TypeError, ValueError):
        listed = " and ".join(map(str, shapes))
        raise ShapeError(f"{name}: shapes {listed} do not broadcast together.") from None


def _broadcast_unknown(name: str, shapes: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The same for unknown sizes: beside a size of one, any size stays."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True)
    found = []
    for sizes in columns:
        wide = [n for n in sizes if type(n) is Size or n != 1] or [1]
        if any(n != wide[0] for n in wide[1:]):
            listed = " and ".join(map(str, shapes))
            raise ShapeError(f"{name}: shapes {listed} do not broadcast together for every size.")
        found.append(wide[0])
    return tuple(found)


def common_device(name: str, specs: Sequence[Spec]) -> str:
    """The device that an op runs on."""
    devices = {s.device for s in specs if not counts_as_number(s)}
    if len(devices) > 1:
        raise mixed_devices_error(name, specs)
    return devices.pop() if devices else "cpu"


def _pointwise_spec(name: str, ufunc: str | None, dtype: str) -> FormulaFunction:
    def spec(*specs: Spec, **static: Any) -> Spec:
        for s in specs:
            if s.dtype.char in FLOAT8_CODES:
                raise float8_error(name, s.dtype)
        shape = broadcast_shape(name, *(s.shape for s in specs))
        return make_spec(shape, _result_dtype(name, ufunc, dtype, specs), common_device(name, specs))

    return spec


def result_dtype(specs: Sequence[Spec]) -> Any:
    """NumPy 2's promotion over the arguments, Python scalars being weak, also beside bfloat16."""
    if all(s.dtype is specs[0].dtype and s.weak is None for s in specs):
        return specs[0].dtype
    try:
        return np.result_type(*(d() if isinstance(d, type) else d for d in _promotion_arguments(specs)))
    except TypeError:
        listed = ", ".join(str(s.dtype) for s in specs)
        raise DtypeError(f"dtypes {listed} have no common dtype.") from None


def _promotion_arguments(specs: Sequence[Spec]) -> list[Any]:
    """Dtypes, and Python types for weak scalars, such that NumPy promotes as we do."""
    given = [promotion_argument(s) for s in specs]
    strong = [s.dtype for s in specs if not s.weak]
    if any(d.char in FLOAT8_CODES for d in strong):
        raise float8_error("promotion", next(d for d in strong if d.char in FLOAT8_CODES))
    narrow = [d for d in strong if d.name == "bfloat16"]
    if narrow and any(map(widens_bfloat16, strong)):
        return [np.dtype(np.float32) if d == narrow[0] else d for d in given]
    if narrow and not any(d.kind in "fc" for d in strong):
        return [narrow[0] if d in (int, float) else d for d in given]
    return given


def _result_dtype(name: str, ufunc: str | None, dtype: str, specs: Sequence[Spec]) -> Any:
    if dtype == "bool":
        return np.dtype(bool)
    if dtype == "branches":
        return result_dtype(specs[1:])
    if dtype == "real":
        return np.empty(0, result_dtype(specs)).real.dtype
    function = getattr(np, ufunc) if ufunc else np.sin if dtype == "inexact" else None
    if not isinstance(function, np.ufunc):
        return result_dtype(specs)
    if ufunc is None or function.nin != len(specs):
        asked: tuple[Any, ...] = (result_dtype(specs), None)
    else:
        asked = (*_promotion_arguments(specs), None)
    try:
        return function.resolve_dtypes(asked)[-1]
    except TypeError:
        dtypes = ", ".join(str(s.dtype) for s in specs)
        raise DtypeError(f"{name}: no version for dtype {dtypes}.") from None
