"""Every public function with arguments that make no sense: what comes is an error of ours, or stands in this table."""

import os
import warnings

import hostile_arguments as hostile
import pytest

from pullback import errors

FUNCTIONS = dict(hostile.functions())
#: Functions for which no template gives arguments that they accept; the list must shrink, never grow.
WITHOUT_A_CALL = frozenset((
    "checkpoint_loop", "custom_op", "detect_anomaly", "enable_grad", "get_num_threads", "gradients",
    "index_reduce", "inference_mode", "is_grad_enabled", "no_grad", "register_multi_grad_hook",
    "register_tree", "scatter_reduce", "random.restore", "random.state", "nn.affine_grid",
    "nn.conv_transpose1d", "nn.ctc_loss", "nn.embedding_bag", "nn.fold", "nn.fractional_max_pool2d",
    "nn.fractional_max_pool3d", "nn.gru", "nn.gru_cell", "nn.lp_pool3d", "nn.lstm", "nn.lstm_cell",
    "nn.max_unpool1d", "nn.max_unpool2d", "nn.max_unpool3d", "nn.multi_head_attention",
))  # fmt: skip
#: Functions that let a built-in error through, and why.
BUILT_IN = {
    # an array in the place of a flag: NumPy's own "the truth value of an array is ambiguous"
    "flag": (ValueError, "truth value of a"),
    # what the given function itself raises is the user's
    "function": (TypeError, "len()"),
    # the protocol's own word for what cannot be handed over
    "from_dlpack": (BufferError, "DLPack"),
}
#: Functions whose arguments are looked at by parts that have their own checks.
ELSEWHERE = {"argmin", "checkpoint_sequential", "fixed_point", "least_squares", "linear_solve", "root", "jit"}


def is_expected(what, error):
    if isinstance(error, (errors.PullbackError, MemoryError, OverflowError)):
        return True
    if any(isinstance(error, kind) and text in str(error) for kind, text in BUILT_IN.values()):
        return True
    return is_users(error)


def is_users(error):
    """Whether the error was raised by a line of the caller's own function."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return (
        os.path.basename(step.tb_frame.f_code.co_filename) == "hostile_arguments.py"
        and step.tb_frame.f_code.co_name == "<lambda>"
    )


def unexpected(name):
    function = FUNCTIONS[name]
    base = hostile.base_of(function)
    assert base is not None
    found = []
    for what, call in hostile.calls(function, base):
        try:
            hostile.quietly(call)
        except Exception as error:
            if not is_expected(what, error):
                found.append(f"{what}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - WITHOUT_A_CALL - ELSEWHERE))
def test_hostile_arguments_get_a_typed_error(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert unexpected(name) == []


def test_every_function_without_a_call_is_named():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name for name, function in FUNCTIONS.items() if hostile.base_of(function) is None}
    assert found <= WITHOUT_A_CALL
