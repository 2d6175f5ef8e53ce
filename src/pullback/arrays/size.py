"""Sizes that are not known yet: expressions in named unknowns, which do arithmetic exactly and never become a number.

A graph that is built by hand runs the code of public functions before its arrays are there. What such code computes
from an unknown size (the count of a mean, the shape of a reshape) stays an expression and is evaluated when the size
is known. A comparison must be decided at once: if it is not the same for all sizes, it is decided for a large one and
recorded as a *guard*, which is checked whenever the real size is known. Whatever needs the number itself (an array of
that length, a loop over it) is refused: there is no number inside that could be taken for it.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..errors import ArgumentError, GraphError, LeakError

#: A form is a number or a nested tuple: ("name", n), ("sum", ((atoms, factor), ...)), or (operator, form, form).
Form = Any
_RELATION_NAMES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {s: getattr(operator, name) for s, name in _RELATION_NAMES.items()}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
#: Python's operators by their sign, and by the name of their method.
_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "**": "pow", "//": "floordiv", "%": "mod"}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {sign: getattr(operator, name) for sign, name in _NAMES.items()}
#: The sizes for which comparisons are decided. Large and prime, so no special case that code tests for.
_REPRESENTATIVES = (30089, 31013, 32117, 33161, 34141, 35081, 35983, 36919, 37847, 38747)


class Guard(NamedTuple):
    """A comparison that was decided."""

    left: Form
    relation: str
    right: Form
    outcome: bool

    @property
    def names(self) -> set[Any]:
        """The unknown sizes in it."""
        return _names_in(self.left) | _names_in(self.right)

    def holds(self, known: Mapping[Any, int]) -> bool:
        return _holds(self.left, self.relation, self.right, known) == self.outcome

    def __str__(self) -> str:
        relation = self.relation if self.outcome else _OPPOSITE[self.relation]
        return f"{_format_form(self.left)} {relation} {_format_form(self.right)}"


def _holds(left: Form, relation: str, right: Form, known: Mapping[Any, int]) -> bool:
    return _RELATIONS[relation](_evaluate_form(left, known), _evaluate_form(right, known))


class Recorder(Protocol):
    """The graph being built: it makes values for expressions with unknown sizes."""

    def value_of(self, size: Size) -> Any:
        """A number that is not known yet, as an argument of ops."""

    def write(self, op: Any, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """An op with a static parameter that is not known yet, on arrays that are."""

    def full_array(self, number: Any, shape: tuple[Any, ...]) -> Any:
        """An array of one number in a shape with unknown sizes."""

    def arange_array(self, size: Size) -> Any:
        """The integers from zero up to a size."""


class Unknowns:
    """The unknown sizes of one graph by name (None is a name too), and what was assumed about them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)  # specs with unknown sizes outlive the graph
        self.representatives: dict[Any, int] = {}
        self.guards: dict[tuple[Form, str, Form], Guard] = {}

    @property
    def recorder(self) -> Recorder:
        found = self._recorder()
        if found is None:
            raise LeakError("an unknown size was used after its graph.")
        return found

    def size(self, name: Any) -> Size:
        """The unknown size of a name."""
        if name not in self.representatives:
            if len(self.representatives) == len(_REPRESENTATIVES):
                raise ArgumentError(f"a graph has at most {len(_REPRESENTATIVES)} unknown sizes.")
            self.representatives[name] = _REPRESENTATIVES[len(self.representatives)]
        return Size(self, _from_polynomial({(("name", name),): 1}))

    def decide(self, left: Form, relation: str, right: Form) -> bool:
        """Decide a comparison for the representatives, and record it."""
        key = (left, relation, right)
        found = self.guards.get(key)
        if found is None:
            found = self.guards[key] = Guard(*key, _holds(*key, self.representatives))
        return found.outcome


class Size:
    """An unknown size or a number computed from some; `is_integral` unless division or a root made it a float."""

    __slots__ = ("form", "is_integral", "unknowns")
    __array_ufunc__ = None  # NumPy scalars defer arithmetic to this class, NumPy functions refuse

    def __init__(self, unknowns: Unknowns, form: Form, is_integral: bool = True) -> None:
        self.unknowns = unknowns
        self.form = form
        self.is_integral = is_integral

    @property
    def name(self) -> Any:
        """The name in a tuple if this is an unknown size itself, else ()."""
        terms: Any = self.form[1] if self.form[0] == "sum" else ()
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0][0] == "name":
            return (terms[0][0][0][1],)
        return ()

    def _form_of(self, x: Any) -> Form | None:
        """The form of another operand; None if it is not a number."""
        if isinstance(x, Size):
            if x.unknowns is not self.unknowns:
                raise LeakError("the unknown sizes of two graphs were combined in one expression.")
            return x.form
        if isinstance(x, np.ndarray):
            self._refuse()
        x = x.item() if isinstance(x, np.generic) else x
        return int(x) if isinstance(x, (bool, int)) else x if isinstance(x, float) else None

    def _combine(self, operation: str, a: Form, b: Form) -> Any:
        whole = all(map(_is_integral, (a, b))) and (operation in ("+", "-", "*", "//", "%"))
        if operation == "**" and _is_integral(a) and isinstance(b, int) and 0 <= b <= 8:
            return math.prod([self._from_form(a)] * b)
        return self._from_form(_simplify(operation, a, b) if whole else (operation, a, b))

    def _from_form(self, form: Form) -> Any:
        return Size(self.unknowns, form, _is_integral(form)) if isinstance(form, tuple) else form

    def _compare(self, relation: str, x: Any) -> Any:
        other = self._form_of(x)
        if other is None:
            return NotImplemented
        if _is_integral(self.form) and _is_integral(other):
            low, high = _bounds(_simplify("-", self.form, other))
            known = _decide_by_bounds(relation, low, high)
            if known is not None:
                return known
        return self.unknowns.decide(self.form, relation, other)

    def __hash__(self) -> int:
        return hash((id(self.unknowns), self.form))

    def __bool__(self) -> bool:
        return bool(self._compare("!=", 0))

    def __neg__(self) -> Any:
        return self._combine("*", -1, self.form)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self._compare(">=", 0) else -self

    def __divmod__(self, x: Any) -> Any:
        return self // x, self % x

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise GraphError(
            f"this needs a size that is not known yet ({self}).\n"
            "  Give the placeholder its whole shape, or feed what is computed from the size."
        )

    __index__ = __int__ = __float__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = __array__ = _refuse

    def __repr__(self) -> str:
        return _format_form(self.form)


def _binary_methods(operation: str) -> tuple[Callable[[Size, Any], Any], Callable[[Size, Any], Any]]:
    def forward(self: Size, x: Any) -> Any:
        other = self._form_of(x)
        return NotImplemented if other is None else self._combine(operation, self.form, other)

    def backward(self: Size, x: Any) -> Any:
        other = self._form_of(x)
        return NotImplemented if other is None else self._combine(operation, other, self.form)

    return forward, backward


def _comparison_method(relation: str) -> Callable[[Size, Any], Any]:
    return lambda self, x: self._compare(relation, x)


for _operation, _name in _NAMES.items():
    _forward, _backward = _binary_methods(_operation)
    setattr(Size, f"__{_name}__", _forward)
    setattr(Size, f"__r{_name}__", _backward)
for _operation, _name in _RELATION_NAMES.items():
    setattr(Size, f"__{_name}__", _comparison_method(_operation))


def _is_integral(form: Form) -> bool:
    return isinstance(form, int) or (isinstance(form, tuple) and form[0] == "sum")


#: A polynomial: products of atoms mapped to their coefficients.
Polynomial = dict[tuple[Form, ...], int]


def _as_polynomial(form: Form) -> Polynomial:
    return ({(): form} if form else {}) if isinstance(form, int) else dict(form[1])


def _from_polynomial(terms: Polynomial) -> Form:
    left = {atoms: factor for atoms, factor in terms.items() if factor}
    if all(atoms == () for atoms in left):
        return left.get((), 0)
    return "sum", tuple(sorted(left.items(), key=repr))


def _simplify(operation: str, a: Form, b: Form) -> Form:
    """An integer expression in its normal form: equal polynomials are equal forms."""
    x, y = _as_polynomial(a), _as_polynomial(b)
    if operation in "+-":
        sign = 1 if operation == "+" else -1
        return _from_polynomial({t: x.get(t, 0) + sign * y.get(t, 0) for t in x.keys() | y.keys()})
    if operation == "*":
        found: Polynomial = {}
        for s, m in x.items():
            for t, n in y.items():
                atoms = tuple(sorted(s + t, key=repr))
                found[atoms] = found.get(atoms, 0) + m * n
        return _from_polynomial(found)
    exact = _quotient(x, y)
    if exact is not None:
        return exact if operation == "//" else 0
    return _from_polynomial({((operation, a, b),): 1})


def _quotient(x: Polynomial, y: Polynomial) -> Form | None:
    """x / y where y is one product that divides each term of x; else None. A zero y raises at evaluation."""
    if len(y) != 1:
        return None
    ((divisor, factor),) = y.items()
    if any(n % factor or any(t.count(a) < divisor.count(a) for a in divisor) for t, n in x.items()):
        return None
    return _from_polynomial({_remove_atoms(t, divisor): n // factor for t, n in x.items()})


def _remove_atoms(atoms: tuple[Form, ...], divisor: tuple[Form, ...]) -> tuple[Form, ...]:
    left = list(atoms)
    for a in divisor:
        left.remove(a)
    return tuple(left)


def _bounds(form: Form) -> tuple[float, float]:
    """Bounds of an integer expression over all (non-negative) sizes."""
    terms = _as_polynomial(form)
    constant = terms.pop((), 0)
    plain = all(a[0] == "name" for atoms in terms for a in atoms)
    low = constant if plain and all(n > 0 for n in terms.values()) else -math.inf
    high = constant if plain and all(n < 0 for n in terms.values()) else math.inf
    return low, high


def _decide_by_bounds(relation: str, low: float, high: float) -> bool | None:
    """The truth of a relation with zero if it is the same for every number within bounds; else None."""
    if relation in ("==", "!="):
        return None if low <= 0 <= high and low != high else (low == high == 0) == (relation == "==")
    holds = _RELATIONS[relation]
    at_low, at_high = holds(low, 0), holds(high, 0)
    return at_low if at_low == at_high else None


def _evaluate_form(form: Form, known: Mapping[Any, int]) -> Any:
    if not isinstance(form, tuple):
        return form
    if form[0] == "name":
        if form[1] not in known:
            raise ArgumentError(f"no array that was fed determines the unknown size {form[1]}.")
        return known[form[1]]
    if form[0] == "sum":
        return sum(factor * math.prod(_evaluate_form(a, known) for a in atoms) for atoms, factor in form[1])
    operation, a, b = form
    try:
        return _OPERATORS[operation](_evaluate_form(a, known), _evaluate_form(b, known))
    except ZeroDivisionError:
        raise ArgumentError(f"{_format_form(form)} is a division by zero for the sizes {dict(known)}.") from None


def _names_in(form: Form) -> set[Any]:
    if not isinstance(form, tuple):
        return set()
    if form[0] == "name":
        return {form[1]}
    parts = [a for atoms, _ in form[1] for a in atoms] if form[0] == "sum" else form[1:]
    return set().union(*map(_names_in, parts))


def _format_form(form: Form) -> str:
    if not isinstance(form, tuple):
        return str(form)
    if form[0] == "name":
        return str(form[1])
    if form[0] == "sum":
        return " + ".join("*".join([*([str(n)] if n != 1 or not t else []), *map(_format_form, t)]) for t, n in form[1])
    return f"({_format_form(form[1])} {form[0]} {_format_form(form[2])})"


def evaluate(v: Any, known: Mapping[Any, int]) -> Any:
    """A value with its unknown sizes evaluated, also inside tuples, lists, dicts and slices."""
    if isinstance(v, Size):
        return _evaluate_form(v.form, known)
    if type(v) in (tuple, list):
        return type(v)(evaluate(x, known) for x in v)
    if type(v) is dict:
        return {k: evaluate(x, known) for k, x in v.items()}
    if isinstance(v, slice):
        return slice(*(evaluate(x, known) for x in (v.start, v.stop, v.step)))
    return v


def recorder_of(v: Any) -> Recorder:
    """The graph that an unknown size, or one in a shape, belongs to."""
    found: Size = v if isinstance(v, Size) else next(n for n in v if isinstance(n, Size))
    return found.unknowns.recorder


def is_same_shape(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two shapes are equal for all sizes: for a shortcut, which is optional where they only may be."""
    return len(a) == len(b) and all(_is_same(n, m) for n, m in zip(a, b, strict=True))


def _is_same(n: Any, m: Any) -> bool:
    if type(n) is Size or type(m) is Size:
        return type(n) is type(m) and n.unknowns is m.unknowns and n.form == m.form
    return bool(n == m)


def has_unknowns(v: Any) -> bool:
    """Whether a value that `evaluate` handles contains an unknown size."""
    if type(v) in (tuple, list):
        return any(map(has_unknowns, v))
    if type(v) is dict:
        return any(map(has_unknowns, v.values()))
    return isinstance(v, Size) or (isinstance(v, slice) and any(map(has_unknowns, (v.start, v.stop, v.step))))
