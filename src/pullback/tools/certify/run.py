"""`certify` and `certify_ops`: every role at every sample in every dtype."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.exchange import to_numpy
from ...arrays.tensor import Tensor
from ...arrays.trees import LEAF, flatten, unflatten
from ...errors import ArgumentError, ConversionError, DtypeError
from ...ops import load_all_ops
from ...ops.op import Op
from ...transforms.forward import jvp
from .cases import Case, as_results, can_carry_derivative, cases_of
from .device_roles import device_roles
from .half_roles import HALF_DTYPES, HALF_ROLES, half_case
from .report import Certificate, Outcome
from .roles import ROLES, Measurement, Role, is_low_precision, is_smooth

#: The dtypes in which each sample of an op is certified.
DTYPES = ("float64", "float32", "complex128")

#: The roles in which a user's `if` on a value is refused.
_ABSTRACT_ROLES = ("batch", "staged", "compiled")

#: Declared exceptions, by op: the roles, and why. There are no others.
EXCEPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "sign": (("differences",), "the record is for reals; `pb.sign` of a complex number is x / |x|, by other ops"),
    "check_sums": (("edges",), "a sum that is not finite raises, which is what it is for"),
}


def certify(f: Callable[..., Any], *args: Any, device: str | None = None) -> Certificate:
    """Check every role of a function at the given arguments: its spec, jvp against vjp, differences, the four
    second-order compositions, third order along a line, vmap against a loop, the staged program, the
    compiled one.

    Floats among the arguments (which may be trees) carry derivatives, everything else is held fixed. With a `device`,
    such as "cuda", value, jvp and vjp are also computed there, eager and compiled. The report is true when all hold.

    >>> import numpy as np, pullback as pb
    >>> report = pb.certify(lambda x: pb.sum(pb.sin(x) * x), np.array([0.5, 1.5]))
    >>> bool(report)
    True
    """
    leaves, structure = flatten(tuple(_as_array(a) for a in args))
    leaves = [_as_array(leaf) for leaf in leaves]

    def body(*values: Any) -> Any:
        found, shape = flatten(f(*unflatten(structure, values)))
        return found[0] if shape is LEAF else tuple(found)

    case = Case(None, 0, tuple(leaves), body=body, kinds="fc")
    if not case.moving:
        raise DtypeError("certify: no argument is a float, so there is nothing to check.\n  Give one as 2.0, not 2.")
    if not any(can_carry_derivative(x) for x in as_results(body(*leaves))):
        raise DtypeError("certify: the function returns no float, so it has no derivative to check.")
    roles = ROLES if device is None else (*ROLES, *device_roles(device))
    report, name = Certificate(tuple(role.name for role in roles)), getattr(f, "__name__", "function")
    given = case_outcomes(case, name, "at the arguments given", roles)
    for outcome in itertools.chain(given, _double_precision_outcomes(case, name)):
        report.add(outcome)
    return report


def _double_precision_outcomes(case: Case, name: str) -> Iterator[Outcome]:
    """Differences have few digits in single precision; a function that follows the dtype of its arguments is checked in
    double.
    """
    if all(np.finfo(np.asarray(x).dtype).bits >= 64 for x in case.floats):
        return
    wide = case.cast("float64")
    if _catch_errors(lambda: is_low_precision(wide)) is False:
        yield from case_outcomes(wide, name, "in double precision", [r for r in ROLES if r.name == "differences"])


def _as_array(x: Any) -> Any:
    return to_numpy(x, "certify") if isinstance(x, (Tensor, float, complex, np.generic)) else x


def certify_ops(
    names: Iterable[str] = (),
    dtypes: Sequence[str] = DTYPES,
    roles: Sequence[Role] = ROLES,
    watch: Callable[[str], None] = lambda name: None,
) -> Certificate:
    """Check ops by their names (none: every op) in every role, at each sample and in each dtype; in float16 and
    bfloat16 the roles are those of half precision.

    >>> from pullback.tools.certify import certify_ops
    >>> print(certify_ops(["sinh"], dtypes=["float64"]).rows["sinh"]["batch"].cases)
    5
    """
    known = load_all_ops()
    strange = [name for name in names if name not in known]
    if strange:
        raise ArgumentError(f"certify: no op is called {', '.join(strange)}.\n  `pullback ops` lists them.")
    asked = [role.name for dtype in dtypes for role in (HALF_ROLES if dtype in HALF_DTYPES else roles)]
    report = Certificate(tuple(dict.fromkeys(asked)))
    for name in names or sorted(known):
        watch(name)
        report.rows[name] = {}
        for outcome in op_outcomes(known[name], dtypes, roles):
            report.add(outcome)
        excused, why = EXCEPTIONS.get(name, ((), ""))
        report.excused |= {(name, role): why for role in excused if role in report.roles}
    return report


def op_outcomes(op: Op, dtypes: Sequence[str] = DTYPES, roles: Sequence[Role] = ROLES) -> Iterator[Outcome]:
    """Every outcome of one op, cheap samples first; a caller may stop at the first failure."""
    excused, _ = EXCEPTIONS.get(op.name, ((), ""))
    for dtype in dtypes:
        half = dtype in HALF_DTYPES
        asked = [role for role in (HALF_ROLES if half else roles) if role.name not in excused]
        for case in cases_of(op, "fc"):
            made = half_case(case, dtype) if half else _case_in_dtype(case, dtype)
            if made is not None:
                yield from case_outcomes(made, op.name, f"sample {case.number}, {dtype}", asked)


def _case_in_dtype(case: Case, dtype: str) -> Case | None:
    """The case in a dtype; None where it has no floats to cast (once is enough) or no complex derivative."""
    real = [i for i in case.moving if np.asarray(case.args[i]).dtype.kind == "f"]
    if dtype == "float64":
        return case
    if not real:
        return None
    if dtype != "complex128":
        return case.cast(dtype)
    rotated = case.rotate_into_complex()
    return rotated if _supports_complex(rotated) else None


def _supports_complex(case: Case) -> bool:
    """Whether an op takes complex numbers, and has a derivative there if it has one at all."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            if case.op is not None and case.op.differentiable:
                jvp(case.function, case.floats, case.direction(0))
            else:
                case.call(*case.args)
    except (TypeError, np.exceptions.ComplexWarning):  # a DtypeError is a TypeError
        return False
    return True


def case_outcomes(case: Case, subject: str, where: str, roles: Sequence[Role]) -> Iterator[Outcome]:
    """Each role that applies to a case; an error that is raised is a failure like any other."""
    with np.errstate(all="ignore"):
        single = _catch_errors(lambda: is_low_precision(case))
    for role in roles:
        allowed = role.single if single is True else role.double
        if allowed is None:
            continue
        with np.errstate(all="ignore"):
            found = _catch_errors(lambda role=role: _run_role(role, case))  # type: ignore[misc]
        if found is not None:
            yield Outcome(subject, role.name, where, found.error, allowed, found.description)


def _run_role(role: Role, case: Case) -> Measurement | None:
    """Run a role; documented refusals do not count: complex derivatives of higher order that no op has, and a user's
    `if` on a traced value, in a batch or a program.
    """
    if role.of_derivatives and not is_smooth(case):
        return None
    try:
        return role.check(case)
    except (ConversionError, DtypeError) as error:
        if case.kinds == "c" if isinstance(error, DtypeError) else case.op is None and role.name in _ABSTRACT_ROLES:
            return None
        raise


def _catch_errors(check: Callable[[], Any]) -> Any:
    """The result of a check, or that it raised."""
    try:
        return check()
    except Exception as error:  # an error in a role is a failure of it
        text = str(error).strip().splitlines()
        return Measurement(float("inf"), f"raised {type(error).__name__}: {text[0] if text else ''}")
