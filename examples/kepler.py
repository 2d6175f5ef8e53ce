"""The place of a planet at a given time: Kepler's equation solved by Newton, differentiated as an equation.

The eccentric anomaly E solves E - e sin(E) = M, and no formula gives it. Its derivatives have formulas, so what comes
out of the solver can be checked to third order.

Run it with: python examples/kepler.py
"""

import numpy as np

import pullback as pb


def anomaly(M, e):
    return pb.root(lambda E, M, e: E - e * pb.sin(E) - M, M, M, e, tol=1e-13)


def place(M, e):
    """On an ellipse with half axis one and the sun at the origin."""
    E = anomaly(M, e)
    return pb.stack([pb.cos(E) - e, pb.sqrt(1 - e * e) * pb.sin(E)])


def by_hand(M, e):
    """E and its first three derivatives by M, with q = 1 - e cos(E)."""
    E = float(anomaly(M, e))
    q = 1 - e * np.cos(E)
    return E, 1 / q, -e * np.sin(E) / q**3, (3 * (e * np.sin(E)) ** 2 - e * np.cos(E) * q) / q**5


def main(M: float = 1.0, e: float = 0.6) -> float:
    print("derivative      of the equation          by formula   difference")
    derivative, worst = anomaly, 0.0
    for order, wanted in enumerate(by_hand(M, e)):
        found = float(derivative(M, e))
        worst = max(worst, abs(found - wanted))
        print(f"d^{order}E/dM^{order}    {found:18.12f}  {wanted:18.12f}     {found - wanted:8.1e}")
        derivative = pb.grad(derivative)
    assert worst < 1e-9

    times = np.linspace(0.0, 2 * np.pi, 9)
    places = pb.vmap(place, (0, None))(times, e)
    speeds = np.linalg.norm(pb.vmap(lambda M: pb.jvp(lambda M: place(M, e), (M,), (1.0,))[1])(times), axis=1)
    print("\nnine times of one orbit, solved as one batch")
    print("       M         x         y     speed")
    for row in zip(times, *places.T, speeds, strict=True):
        print("  ".join(f"{number:8.5f}" for number in row))
    return worst


if __name__ == "__main__":
    main()
