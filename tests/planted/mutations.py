"""Op records in, wrong ones out: a mistake at a time, planted into the record itself and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pullback as pb
from pullback.arrays.spec import make_spec
from pullback.ops import Op, load_all_ops
from pullback.ops.op import Formula, MaskedCotangent, PullRule
from pullback.ops.plans import forget_plans
from pullback.ops.reduce.reductions import sum as total
from pullback.settings import override_native
from pullback.tools.certify.cases import cases_of
from pullback.tools.certify.oracles import oracle_of

#: Ops whose derivative is zero by definition: there is no factor to get wrong.
INERT = {"stop_gradient", "sign", "heaviside"}
#: Mistakes that change nothing, with the ops that cannot make them.
HARMLESS = {
    "batch out of order": "equal not_equal logical_and logical_or logical_not logical_xor isnan isinf isfinite any all "
    "barrier check_sums compare_replicas start_totals",
    "pull of x, wrong keepdims": "prod max min",
    "batch axis": "barrier check_sums compare_replicas start_totals",
}
#: Why: samples of the first have the same result in every row, the pulls of the second look at shapes alone, and the
#: results of the third have no batch axis.


@dataclass(frozen=True)
class Mutation:
    """One wrong rule: the op, what is wrong, and the fields of the record that say so."""

    op: str
    kind: str
    fields: Callable[[Op], dict[str, Any]]
    dtypes: tuple[str, ...] = ("float64",)

    def __str__(self) -> str:
        return f"{self.op}: {self.kind}"


@contextmanager
def planted(mutation: Mutation) -> Iterator[Op]:
    """The op with the mistake in it. Records are frozen and known to closures, so the record itself is written to."""
    op = load_all_ops()[mutation.op]
    changed = mutation.fields(op)
    if "value" in changed:
        changed["direct"] = None  # another way to the value
    before = {name: getattr(op, name) for name in changed}
    _write(op, changed)
    try:
        with override_native(False):  # compiled forms outlive the mistake
            yield op
    finally:
        _write(op, before)


def _write(op: Op, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        object.__setattr__(op, name, value)
    for (needs, count), rule in op.rules.items():  # they know what formulas name, and hold steps made of them
        PullRule.__init__(rule, op, needs, count)
    forget_plans()


def each(values: Any, change: Callable[[Any], Any]) -> Any:
    """A change made to one result or several, to what is selected, and not to None."""
    if values is None:
        return None
    if isinstance(values, dict):
        return {i: each(v, change) for i, v in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(each(v, change) for v in values)
    return MaskedCotangent(change(values.bar), values.mask) if type(values) is MaskedCotangent else change(values)


def wrong_pull(argument: str | None, change: Callable[[Any], Any], cut: bool = False) -> Callable[[Op], dict[str, Any]]:
    """The cotangent of one argument changed; with `cut`, its formula no longer depends on what it is computed from."""

    def wrapped(rule: Formula) -> Formula:
        def formula(*values: Any) -> Any:
            if cut:
                known = zip(rule.names, values, strict=True)
                values = tuple(v if n in ("bar", "position") or n.endswith("spec") else still(v) for n, v in known)
            return each(rule.function(*values), change)

        return Formula(formula, rule.names)

    def fields(op: Op) -> dict[str, Any]:
        if op.joint is not None:
            return {"joint": wrapped(op.joint)}
        return {"pulls": {**op.pulls, argument: wrapped(op.pulls[argument])}}

    return fields


def still(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(still, value))
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return pb.stop_gradient(value) if kind in ("f", "c") else value


def wrong_push(change: Callable[[Any], Any], cut: bool = False, drop: int | None = None) -> Any:
    def fields(op: Op) -> dict[str, Any]:
        def push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
            if drop is not None:
                tangents = [None if i == drop else t for i, t in enumerate(tangents)]
                if all(t is None for t in tangents):
                    return None
            if cut:
                out, primals = still(out), list(map(still, primals))
            return each(op_push(tangents, out, primals, static), change)

        op_push = op.push
        return {"push": push}

    return fields


def wrong_batch(how: str) -> Callable[[Op], dict[str, Any]]:
    def fields(op: Op) -> dict[str, Any]:
        rule = op.batch

        def batch(*given: Any) -> Any:
            out, axis = rule(*given)
            if how == "axis":
                return out, each(axis, lambda a: 0 if a else -1)
            axes = axis if isinstance(axis, (tuple, list)) else [axis] * len(out) if isinstance(out, tuple) else axis
            if isinstance(out, tuple):
                return tuple(o if a is None else pb.flip(o, axis=a) for o, a in zip(out, axes, strict=True)), axis
            return (out if axis is None else pb.flip(out, axis=axis)), axis

        return {"batch": batch}

    return fields


def wrong_value(op: Op) -> dict[str, Any]:
    value = op.value
    return {"value": lambda xp, *arrays, **static: each(value(xp, *arrays, **static), lambda x: x * 1.5)}


def wrong_spec(how: str) -> Callable[[Op], dict[str, Any]]:
    def changed(spec: Any) -> Any:
        return make_spec((*spec.shape, 1), spec.dtype) if how == "shape" else make_spec(spec.shape, "complex64")

    def fields(op: Op) -> dict[str, Any]:
        spec = op.spec
        return {"spec": lambda *specs, **static: each(spec(*specs, **static), changed)}

    return fields


def itself(x: Any) -> Any:
    return x


def negated(x: Any) -> Any:
    return pb.negative(x)


def doubled(x: Any) -> Any:
    return pb.multiply(x, 2.0)


def nothing(x: Any) -> Any:
    return pb.multiply(x, 0.0)


def moving(op: Op) -> set[str]:
    """The arguments that carry derivatives in some sample; orders that must be whole numbers do not."""
    return {op.argument(i) for case in cases_of(op, "fc") for i in case.moving}


def generic(op: Op) -> Iterator[Mutation]:
    """The mistakes one can make with any op."""
    yield Mutation(op.name, "batch out of order", wrong_batch("order"))
    yield Mutation(op.name, "batch axis", wrong_batch("axis"))
    if op.spec is not None:
        yield Mutation(op.name, "spec of another shape", wrong_spec("shape"))
        yield Mutation(op.name, "spec of another dtype", wrong_spec("dtype"))
    if any(oracle_of(case) is not None for case in cases_of(op, "fc")):
        yield Mutation(op.name, "value, factor", wrong_value)
    if not op.differentiable or op.name in INERT:
        return
    pulled = (
        ["all"] if op.joint is not None else [a for a in op.args if op.pulls.get(a) is not None and a in moving(op)]
    )
    for a in pulled:
        for kind, change in (("sign", negated), ("factor", doubled), ("nothing", nothing)):
            yield Mutation(op.name, f"pull of {a}, {kind}", wrong_pull(a, change))
    if pulled:
        yield Mutation(op.name, "push, sign", wrong_push(negated))
        yield Mutation(op.name, "push, factor", wrong_push(doubled))
    if len(pulled) > 1 and op.family != "linear":
        for i, a in enumerate(op.args):
            if a in pulled:
                yield Mutation(op.name, f"push, term of {a} dropped", wrong_push(itself, drop=i))


def curved(op: Op) -> Iterator[Mutation]:
    """Derivatives that are right to first order only."""
    for a, rule in op.pulls.items():
        if rule is not None and set(rule.names) & ({"out"} | set(op.args)):
            yield Mutation(op.name, f"pull of {a}, cut off", wrong_pull(a, itself, cut=True))
    yield Mutation(op.name, "push, cut off", wrong_push(itself, cut=True))


def swapped(op: Op) -> dict[str, Any]:
    (a, p), (b, q), *others = ((a, p) for a, p in op.pulls.items())
    return {"pulls": {a: q, b: p, **dict(others)}}


def pulled_by(argument: str, formula: Callable[..., Any]) -> Callable[[Op], dict[str, Any]]:
    """Another formula, its names read off its parameters."""
    names = formula.__code__.co_varnames[: formula.__code__.co_argcount]
    return lambda op: {"pulls": {**op.pulls, argument: Formula(formula, names)}}


def with_static(argument: str, name: str, change: Callable[[Any], Any]) -> Callable[[Op], dict[str, Any]]:
    """The formula of an argument, told something else of a static parameter."""

    def fields(op: Op) -> dict[str, Any]:
        rule = op.pulls[argument]
        place = rule.names.index(name)

        def formula(*values: Any) -> Any:
            return rule.function(*values[:place], change(values[place]), *values[place + 1 :])

        return {"pulls": {**op.pulls, argument: Formula(formula, rule.names)}}

    return fields


def other_axis(axis: Any) -> Any:
    return tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1


SWAPS = [
    "subtract", "multiply", "divide", "power", "atan2", "hypot", "maximum", "minimum", "fmax", "fmin",
    "logaddexp", "logaddexp2", "remainder", "fmod", "xlogy", "beta", "betaln", "gammainc", "gammaincc",
    "rel_entr", "kl_div", "poch", "binom", "matmul", "copysign", "xlog1py",
]  # fmt: skip
#: Which ops have second derivatives, and so something to cut off.
CURVED = [
    "multiply", "divide", "power", "square", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan",
    "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2", "sigmoid", "erf", "logaddexp", "hypot", "rsqrt",
    "reciprocal", "exp2", "log2", "log10", "asinh", "acosh", "atanh", "cbrt", "prod", "cumulative_prod",
    "linear_recurrence", "logcumsumexp", "matmul", "einsum", "convolve", "inv", "det", "cholesky", "expm",
    "sinc", "gamma", "lgamma", "digamma", "erfc", "erfinv", "ndtr", "log_ndtr", "beta", "jv", "iv", "entr",
    "logit", "expi", "gammainc", "betainc",
]  # fmt: skip
CONJUGATED = [
    "multiply", "divide", "power", "exp", "sin", "square", "sqrt", "log", "tanh", "matmul", "einsum", "inv",
    "det", "expm", "prod", "fft", "abs", "conj", "convolve",
]  # fmt: skip
#: Mistakes that only one op can have.
OWN = [
    Mutation("where", "mask dropped", pulled_by("x", lambda bar: bar)),
    Mutation("zero_unless", "cotangent of what is zero", pulled_by("x", lambda bar: bar)),
    Mutation("where", "mask of y dropped", pulled_by("y", lambda bar: bar)),
    Mutation("where", "mask the other way", pulled_by("x", lambda bar, condition: pb.where(condition, 0.0, bar))),
    Mutation("clip", "mask dropped", pulled_by("x", lambda bar: bar)),
    Mutation("relu", "mask dropped", pulled_by("x", lambda bar: bar)),
    Mutation("abs", "sign of x dropped", pulled_by("x", lambda bar: bar)),
    Mutation("maximum", "mask dropped", pulled_by("x", lambda bar: bar)),
    Mutation("minimum", "mask dropped", pulled_by("y", lambda bar: bar)),
    Mutation("multiply", "other argument forgotten", pulled_by("x", lambda bar, x: bar * x)),
    Mutation("divide", "quotient without the minus", pulled_by("y", lambda bar, out, y: bar * out / y)),
    Mutation("divide", "divisor not squared", pulled_by("y", lambda bar, x, y: -bar * x / y)),
    Mutation("power", "exponent not lowered", pulled_by("x", lambda bar, x, y: bar * y * x**y)),
    Mutation("power", "log of the exponent", pulled_by("y", lambda bar, out, y: bar * out * pb.log(pb.abs(y)))),
    Mutation("tanh", "one minus out", pulled_by("x", lambda bar, out: bar * (1.0 - out))),
    Mutation("sigmoid", "out not multiplied", pulled_by("x", lambda bar, out: bar * (1.0 - out))),
    Mutation("sqrt", "two forgotten", pulled_by("x", lambda bar, out: bar / out)),
    Mutation("cos", "minus forgotten", pulled_by("x", lambda bar, x: bar * pb.sin(x))),
    Mutation("log1p", "one forgotten", pulled_by("x", lambda bar, x: bar / x)),
    Mutation("erf", "two over root pi forgotten", pulled_by("x", lambda bar, x: bar * pb.exp(-x * x))),
    Mutation("conj", "conjugate dropped", pulled_by("x", lambda bar: bar), ("complex128",)),
    Mutation("imag", "rotation dropped", pulled_by("x", lambda bar: bar), ("complex128",)),
    Mutation("sum", "mean instead", pulled_by("x", lambda bar, x_spec: pb.broadcast_to(pb.sum(bar), x_spec.shape))),
    Mutation("broadcast_to", "sum missing", pulled_by("x", lambda bar, x_spec: pb.multiply(total(bar), 0.0))),
    Mutation("flip", "not turned back", pulled_by("x", lambda bar: bar)),
    Mutation("roll", "not turned back", pulled_by("x", lambda bar: bar)),
    Mutation("roll", "the same way again", with_static("x", "shift", lambda shift: each(shift, lambda s: -s))),
    Mutation("cumulative_sum", "from the front", pulled_by("x", lambda bar, axis: pb.cumulative_sum(bar, axis=axis))),
    Mutation("cumulative_sum", "wrong axis", with_static("x", "axis", other_axis)),
    Mutation("fft", "inverse twice", with_static("x", "inverse", lambda inverse: not inverse)),
]


def statics(op: Op) -> Iterator[Mutation]:
    for argument, rule in op.pulls.items():
        names = () if rule is None else rule.names
        if "axis" in names:
            yield Mutation(op.name, f"pull of {argument}, wrong axis", with_static(argument, "axis", other_axis))
        if "keepdims" in names:
            flipped = with_static(argument, "keepdims", lambda keepdims: not keepdims)
            yield Mutation(op.name, f"pull of {argument}, wrong keepdims", flipped)


def conjugates(op: Op) -> Iterator[Mutation]:
    for a, rule in op.pulls.items():
        if rule is not None:
            yield Mutation(op.name, f"pull of {a}, conjugate", wrong_pull(a, pb.conj), ("complex128",))


def every_mutation() -> list[Mutation]:
    """All mistakes, those of one op first."""
    ops = load_all_ops()
    found = [*OWN, *(Mutation(name, "arguments swapped", swapped) for name in SWAPS)]
    for op in ops.values():
        found += [*generic(op), *statics(op)]
    for name in CURVED:
        found += curved(ops[name])
    for name in CONJUGATED:
        found += conjugates(ops[name])
    return [in_the_plane(m) for m in found if m.op not in HARMLESS.get(m.kind, "").split()]


def in_the_plane(mutation: Mutation) -> Mutation:
    """The imaginary part of real numbers is zero, whatever its rule does."""
    return replace(mutation, dtypes=("complex128",)) if mutation.op == "imag" else mutation
