"""NumPy's names while transforms run: replaced for lines of the user's, in that thread, and NumPy's for all others."""

import contextlib
import functools
import gc
import os
import sys
import threading
import time
import types

import numpy as np
import numpy_habits
import pytest
from numpy_habits import rows_are_windows

import pullback as pb
from pullback.ops import user_calls
from pullback.ops.protocol.creation import CREATION, JOINERS
from pullback.ops.user_calls import NAMES

X = np.array([0.7, 1.3, 0.9])


def numpys_functions():
    return {name: getattr(np, name) for name in NAMES.split() if name != "vectorize"}


def test_the_names_are_those_that_are_replaced():
    assert {*CREATION, *JOINERS, "vectorize"} == set(NAMES.split())


def test_nothing_is_left_in_numpy_or_in_modules():
    before = numpys_functions()
    inside = {}

    def f(x):
        inside["zeros"] = np.zeros
        y = np.zeros(3)
        y[:] = x
        if inside.get("fails"):
            raise RuntimeError("on purpose")
        return np.sum(y)

    for run in (pb.grad(f), pb.jit(f), lambda x: pb.jvp(f, (x,), (x,))):
        run(X)
        inside["fails"] = True
        with pytest.raises(RuntimeError, match="on purpose"):
            pb.grad(f)(X)
        inside.clear()
        assert all(getattr(np, name) is x for name, x in before.items())
        assert numpy_habits.zeros is np.zeros
        assert numpy_habits.array is np.array
    pb.grad(f)(X)
    assert inside["zeros"] is not np.zeros
    assert type(inside["zeros"](3)) is np.ndarray  # outside of a call it is NumPy's


def test_other_threads_and_libraries_get_numpys_arrays():
    seen = {}

    def f(x):
        thread = threading.Thread(target=lambda: seen.update(thread=np.zeros(2)))
        thread.start()
        thread.join()
        library = types.FunctionType(compile("a = __import__('numpy').zeros(2)", "/x/site-packages/y.py", "exec"), seen)
        library()
        y = np.zeros(2)
        seen["own"] = type(y).__name__
        y[0] = x
        return y[0]

    assert pb.grad(f)(2.0) == 1.0
    assert type(seen["thread"]) is type(seen["a"]) is np.ndarray
    assert seen["own"] == "ConstantBuffer"


def test_threads_that_differentiate_at_once():
    found = {}

    def work(k):
        for _ in range(20):
            found[k] = pb.grad(rows_are_windows)(X + k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(np.zeros, types.BuiltinFunctionType)
    for k in range(4):
        np.testing.assert_allclose(found[k], pb.grad(rows_are_windows)(X + k), rtol=1e-14)


def test_modules_imported_meanwhile_get_numpys_functions(tmp_path, monkeypatch):
    (tmp_path / "imported_inside.py").write_text("from numpy import zeros\n")
    monkeypatch.syspath_prepend(tmp_path)

    def f(x):
        import imported_inside

        y = imported_inside.zeros(1)
        y[0] = x
        return y[0] * y[0]

    assert pb.grad(f)(3.0) == 6.0
    assert sys.modules.pop("imported_inside").zeros is np.zeros
    assert pb.grad(f)(3.0) == 6.0
    sys.modules.pop("imported_inside")


@contextlib.contextmanager
def another_thread_inside_a_call():
    """The time in which another thread runs a function that fills arrays."""
    started, done = threading.Event(), threading.Event()

    def f(x):
        y = np.zeros(3)
        started.set()
        done.wait(10)
        y[:] = x
        return np.sum(y**2)

    found = []
    thread = threading.Thread(target=lambda: found.append(pb.grad(f)(X)))
    thread.start()
    started.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join()
    np.testing.assert_allclose(found[0], 2 * X)
    assert isinstance(np.zeros, types.BuiltinFunctionType)


def test_a_table_of_functions_that_another_thread_makes_meanwhile_has_numpys_keys():
    original = np.zeros_like
    with another_thread_inside_a_call():
        assert np.zeros_like is not original
        assert np.zeros_like == original
        table = {np.zeros_like: "rule", np.zeros: "other"}
        assert type(np.zeros(2)) is np.ndarray
        assert type(np.array([1.0, 2.0])) is np.ndarray
    assert table[np.zeros_like] == "rule"
    assert np.zeros in table
    assert np.ones not in table


def test_a_function_of_a_module_that_is_new_is_run_while_another_call_runs(tmp_path, monkeypatch):
    """Its names were not there, or NumPy's, when the first call began."""
    (tmp_path / "new_module.py").write_text(
        "from numpy import zeros as z\ndef f(x):\n y = z(3)\n y[:] = x\n return y @ x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = {"z": np.zeros}
    exec("def f(x):\n y = z(3)\n y[:] = x\n return y @ x", names)
    with another_thread_inside_a_call():
        import new_module

        for f in (names["f"], new_module.f):
            np.testing.assert_allclose(pb.grad(f)(X), 2 * X)
        assert new_module.z is not names  # replaced as long as the other runs
    assert sys.modules.pop("new_module").z is np.zeros
    assert names["z"] is np.zeros


def test_a_module_that_another_thread_was_importing_gets_numpys_functions(tmp_path, monkeypatch):
    lines = "import time", "import numpy_names_signal as s", "s.begun.set()", "s.go.wait(10)", "from numpy import zeros"
    (tmp_path / "slow_module.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    signal = types.ModuleType("numpy_names_signal")
    signal.begun, signal.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "numpy_names_signal", signal)
    thread = threading.Thread(target=lambda: __import__("slow_module"))
    thread.start()
    signal.begun.wait(10)
    with another_thread_inside_a_call():
        signal.go.set()
        thread.join()
    assert sys.modules.pop("slow_module").zeros is np.zeros


def test_a_call_that_was_stopped_while_it_ended_is_undone_by_the_next():
    """As by a signal between two instructions."""
    stopped = user_calls._Replacements(rows_are_windows)
    stopped.enter()
    user_calls.current_run.set(None)
    assert np.zeros is not CREATION["zeros"].args[0]
    assert type(np.zeros(2)) is np.ndarray
    del stopped
    gc.collect()
    pb.grad(rows_are_windows)(X)
    assert isinstance(np.zeros, types.BuiltinFunctionType)
    assert numpy_habits.zeros is np.zeros


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_starts_with_numpys_names_and_a_lock_of_its_own():
    with another_thread_inside_a_call(), user_calls._State.lock:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                right = isinstance(np.zeros, types.BuiltinFunctionType)
                right &= bool(np.allclose(pb.grad(rows_are_windows)(X), pb.grad(rows_are_windows)(X)))
                os._exit(0 if right else 1)
            os._exit(2)
    deadline = time.monotonic() + 20
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status == (child, 0)


def test_functions_of_no_module_are_found_behind_what_wraps_them():
    names = {}
    exec("from numpy import zeros as z\ndef f(x):\n y = z(3)\n y[:] = x\n return y @ x", names)
    f = names["f"]
    wrapped = types.SimpleNamespace(call=functools.partial(lambda g, x: g(x), f))
    for g in (f, lambda x: f(x), functools.partial(f), wrapped.call, types.MethodType(lambda _, x: f(x), wrapped)):
        np.testing.assert_allclose(pb.grad(g)(X), 2 * X)
    assert names["z"] is np.zeros


FORMS = {
    "partial": lambda: functools.partial(lambda scale, x: _filled(scale * x), 2.0),
    "lambda": lambda: lambda x: _filled(2.0 * x),
    "cached": lambda: lambda x: _grid(3)[0] * _filled(2.0 * x),
    "method": lambda: _Model().double,
    "class method": lambda: _Model.of_class,
    "static method": lambda: _Model.of_none,
    "callable object": lambda: _Model(),
    "decorated": lambda: functools.wraps(_filled)(lambda x: _filled(2.0 * x)),
}


def _filled(x):
    y = np.empty(3)
    for i in range(3):
        y[i] = x[i] ** 2
    return np.sum(y)


@functools.lru_cache
def _grid(n):
    return np.linspace(1.0, 2.0, n)


class _Model:
    def double(self, x):
        return _filled(2.0 * x)

    __call__ = double

    @classmethod
    def of_class(cls, x):
        return _filled(2.0 * x)

    @staticmethod
    def of_none(x):
        return _filled(2.0 * x)


@pytest.mark.parametrize("form", FORMS)
def test_whatever_form_a_function_has(form):
    np.testing.assert_allclose(pb.grad(FORMS[form]())(X), 8 * X)
    np.testing.assert_allclose(pb.jvp(FORMS[form](), (X,), (X,))[1], 8 * X @ X)


def test_what_a_cache_keeps_is_an_array_of_numbers_for_the_next_caller():
    _grid.cache_clear()
    pb.grad(FORMS["cached"]())(X)
    kept = _grid(3)
    assert isinstance(kept, np.ndarray)
    np.testing.assert_array_equal(kept, np.linspace(1.0, 2.0, 3))
    assert type(kept + 1) in (np.ndarray, type(kept))


def test_coroutines_and_generators_do_not_end_the_call_of_others():
    import asyncio

    async def value(x):
        await asyncio.sleep(0)
        return _filled(2.0 * x)

    def f(x):
        async def both():
            return await asyncio.gather(value(x), value(x))

        return sum(asyncio.run(both()))

    np.testing.assert_allclose(pb.grad(f)(X), 16 * X)

    def rows(x):
        y = np.zeros(2)
        for t in x:
            y[0], y[1] = t, 2 * t
            yield y[0] * y[1]

    kept = []

    def g(x):
        items = rows(x)
        kept.append(items)
        return next(items) + next(items)

    np.testing.assert_allclose(pb.grad(g)(X), [4 * X[0], 4 * X[1], 0.0])
    np.testing.assert_allclose(float(next(kept[0])), 2 * X[2] ** 2)
    assert isinstance(np.zeros, types.BuiltinFunctionType)
