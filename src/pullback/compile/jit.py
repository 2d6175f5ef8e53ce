"""`pb.jit`: a function staged once for each kind of arguments, then run by one native call."""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ..arrays.argument_checks import check_functions, explains_arguments, short_repr
from ..arrays.call_site import format_line, user_line
from ..arrays.html_text import html_block, html_table
from ..arrays.picklable import describe_function, name_of
from ..arrays.scope import forget_rebindings_since_now
from ..arrays.text import format_seconds, parse_bytes
from ..arrays.trees import dict_key_order, flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ArgumentTypeError, ConversionError, DeterminismError
from ..ops.user_calls import call_function
from ..public_names import explain_missing_attributes, explain_missing_functions
from ..settings import context_key, is_deterministic, modes, override_modes, setting_listeners
from ..transforms.control.run_paths import run_as_program
from .recompilation import STORM, ArgumentKind, warn_of_storm
from .specialization import Specialization, ambient_memory_limit, function_name, products_on
from .stage.argument_errors import as_argument, describe_unhashable
from .stage.arguments import make_flattener, static_key
from .stage.captures import native_spec
from .target import Runner

P = ParamSpec("P")
R = TypeVar("R")
_ndarray = np.ndarray
_LOG = logging.getLogger("pullback")
#: In the context of forms whose equations have origins.
_LOCATED = "located"
#: The most compiled forms cached for one kind of arguments (a network in training and not), and kinds of arguments.
_VARIANTS, _KINDS = 8, 256


@overload
def jit(
    f: Callable[P, R],
    *,
    static_argnums: Any = ...,
    static_argnames: Any = ...,
    donate_argnums: Any = ...,
    fast_math: bool = ...,
    memory_budget: int | str | None = ...,
    check: bool = ...,
    deterministic: bool = ...,
) -> Jitted[P, R]: ...
@overload
def jit(
    f: None = None,
    *,
    static_argnums: Any = ...,
    static_argnames: Any = ...,
    donate_argnums: Any = ...,
    fast_math: bool = ...,
    memory_budget: int | str | None = ...,
    check: bool = ...,
    deterministic: bool = ...,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@explains_arguments("jit")
def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    fast_math: bool = False,
    memory_budget: int | str | None = None,
    check: bool = False,
    deterministic: bool = True,
) -> Any:
    """f compiled: it runs once on symbols for each kind of arguments (shapes, dtypes, structure, static values), and
    from then on as native code. Arguments in `donate_argnums` may be overwritten by results of the same spec.
    `fast_math=True` lets the compiler round sums and products in another order, and only once. `memory_budget`, such as
    `"300 MiB"`, bounds the memory of a call, arguments and results included: values are computed again to keep it.
    `check=True` also runs a slow reference at each call, and raises MiscompiledError if native code differs from it.
    `deterministic=False` lets a GPU add what is scattered in any order, which may be faster, with bits that may differ
    from run to run.

    >>> import numpy as np, pullback as pb
    >>> step = pb.jit(lambda w, x: w - 0.1 * pb.grad(lambda w: pb.sum((x @ w) ** 2))(w))
    >>> step(np.ones(2), np.eye(2))
    array([0.8, 0.8])
    """
    if f is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            fast_math=fast_math,
            memory_budget=memory_budget,
            check=check,
            deterministic=deterministic,
        )
    check_functions("jit", f)
    limit = None if memory_budget is None else parse_bytes(memory_budget, "jit: memory_budget")
    return Jitted(
        f, _as_int_tuple(static_argnums, "static_argnums"), _as_name_tuple(static_argnames),
        _as_int_tuple(donate_argnums, "donate_argnums"), _flag(fast_math, "fast_math"), limit, _flag(check, "check"),
        _flag(deterministic, "deterministic"),
    )  # fmt: skip


def _as_int_tuple(given: Any, what: str) -> tuple[int, ...]:
    return _few(given, (int, np.integer), f"{what} wants positions of arguments")


def _as_name_tuple(given: Any) -> tuple[str, ...]:
    return _few(given, (str,), "static_argnames wants names of arguments")


def _few(given: Any, kinds: tuple[type, ...], wanted: str) -> tuple[Any, ...]:
    """None, one or several, as a tuple."""
    if given is None:
        return ()
    found = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    if not all(isinstance(x, kinds) and not isinstance(x, bool) for x in found):
        raise ArgumentTypeError(f"jit: {wanted}, one or a tuple of them, got {short_repr(given)}.")
    return found


def _flag(given: Any, what: str) -> bool:
    if not isinstance(given, (bool, np.bool_)):
        raise ArgumentTypeError(f"jit: {what} is True or False, got {short_repr(given)}.")
    return bool(given)


class Jitted(Generic[P, R]):
    """A compiled function. Call it as the function itself; `lower` shows what it becomes."""

    #: Whether f may run op by op instead.
    is_optional = False
    #: It calls f by `call_function`, so that transforms need not.
    prepares_calls = True

    def __init__(
        self,
        f: Callable[P, R],
        static: tuple[int, ...] = (),
        names: tuple[str, ...] = (),
        donated: tuple[int, ...] = (),
        fast: bool = False,
        limit: int | None = None,
        check: bool = False,
        deterministic: bool = True,
    ) -> None:
        functools.update_wrapper(self, f)
        self.f = f
        self.static = static
        self.names = names
        self.donated = donated
        self.fast = fast
        self.limit = limit
        self.check = check
        self.deterministic = deterministic
        self.entries: dict[Any, list[Specialization]] = {}
        self.codes: dict[Any, Runner] = {}
        self.last: Specialization | None = None
        self.traces = 0
        self.is_storm_told = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # hot path: no tree package and no specs; native code checks the arguments, `closure` what f reads besides
        last = self.last
        if last is not None and not kwargs and last.flatten is not None:
            leaves = last.flatten(args)
            if leaves is not None and last.closure.is_unchanged():
                found = last.call_with_states(leaves) if last.states else last.direct(leaves)
                if found is not None:
                    return last.finish(found)  # type: ignore[no-any-return]
        return self._call(args, kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        forms = self._forms()
        if not forms:
            return f"<jit of {describe_function(self.f)}: not compiled yet>"
        runners = dict.fromkeys(form.describe_runner() for form in forms)
        count = f"{len(forms)} compiled form{'s' * (len(forms) > 1)}"
        seconds = format_seconds(sum(form.seconds for form in forms))
        return f"<jit of {describe_function(self.f)}: {count} in {seconds}, {' and '.join(runners)}>"

    def _repr_html_(self) -> str:
        rows = [
            (", ".join(map(str, form.argument_specs)), form.describe_runner(), format_seconds(form.seconds))
            for form in self._forms()
        ]
        table = html_table(("arguments", "runs", "traced and compiled in"), rows, numbers=(2,)) if rows else ""
        return html_block(repr(self).strip("<>"), table)

    def _forms(self) -> list[Specialization]:
        return [form for variants in list(self.entries.values()) for form in variants]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        """A compiled function is pickled as the function and its options, and compiled where it is loaded; one that was
        made by `@pb.jit` is looked up by its name, as functions are.
        """
        options = (self.static, self.names, self.donated, self.fast, self.limit, self.check, self.deterministic)
        return name_of(self) or (Jitted, (self.f, *options))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (casting := modes().autocast) is not None:
            if casting.log is not None:
                return call_function(self.f, args, kwargs)
            if casting.parameters is not None:
                given = casting.cast_parameters([*args, *kwargs.values()])
                args, kwargs = tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))
        static, leaves, structure, donated = self._split_arguments(args, kwargs)
        values = [as_argument(x, self, args, kwargs) for x in leaves]
        if not values or modes().tracing is not None or any(map(_needs_op_by_op, values)):
            return self._call_in_place(args, kwargs, functools.partial(self.call_on_leaves, static, structure), leaves)
        entry = self._find_specialization(args, kwargs, static, structure, values, donated)
        # the hot path needs arguments that are plain containers of arrays
        if entry.flatten is None and not kwargs and not static:
            entry.flatten = make_flattener(args)
        # nor does it cast: of two tensors of one spec, a module's policy may cast the one that is its parameter
        self.last = entry if casting is None or casting.parameters is None else None
        found = entry.call_with_states(values) if entry.states else entry.direct(values)
        return unflatten(entry.structure, entry.run(values) if found is None else found)

    def _call_in_place(self, args: Any, kwargs: Any, on_leaves: Callable[..., Any], leaves: Sequence[Any]) -> Any:
        """The call as part of another program, or of a transform that sees each op."""
        forget = forget_rebindings_since_now()
        try:
            return call_function(self.f, args, kwargs)
        except ConversionError as error:
            if not error.asked_by_branch:
                raise
            forget()
            found = run_as_program(f"jit: {function_name(self.f)}", on_leaves, leaves, self.f)
            if found is None:
                raise
            return found[0]

    def find(self, *args: P.args, **kwargs: P.kwargs) -> Specialization:
        """The compiled form that a call with these arguments runs, made at most once."""
        static, leaves, structure, donated = self._split_arguments(args, kwargs)
        values = [as_argument(x, self, args, kwargs) for x in leaves]
        return self._find_specialization(args, kwargs, static, structure, values, donated)

    def _find_specialization(
        self, args: Any, kwargs: Any, static: Any, structure: Any, values: Sequence[Any], donated: tuple[int, ...]
    ) -> Specialization:  # fmt: skip
        """The compiled form for arguments of a kind and the current closure of f: a cached one if nothing changed."""
        specs = tuple(map(native_spec, values))
        if not self.deterministic and is_deterministic() and any(s.device != "cpu" for s in specs):
            raise DeterminismError(
                f"jit: {function_name(self.f)} has deterministic=False, so a GPU adds what is scattered in any order."
                f"\n  called at {format_line(*user_line(sys._getframe(1)))}\n  Leave the option out."
            )
        key = ArgumentKind(
            static_key(static),
            structure,
            dict_key_order((args, kwargs)),
            specs,
            ambient_memory_limit(),
            products_on(specs),
            (_LOCATED, context_key(mode)) if (mode := modes()).locates else context_key(mode),
        )
        _CALLED.add(self)
        known = self.entries.get(key, [])
        entry = next((e for e in known if e.is_current()), None)
        if entry is None:
            # forms whose own trace changed what they read: this trace must give the same program
            changed = [e for e in known if e.after is not e.closure and e.after.is_unchanged()]
            entry = Specialization(self, static, structure, values, donated)
            entry.check_self_changes(changed)
            if not modes().locates:
                self._count_trace(entry, key)
        self.entries.pop(key, None)  # keep the most recently used last
        self.entries[key] = [entry, *(e for e in known if e is not entry)][:_VARIANTS]
        if len(self.entries) > _KINDS:
            del self.entries[next(iter(self.entries))]
        return entry

    def _count_trace(self, entry: Specialization, key: ArgumentKind) -> None:
        """Tell of a trace, and warn where there are too many. Sizes that share machine code cost little."""
        self.traces += 1
        _LOG.debug("jit: %s is traced for %s: %d times so far", entry.name, ", ".join(map(str, key.specs)), self.traces)
        sharing = sum(form.shares_code for forms in self.entries.values() for form in forms)
        if self.traces - sharing >= STORM and not self.is_storm_told:
            self.is_storm_told = True
            warn_of_storm(entry.name, [*self.entries, key])

    def _split_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[Any], Any, tuple[int, ...]]:
        """The static arguments, the leaves of the others with their structure, and which leaves are donated."""
        places = _from_the_front(self.static, len(args), "static_argnums")
        static: tuple[tuple[int | str, Any], ...] = tuple((i, args[i]) for i in sorted(places) if i < len(args))
        static += tuple((n, kwargs[n]) for n in self.names if n in kwargs)
        try:
            hash(static)
        except TypeError:
            raise ArgumentError(describe_unhashable(self, static)) from None
        dynamic = [a for i, a in enumerate(args) if i not in places]
        named = {n: v for n, v in kwargs.items() if n not in self.names}
        leaves, structure = flatten((dynamic, named))
        donated: tuple[int, ...] = ()
        if self.donated:
            numbers = [i for i in range(len(args)) if i not in places]
            donated_args = _from_the_front(self.donated, len(args), "donate_argnums")
            at = 0
            for i, a in zip(numbers, dynamic, strict=True):
                count = len(flatten(a)[0])
                donated += tuple(range(at, at + count)) if i in donated_args else ()
                at += count
        return static, leaves, structure, donated

    def call_on_leaves(self, static: Any, structure: Any, leaves: Sequence[Any]) -> Any:
        """f called on leaves of its arguments."""
        dynamic, named = unflatten(structure, leaves)
        args = list(dynamic)
        for place, value in static:
            if isinstance(place, int):
                args.insert(place, value)
        return self.f(*args, **named, **{n: v for n, v in static if isinstance(n, str)})

    def make_alike(self, limit: int | None) -> Callable[[Callable[..., Any]], Jitted[..., Any]]:
        """What compiles other functions with these options. It does not refer to this one, which its forms hold."""
        return functools.partial(
            Jitted, fast=self.fast, limit=limit, check=self.check, deterministic=self.deterministic
        )

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Specialization:
        """The compiled form for these arguments, to inspect: `.graph`, `.explain()`, `.memory()`, `.llvm`."""
        static, leaves, structure, donated = self._split_arguments(args, kwargs)
        return Specialization(self, static, structure, [as_argument(x, self, args, kwargs) for x in leaves], donated)


#: Functions that were called: when a setting of the process changes, their next call looks for its form.
_CALLED: weakref.WeakSet[Jitted[..., Any]] = weakref.WeakSet()


def _forget_last_forms() -> None:
    for jitted in list(_CALLED):
        jitted.last = None


setting_listeners.append(_forget_last_forms)


@contextmanager
def trace_located() -> Iterator[None]:
    """Compiled functions that are called inside are traced again, with the origin of each equation; those forms are
    forgotten at the end, since lines of callers are among the origins.
    """
    with override_modes(locates=True):
        _forget_last_forms()
        try:
            yield
        finally:
            _forget_last_forms()
            for jitted in list(_CALLED):
                located = [k for k in jitted.entries if type(k.context) is tuple and k.context[0] is _LOCATED]
                for key in located:
                    del jitted.entries[key]


explain_missing_attributes(Jitted, "Jitted", "clear_cache eval_shape trace")
explain_missing_functions(jit, "script trace")


def _from_the_front(positions: Sequence[int], count: int, what: str) -> list[int]:
    """Positions of arguments, some counted from the end; those beyond the end belong to arguments left out."""
    for i in positions:
        if i < -count:
            raise ArgumentError(f"jit: {what} names argument {i}, the call has {count} positional ones.")
    return [i + count if i < 0 else i for i in positions]


def _needs_op_by_op(x: Any) -> bool:
    """Whether a value is symbolic, or belongs to a transform that must see every op."""
    inside = x
    while isinstance(inside, Value) and not inside.runs_op_by_op:
        inside = next(iter(inside.parts()), None)
    return isinstance(x, Value) and (inside is None or isinstance(inside, Value))
