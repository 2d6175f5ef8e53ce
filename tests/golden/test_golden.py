"""Every stored case, run on our ops: value, first and second order against PyTorch's."""

import numpy as np
import pytest

import pullback as pb

from .cases import Input, load
from .differences import DIFFERENCES
from .names import OF_CASE, TORCH, ours

CASES = load()
NUMBERS = {case.name: number for number, case in enumerate(CASES)}
OPS = {op: [case for case in CASES if case.op == op] for op in dict.fromkeys(case.op for case in CASES)}
# |ours - theirs| <= RELATIVE |theirs| + ABSOLUTE max(1, max |theirs|): float64, a few hundred operations at most.
RELATIVE = 1e-9
ABSOLUTE = 1e-12


def close(actual, expected):
    """Nothing if two lists of arrays agree, else what is wrong; None counts as zeros."""
    for k, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if theirs is None:
            theirs = np.zeros(()) if mine is None else np.zeros_like(mine)
        mine = np.zeros_like(theirs) if mine is None else mine
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return f"{k}: {mine.dtype}{mine.shape}, expected {theirs.dtype}{theirs.shape}"
        scale = max(1.0, np.max(np.abs(theirs), where=np.isfinite(theirs), initial=0.0))
        if not np.allclose(mine, theirs, rtol=RELATIVE, atol=ABSOLUTE * scale, equal_nan=True):
            return f"{k}: got\n{mine}\nexpected\n{theirs}"
    return None


def strided(array):
    """The same values with a gap between elements, stored backward: a layout nothing may rely on."""
    if array.ndim == 0:
        return array
    room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    view = room[..., ::-2]
    view[...] = array
    return view


class Run:
    """One case on our ops, with the inputs in their own layout or all strided."""

    def __init__(self, case, all_strided=False):
        self.case = case
        self.all_strided = all_strided
        self.inputs = []
        args = [self.argument(argument) for argument in case.args]
        kwargs = {key: self.argument(argument) for key, argument in case.kwargs.items()}
        function = ours(case.op, case.variant)
        outputs = function(case, *args, **kwargs) if function in OF_CASE else function(*args, **kwargs)
        self.outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]

    def argument(self, argument):
        """A case's argument as ours: differentiable arrays become tensors, kept in the order they appear."""
        if isinstance(argument, list | tuple):
            return type(argument)(self.argument(item) for item in argument)
        if not isinstance(argument, Input):
            return argument
        array = strided(argument.array) if self.all_strided or not argument.contiguous else argument.array
        if not argument.differentiable:
            return array
        self.inputs.append(pb.asarray(array.copy() if array.flags.c_contiguous else array, copy=False))
        return self.inputs[-1].requires_grad_()

    def values(self):
        return [output.detach().numpy() for output in self.outputs]

    def gradients(self, outputs, seeds, create_graph=False):
        """Gradients by every input of those outputs that track anything; None where there is no path."""
        tracked = [(output, seed) for output, seed in zip(outputs, seeds, strict=True) if tracks(output)]
        if not tracked:
            return [None] * len(self.inputs)
        roots, seeds = zip(*tracked, strict=True)
        return pb.gradients(roots, self.inputs, seeds=seeds, create_graph=create_graph, allow_unused=True)

    def vjp(self, create_graph=False):
        return self.gradients(self.outputs, self.case.cotangents, create_graph)

    def second_order(self):
        """The gradient of the sum of <u_k, vjp[of_k]>; where PyTorch's vjp is constant, of <1, vjp>."""
        first = self.vjp(create_graph=True)
        if self.case.second:
            return self.gradients([first[k] for k in self.case.second.of], self.case.second.vectors)
        return self.gradients(first, [None if g is None else np.ones(g.shape, g.dtype) for g in first])


def tracks(output):
    return output is not None and output.requires_grad


def bare(gradients):
    return [None if gradient is None else gradient.detach().numpy() for gradient in gradients]


def second_order_of(case):
    return case.second.gradient if case.second else [None] * len(case.vjp)


# What is compared: its name, our side of it, PyTorch's side of it.
CHECKS = {
    "value": (lambda case: Run(case).values(), lambda case: case.outputs),
    "vjp": (lambda case: bare(Run(case).vjp()), lambda case: case.vjp),
    "second order": (lambda case: bare(Run(case).second_order()), second_order_of),
    "strided value": (lambda case: Run(case, all_strided=True).values(), lambda case: case.outputs),
    "strided vjp": (lambda case: bare(Run(case, all_strided=True).vjp()), lambda case: case.vjp),
}


@pytest.fixture(autouse=True)
def _nan_without_a_warning():
    """Some of PyTorch's samples have no real answer (a negative base to a fractional power): both must say NaN."""
    with np.errstate(invalid="ignore"):
        yield


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("op", OPS)
def test_agrees_with_pytorch(op, check, request):
    # what LLVM makes of a program takes most of the time: one case in ten is optimized
    cases = sorted(OPS[op], key=lambda case: NUMBERS[case.name] % 10 != 0)
    wrong = []
    for case in cases:
        if NUMBERS[case.name] % 10:
            request.getfixturevalue("quick_code")
        wrong.append(find_fault(case, check))
    assert not any(wrong), "\n".join(filter(None, wrong))


def find_fault(case, check):
    """What is wrong with one case: a difference that is not listed, or a listed one that is gone."""
    mine, theirs = CHECKS[check]
    if (case.name, check) in DIFFERENCES:
        return None if differs(case, mine, theirs) else f"{case.name}: {check} agrees; drop its entry in differences.py"
    try:
        found = close(mine(case), theirs(case))
    except Exception as error:
        error.add_note(f"{case.name}: {check}")
        raise
    return found and f"{case.name}: {check} {found}"


def differs(case, mine, theirs):
    """Whether we answer otherwise than PyTorch, or refuse to."""
    try:
        return close(mine(case), theirs(case))
    except pb.errors.PullbackError as refusal:
        return refusal


def test_every_mapped_op_has_a_case_and_every_difference_names_one():
    mapped = {f"{case.op}:{case.variant}" for case in CASES} | {case.op for case in CASES}
    assert set(TORCH) <= mapped
    assert {name for name, _ in DIFFERENCES} <= {case.name for case in CASES}
