"""`NativeStep`: one native call steps all parameters of a group in place, whatever their number and shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from ...arrays.backends import copy_array, device_of, is_array, is_device_array, to_host
from ...arrays.call_site import UNTYPED
from ...arrays.closures import content_of, is_library
from ...arrays.scope import current_scope
from ...arrays.spec import Spec, make_spec, spec_of
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...arrays.views import is_view, view_write_error
from ...compile.cpu.row_table import RowTable, combine_folds
from ...compile.cpu.rows import NotRowsError
from ...compile.cpu.runtime.entry import is_abi_supported
from ...compile.cpu.runtime.link import has_llvm
from ...compile.stage.closure_walk import snapshot_closure
from ...errors import GraphError, PullbackError
from ...nn.module import trainable_mask
from ...ops.lazy import lazy_function
from ...settings import looks_at_values, modes, no_grad
from ..rule import Rule
from .leaf_program import Settings, StateLayout, candidate_settings, compile_leaf, find_layout

if TYPE_CHECKING:
    from ...compile.cuda.rows import DeviceTable

_why_no_cuda = lazy_function("cuda.runtime.link", "why_unavailable", "compile")
_make_device_table = lazy_function("cuda.rows", "DeviceTable", "compile")
_DTYPES = frozenset(map(np.dtype, ("f4", "f8")))
#: A rule, or a function of settings that makes one.
Maker = Rule | Callable[..., Rule]


def is_native(rule: Rule, tensors: Sequence[Any], params: Any) -> bool:
    """Whether a group may step natively: its rule and its specs decide, never its values."""
    if rule.split is None:
        return False
    specs = [spec_of(p) for p in tensors if type(p) is Tensor]
    devices = {s.device for s in specs}
    if len(specs) < len(tensors) or len(devices) != 1 or not all(s.dtype in _DTYPES for s in specs):
        return False
    if not all(trainable_mask(params)):
        return False
    if devices != {"cpu"}:
        return not rule.joint_folds and all(s.size for s in specs) and not _why_no_cuda()
    if not has_llvm() or not is_abi_supported():
        return False
    # a sum over parameters of two dtypes would be two sums
    return not (rule.joint_folds and len({s.dtype for s in specs}) > 1)


def make_native_step(
    maker: Maker,
    rule: Rule,
    settings: Mapping[str, Any],
    tensors: list[Any],
    params: Any,
    state: Any,
    frozen: Sequence[int] = (),
) -> NativeStep | None:
    """The native step of a group without its `frozen` parameters; None where its rule turns out not to be what native
    code can do.
    """
    if not is_native(rule, tensors, params):
        return None
    for chosen in candidate_settings(settings):
        try:
            return NativeStep(maker, rule, chosen, tensors, params, state, frozen)
        except NotRowsError:
            return None
        except (PullbackError, KeyError, *UNTYPED):  # the rule, or what makes it, looks at a number that is an argument
            continue
    return None


class _Part:
    """Parameters with the same code and the same numbers in their state; and their table."""

    def __init__(self, layout: StateLayout, places: list[int], tensors: Sequence[Any], states: list[list[Any]]) -> None:
        self.layout = layout
        #: Which of the group's parameters these are.
        self.places = places
        given = [spec_of(tensors[i]) for i in places]
        self.specs = [make_spec(s.shape, s.dtype, s.device) for s in given]
        self.device = self.specs[0].device
        order = layout.rows_first()
        self.rows = [i for i in order if layout.is_row(i)]
        self.numbers = [i for i in order if not layout.is_row(i)]
        self.states = [states[i] for i in places]
        # the arrays of a state may be held by others, those of a table are its own
        self.kept = [[_copy_in_rows(own[i]) for i in self.rows] for own in self.states]
        self.table: RowTable | DeviceTable

    def make_table(self, code: Any, settings: Sequence[float], joint: bool) -> None:
        numbers = [*(self.states[0][i] for i in self.numbers), *settings]
        if self.device == "cpu":
            self.table = RowTable(code, self.specs, self.kept, numbers, joint)
        else:
            self.table = _make_device_table(code, self.specs, self.kept, numbers)

    def set_settings(self, settings: Sequence[float]) -> None:
        for i, x in enumerate(settings, len(self.numbers)):
            self.table.set_number(i, x)

    def changed_arrays(self) -> Iterator[tuple[Any, Any]]:
        """The arrays that the state had, each with what it is now."""
        for own, kept in zip(self.states, self.kept, strict=True):
            yield from zip([own[i] for i in self.rows], kept, strict=True)
            for number, i in enumerate(self.numbers):
                yield own[i], self.table.number(number)


@final
class NativeStep:
    """The parameters of a group in tables, which hold the state of the group as long as this object is used."""

    def __init__(
        self,
        maker: Maker,
        rule: Rule,
        settings: Settings,
        tensors: list[Any],
        params: Any,
        state: Any,
        frozen: Sequence[int] = (),
    ) -> None:
        #: The group's own list, in which tensors may be replaced.
        self.tensors = tensors
        self.places = range(len(tensors))
        self.skips_some = bool(frozen)
        self.settings = settings
        functions = _functions_of(rule)
        _refuse_arrays(functions)
        self.closure = snapshot_closure(*functions, maker, *settings.fixed.values())
        self.state_leaves, self.state_structure = flatten(state)
        self.parts = _group_alike(rule, tensors, params, state, frozen)
        numbers = settings.read_numbers(settings.known) or []
        for part in self.parts:
            choose = functools.partial(_rule_alone, maker, settings, params, state, part.places[0])
            code, folds = compile_leaf(choose, settings, part.layout, part.specs[0].dtype, part.device)
            if rule.joint_folds and folds != rule.joint_folds:
                raise NotRowsError("some sums go over all parameters and some over each.")
            part.make_table(code, numbers, bool(rule.joint_folds))
        self.is_split_joint = bool(rule.joint_folds) and len(self.parts) > 1
        if self.closure.drawn_source() is not None:
            raise NotRowsError("the rule draws from a random stream.")

    def is_current(self, settings: Mapping[str, Any]) -> bool:
        """Whether the settings are as they were read, and nothing else that the rule reads has changed."""
        return self.settings.are_same(settings) and self.closure.is_unchanged()

    def change_settings(self, settings: Mapping[str, Any]) -> bool:
        """Take numbers that changed; False if more has changed than numbers."""
        numbers = self.settings.read_numbers(settings) if self.closure.is_unchanged() else None
        if numbers is None:
            return False
        for part in self.parts:
            part.set_settings(numbers)
        return True

    def release_state(self) -> Any:
        """The state as a tree, which this object no longer writes to."""
        now = {id(old): new for part in self.parts for old, new in part.changed_arrays()}
        return unflatten(self.state_structure, [now.get(id(x), x) for x in self.state_leaves])

    def prepare(self, gradients: Sequence[Any] | None, accept: Any = None) -> list[Update] | None:
        """The updates of its parts, checked; None if a value or a gradient is not an array that native code takes. With
        a bool `accept` on the GPU of the parameters nothing changes where it does not hold.
        """
        if len(self.tensors) != len(self.places) or not self._can_ask(accept):
            return None
        updates = [Update(part, self._tensors_of(part), gradients, accept) for part in self.parts]
        return updates if all(update.step(False) for update in updates) else None

    def run(self, updates: Sequence[Update]) -> None:
        """Step all parameters. What was checked before is checked again, since other threads may have run."""
        if self.is_split_joint:
            _run_jointly(updates)
        else:
            for update in updates:
                update.run()
        for update in updates:
            update.rebind_copies()

    def _tensors_of(self, part: _Part) -> list[Any]:
        return [self.tensors[i] for i in part.places]

    def _can_ask(self, accept: Any) -> bool:
        """Whether its launches can look at a condition: one on their own GPU."""
        if accept is None:
            return True
        return is_device_array(accept) and all(part.device == device_of(accept) for part in self.parts)

    def step_alone(self, gradients: Sequence[Any] | None, accept: Any = None) -> bool:
        """Step all parameters if this is the only group: then one call checks and runs. False as for `prepare`."""
        if len(self.parts) > 1:
            updates = self.prepare(gradients, accept)
            if updates is not None:
                self.run(updates)
            return updates is not None
        if not self._can_ask(accept):
            return False
        part = self.parts[0]
        update = Update(part, self._tensors_of(part) if self.skips_some else self.tensors, gradients, accept)
        if not update.step(True):
            return False
        update.rebind_copies()
        return True


@final
class Update:
    """One step of a part. Arrays that nothing else refers to are overwritten, the others copied, and their tensors
    rebound.
    """

    def __init__(self, part: _Part, tensors: list[Any], gradients: Sequence[Any] | None, accept: Any = None) -> None:
        self.part, self.tensors = part, tensors
        self.options = () if accept is None else (accept,)
        self.values = self.gradients = tensors
        self.copies: dict[int, Any] = {}
        if gradients is not None:
            self.gradients = [_Given(gradients[i]) for i in part.places]
        if looks_at_values(modes()) or current_scope() is not None:
            # what looks at rebound variables must see them
            for row in range(len(tensors)):
                self._copy_value(row)

    def run(self) -> None:
        """Step what was checked before."""
        if not self.step(True):
            raise GraphError("step: a parameter was changed by another thread while it was stepped.")

    def step(self, runs: bool) -> bool:
        """Check all rows, making copies where that helps, and step them if it `runs`. False if a value or a gradient
        is no array that native code takes; errors are left to the rule itself.
        """
        table = self.part.table
        if runs and table.blocks > 1 and isinstance(table, RowTable):
            table.start_threads()
        while not table.step(self.values, self.gradients, runs, *self.options):
            row, is_gradient = table.failed
            if row < 0 or not (self._copy_gradient(row) if is_gradient else self._copy_value(row)):
                return False
        return True

    def _copy_value(self, row: int) -> bool:
        """Let a row write to a copy; False if that does not help."""
        p = self.tensors[row]
        copy = _copy_of(p.value, self.part.specs[row])
        if copy is None or row in self.copies:
            return False
        if is_view(p):
            raise view_write_error("step")
        self.values = list(self.values)
        self.values[row] = self.copies[row] = copy
        return True

    def _copy_gradient(self, row: int) -> bool:
        """Let a row read a copy of its gradient; False if it has none that fits."""
        item = self.gradients[row]
        if is_array(item):
            return False
        found = item.value if type(item) is _Given else item.grad
        while isinstance(found, Tensor):
            found = found.value
        copy = _copy_of(found, self.part.specs[row])
        if copy is None:
            return False
        self.gradients = list(self.gradients)
        self.gradients[row] = copy
        return True

    def rebind_copies(self) -> None:
        if self.copies:
            with no_grad():
                for row, copy in self.copies.items():
                    self.tensors[row].rebind(wrap(copy, spec_of(copy)), "step")


class _Given(NamedTuple):
    """A gradient that the caller gave, which native code does not take before it is checked."""

    value: Any


def _copy_of(value: Any, spec: Spec) -> Any:
    """A plain copy of an array of a spec; None of anything else."""
    if type(value) is not np.ndarray and not is_device_array(value):
        return None
    return _copy_in_rows(value) if spec_of(value) == spec else None


def _copy_in_rows(x: Any) -> Any:
    return copy_array(x, "C") if is_device_array(x) else np.array(x, order="C")


def _run_jointly(updates: Sequence[Update]) -> None:
    """Run the phases of several parts side by side: the sums of each phase go over all of them."""
    tables = [update.part.table for update in updates if isinstance(update.part.table, RowTable)]
    try:
        for phase in range(tables[0].phases):
            for update, table in zip(updates, tables, strict=True):
                table.select_phase(phase)
                update.run()
            combine_folds(tables, phase)
    finally:
        for table in tables:
            table.select_phase(None)


def _group_alike(
    rule: Rule, tensors: Sequence[Any], params: Any, state: Any, frozen: Sequence[int]
) -> list[_Part]:  # fmt: skip
    """The parameters by the rule that each has alone, its dtype and the numbers in its state; not the frozen ones."""
    assert rule.split is not None
    layouts: dict[Any, StateLayout] = {}
    alike: dict[Any, list[int]] = {}
    states = []
    for i, (alone, own) in enumerate(rule.split(params, state)):
        leaves, structure = flatten(own)
        states.append(leaves)
        dtype = spec_of(tensors[i]).dtype
        layout = layouts.get((alone, dtype)) or layouts.setdefault((alone, dtype), find_layout(alone, dtype))
        if structure != layout.structure or not _fits(leaves, layout, tensors[i]):
            raise NotRowsError("the state is not that of a row.")
        numbers = b"".join(to_host(x).tobytes() for n, x in enumerate(leaves) if not layout.is_row(n))
        if i not in frozen:
            alike.setdefault((alone, dtype, numbers), []).append(i)
    return [_Part(layouts[key[:2]], places, tensors, states) for key, places in alike.items()]


def _fits(leaves: Sequence[Any], layout: StateLayout, p: Any) -> bool:
    """Whether the arrays of a state are plain, and of the shapes and dtypes of their layout."""
    shapes = [p.shape if layout.is_row(n) else () for n in range(len(leaves))]
    return all(
        (is_array(x) or isinstance(x, np.generic))
        and x.shape == shape
        and x.dtype == spec.dtype
        and device_of(x) == spec_of(p).device
        for x, shape, spec in zip(leaves, shapes, layout.specs, strict=True)
    )


def _rule_alone(maker: Maker, settings: Settings, params: Any, state: Any, place: int, numbers: Sequence[Any]) -> Rule:
    """The rule of one parameter, with its settings as arguments of a program."""
    rule = maker if isinstance(maker, Rule) else maker(**settings.with_numbers(numbers))
    if rule.split is None:
        raise NotRowsError(f"{rule.name} is flat for some settings alone.")
    return rule.split(params, state)[place][0]


def _functions_of(rule: Rule) -> list[FunctionType]:
    """The functions of a rule, of the rules that it is made of, and of their schedules."""
    found: dict[int, FunctionType] = {}
    waiting: list[Any] = [rule]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, Rule):
            waiting += [thing.start, thing.advance]
        elif isinstance(thing, (tuple, list)):
            waiting += thing
        elif isinstance(thing, Mapping):
            waiting += thing.values()
        elif isinstance(thing, functools.partial):
            waiting.append(thing.func)
        elif isinstance(thing, FunctionType) and id(thing) not in found:
            found[id(thing)] = thing
            if is_library(thing.__module__):
                waiting += [content_of(cell) for cell in thing.__closure__ or ()]
    return list(found.values())


def _refuse_arrays(functions: Sequence[FunctionType]) -> None:
    """A rule's own settings are not watched, so they must not be arrays or tensors, which may change."""
    contents = [content_of(c) for f in functions if is_library(f.__module__) for c in f.__closure__ or ()]
    if any(is_array(x) or isinstance(x, Value) for x in contents):
        raise NotRowsError("a setting is an array.")
