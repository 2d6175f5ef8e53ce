"""Simulates a bouncing ball for three seconds, and finds the throw that brings it to a wanted place.

Between bounces there is a formula; how many bounces there are depends on the throw. So the simulation is a
`pb.while_loop` from bounce to bounce, with the time of each solved exactly, and its derivative is that of the path
that was taken: through every bounce, under `jit` in native code, and in a `vmap` where each ball bounces as often as
it must. (Where one more bounce begins, the path has a corner.)

Run it with: python examples/bouncing_ball.py
"""

import numpy as np

import pullback as pb

GRAVITY, FRICTION, END = 9.81, 0.9, 3.0


def next_landing(height, rising):
    """Seconds until height + rising t - g t^2 / 2 is zero."""
    return (rising + pb.sqrt(rising * rising + 2 * GRAVITY * height)) / GRAVITY


def simulate(throw, bounciness):
    """Place, height and number of bounces after END seconds; a throw is two speeds, forward and up, from 1.5 m."""

    def before_the_end(ball):
        t, _, height, _, vy, bounces = ball
        # a ball at rest bounces without end, in no time: the second condition is for that
        return (t + next_landing(height, vy) < END) & (bounces < 1000)

    def fly_and_bounce(ball):
        t, x, height, vx, vy, bounces = ball
        flight = next_landing(height, vy)
        landing = GRAVITY * flight - vy  # how fast it comes down
        return t + flight, x + vx * flight, 0.0 * height, FRICTION * vx, bounciness * landing, bounces + 1

    start = (0.0, 0.0, 1.5, throw[0], throw[1], 0)
    t, x, height, vx, vy, bounces = pb.while_loop(before_the_end, fly_and_bounce, start)
    left = END - t
    return x + vx * left, height + vy * left - 0.5 * GRAVITY * left * left, bounces


def miss(throw, bounciness, target):
    x, height, _ = simulate(throw, bounciness)
    return (x - target[0]) ** 2 + (height - target[1]) ** 2


def main(steps: int = 60) -> float:
    throw, bounciness, target = np.array([4.0, 8.0]), 0.8, np.array([9.0, 2.5])
    slope = pb.jit(pb.grad(miss, (0, 1)))
    _, by_bounciness = slope(throw, bounciness, target)
    eps = 1e-6
    differences = (miss(throw, bounciness + eps, target) - miss(throw, bounciness - eps, target)) / (2 * eps)
    print(f"slope of the miss by the bounciness: {by_bounciness:.6f}, by differences {differences:.6f}")
    assert np.isclose(by_bounciness, differences, rtol=1e-6)

    throws = np.stack([np.full(6, 4.0), np.linspace(0.0, 12.0, 6)], axis=1)
    x, height, bounces = pb.jit(pb.vmap(simulate, (0, None)))(throws, bounciness)
    slopes = pb.jit(pb.vmap(pb.grad(lambda throw: simulate(throw, bounciness)[1])))(throws)
    print("\n  up  bounces      x  height  d height / d up")
    for row in zip(throws[:, 1], bounces, x, height, slopes[:, 1], strict=True):
        print("{:4.1f}  {:7d}  {:5.2f}  {:6.2f}  {:15.4f}".format(*row))

    # Newton's method on where the ball ends: two unknowns, two equations
    place = pb.jit(lambda throw: pb.stack(simulate(throw, bounciness)[:2]))
    jacobian = pb.jit(pb.jacobian(place))
    for _ in range(steps):
        away = place(throw) - target
        if np.abs(away).max() < 1e-10:
            break
        move = np.linalg.solve(jacobian(throw), away)
        throw = throw - move / max(1.0, np.abs(move).max())  # a speed changes by at most 1 m/s a step
    error = float(np.abs(place(throw) - target).max())
    bounces = simulate(throw, bounciness)[2]
    print(f"\nthrown with {throw.round(4)} it is {error:.1e} m from the target after {bounces} bounces")
    assert error < 1e-8
    return error


if __name__ == "__main__":
    main()
