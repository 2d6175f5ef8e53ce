"""The steady state of a nonlinear diffusion, and its derivative with respect to the sources.

10,000 unknowns on a 100 x 100 grid. The Jacobian would take 800 MB as a matrix; it is only ever multiplied with, in
the forward pass to solve the equation and in the backward pass to differentiate the solution.

Run it with: python examples/steady_state.py
"""

import tracemalloc

import numpy as np

import pullback as pb

SIDE = 100


def neighbours(u):
    """The sum over the four neighbours; outside the square u is zero."""
    wide = pb.pad(u, ((1, 1), (1, 1)))
    return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]


def imbalance(u, source, reaction):
    """Diffusion, a sink that grows with u^3, and what flows in; zero in the steady state."""
    return 4.0 * u - neighbours(u) + reaction * (u + u**3) - source


def steady_state(source, reaction):
    return pb.root(
        imbalance,
        np.zeros((SIDE, SIDE)),
        source,
        reaction,
        solver=pb.implicit.NewtonKrylov(),
        derivative=pb.implicit.Implicit(adjoint=pb.implicit.CG()),
    )


def main() -> float:
    x, y = np.meshgrid(*[np.linspace(-1.0, 1.0, SIDE)] * 2)
    source = 0.05 * np.exp(-8 * ((x - 0.2) ** 2 + y**2))
    probe = (slice(60, 70), slice(20, 30))

    def warmth(source, reaction):
        return pb.mean(steady_state(source, reaction)[probe])

    tracemalloc.start()
    value, (by_source, by_reaction) = pb.value_and_grad(warmth, (0, 1))(source, 0.02)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    eps = 1e-5
    differences = (warmth(source, 0.02 + eps) - warmth(source, 0.02 - eps)) / (2 * eps)
    row, column = np.unravel_index(np.argmax(by_source), by_source.shape)
    print(f"mean in the probe          {value:.8f}")
    print(f"slope by the reaction      {by_reaction:.8f}, by differences {differences:.8f}")
    print(f"a source counts most at    row {row}, column {column}: inside the probe")
    print(f"memory at its peak         {peak / 1e6:.1f} MB for value and both gradients")
    print(f"the Jacobian as a matrix   {SIDE**4 * 8 / 1e6:.0f} MB")
    assert np.isclose(by_reaction, differences, rtol=1e-5)
    return peak


if __name__ == "__main__":
    main()
