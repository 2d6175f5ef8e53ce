"""Optimal transport between two clouds of points, and how to move the points to lower its cost.

Entropic optimal transport is the fixed point of Sinkhorn's scaling. Its derivative is that of the equation: none of
the many steps is stored. At the optimum it has a closed form as well, the plan, which shows that nothing was lost.

Run it with: python examples/sinkhorn.py
"""

import numpy as np

import pullback as pb

SMOOTHING = 0.1


def costs(points, targets):
    return pb.sum((points[:, None, :] - targets[None, :, :]) ** 2, axis=-1)


def other(f, cost):
    """The potential of the columns that fits one of the rows; all points weigh the same."""
    return -SMOOTHING * (pb.logsumexp((f[:, None] - cost) / SMOOTHING, axis=0) + np.log(cost.shape[1]))


def potentials(cost):
    """Potentials are known up to a constant, so the mean is taken off: the equation has one solution."""

    def scaling(f, cost):
        f = other(other(f, cost), cost.T)
        return f - pb.mean(f)

    f = pb.fixed_point(scaling, np.zeros(cost.shape[0]), cost, tol=1e-11)
    return f, other(f, cost)


def plan(cost):
    f, g = potentials(cost)
    return pb.exp((f[:, None] + g[None, :] - cost) / SMOOTHING)


def dual(cost):
    f, g = potentials(cost)
    return pb.mean(f) + pb.mean(g)


def transport_cost(points, targets):
    cost = costs(points, targets)
    return pb.sum(plan(cost) * cost)


def main(steps: int = 12, rate: float = 4.0) -> float:
    random = np.random.default_rng(0)
    points = random.normal(size=(20, 2))
    angles = np.linspace(0.0, 2 * np.pi, 25, endpoint=False)
    targets = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    cost = costs(points, targets)
    difference = np.abs(pb.grad(dual)(cost) - plan(cost)).max()
    print(f"gradient of the dual by the costs, less the plan: at most {difference:.1e}")

    assert difference < 1e-8

    print("step  cost of the transport")
    for step in range(steps):
        value, slope = pb.value_and_grad(transport_cost)(points, targets)
        if step % 3 == 0 or step == steps - 1:
            print(f"{step:4d}  {value:.5f}")
        points = points - rate * slope
    radii = np.linalg.norm(points, axis=1)
    print(
        f"the points now lie at distances {radii.min():.2f} to {radii.max():.2f} from the centre of a ring of radius 2"
    )
    return float(difference)


if __name__ == "__main__":
    main()
