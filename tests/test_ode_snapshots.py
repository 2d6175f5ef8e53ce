"""Snapshots held while the number of steps is unknown: which they are, how many steps are taken again, gradients."""

import numpy as np
import pytest

import pullback as pb
from pullback.checkpoint.loops.revolve import OnlineSchedule, fewest_advances, max_reversible_steps
from pullback.ode.snapshots import find_latest, go_towards, hold_snapshot, make_snapshots


def play(steps, room):
    """The snapshots after so many steps, and how many steps are taken again while all states are asked for."""
    held = make_snapshots(room, np.zeros(1))
    for step in range(steps):
        held = hold_snapshot(held, np.int64(step), np.array([float(step)]), np.True_)
        rejected = hold_snapshot(held, np.int64(step + 1), np.array([np.nan]), np.False_)
        assert np.array_equal(rejected.held, held.held)
    first = sorted(int(s) for s in held.held[0] if s >= 0)
    taken = []

    def advance(i, y):
        taken.append(int(i))
        assert y[0] == i
        return y + 1.0

    for i in reversed(range(steps)):
        at, y = find_latest(held, i)
        while at < i:
            held, at, y = go_towards(held, i, advance)
        assert y[0] == i
        assert held.states.shape == (room, 1)
    return first, len(taken)


@pytest.mark.parametrize("room", [2, 3, 5, 8])
def test_the_schedule_is_that_of_loops_of_unknown_length(room):
    for steps in (1, 2, 5, 17, 60):
        schedule, wanted = OnlineSchedule(room - 1), []
        for step in range(steps):
            dropped = schedule.reach(step)
            if dropped is not None:
                wanted.remove(dropped)
            wanted.append(step)
        assert play(steps, room)[0] == wanted
    assert play(20, 1) == ([0], 190)


@pytest.mark.parametrize("room", [3, 5, 10])
def test_few_more_steps_than_the_best_schedule_for_a_known_number(room):
    for steps in (10, 50, 300):
        held, taken = play(steps, room)
        assert held[0] == 0
        # the solve went forward anyway: the best schedule for a known number places snapshots on that way
        best = fewest_advances(steps, room) - (steps - 1)
        slack = max_reversible_steps(room - 1, 2)
        assert taken <= 1.25 * max(best, 0) + steps + slack
    assert play(room, room)[1] == 0  # all states are there


def test_gradients_and_no_further_sweep():
    def run(k, times=None, policy=None):
        found = pb.ode.solve(lambda t, y: -k * y * y, 1.0, (0.0, 2.0), saveat=times, derivative=policy, rtol=1e-9)
        return found.y.sum()

    times = np.array([0.0, 0.3, 0.3, 1.1, 2.0])
    for at in (None, times):
        exact = pb.grad(run)(2.0, at)
        for count in (1, 2, 7, 500):
            found = pb.grad(run)(2.0, at, pb.ode.ThroughSteps(snapshots=count))
            assert np.isclose(found, exact, rtol=1e-12)
    at = np.ones(1) if times is None else times
    assert np.isclose(pb.grad(run)(2.0, at), (-at / (1 + 2 * at) ** 2).sum(), rtol=1e-7)
    second = pb.grad(pb.grad(lambda k: run(k, None, pb.ode.ThroughSteps(snapshots=5))))(2.0)
    assert np.isclose(second, 2 * 4 / 5**3, rtol=1e-7)


def grow(y0, k, policy, times=None):
    options = {"derivative": policy, "method": pb.ode.Bosh3(), "rtol": 1e-3}
    return pb.ode.solve(lambda t, y: -k * y * y, y0, (0.0, 2.0), saveat=times, **options).y.sum()


def test_compiled_and_in_batches_gradients_are_the_same():
    # a saved time at the start: a batch had no place of its own to note the step in
    policy, rates, times = pb.ode.ThroughSteps(snapshots=3), np.array([2.0, 50.0]), np.array([0.0, 0.3, 2.0])
    gradient = pb.grad(lambda k: grow(1.0, k, policy, times))
    exact = np.array([pb.grad(lambda k: grow(1.0, k, None, times))(k) for k in rates])
    for found in (pb.jit(pb.vmap(gradient))(rates), pb.vmap(gradient)(rates)):
        assert np.allclose(found, exact, rtol=1e-12)


def test_a_compiled_gradient_holds_the_snapshots_asked_for():
    size, steps = 2000, 100
    y0, peaks = np.linspace(0.1, 1.0, size), {}
    for count in (2, 32, None):
        control, policy = pb.ode.FixedSteps(steps), pb.ode.ThroughSteps(snapshots=count)
        options = {"control": control, "derivative": policy, "method": pb.ode.Bosh3()}

        def run(y0, options=options):
            return pb.ode.solve(lambda t, y: -y * y, y0, (0.0, 2.0), **options).y.sum()

        peaks[count] = pb.jit(pb.grad(run)).find(y0).memory().peak / (8 * size)
    assert abs(peaks[32] - peaks[2] - 30) < 0.5
    assert abs(peaks[None] - peaks[2] - (steps - 2)) < 4
    assert peaks[2] < 40  # one step with its tape


def test_a_pullback_can_be_called_again():
    _, pull = pb.vjp(lambda k: grow(1.0, k, pb.ode.ThroughSteps(snapshots=3)), 2.0)
    assert pull(1.0) == pull(1.0)
