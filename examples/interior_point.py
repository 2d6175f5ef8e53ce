"""Lays a membrane over a bumpy floor: thousands of inequalities by an interior-point method.

The membrane is a surface of least area over a square, held at the rim, and must not sink into the floor:

    minimise area(u)  subject to  u >= floor.

Newton's method on the conditions of the optimum needs the Hessian of the area. Each element depends on its neighbours
only, so `pb.sparse_hessian` finds where it is not zero, and fills it with a few products whatever the size; SciPy
factors the sparse matrix.

Run it with: python examples/interior_point.py
"""

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import spsolve

import pullback as pb


def area(u, side):
    """The area of the surface over a square grid, u being the heights inside; at the rim they are zero."""
    height = pb.pad(pb.reshape(u, (side, side)), 1) * (side + 1.0)
    across, down = height[:-1, 1:] - height[:-1, :-1], height[1:, :-1] - height[:-1, :-1]
    return pb.sum(pb.sqrt(1.0 + across**2 + down**2)) / (side + 1.0) ** 2


def longest(value, change):
    """How far one may go along a change with a positive value staying positive; at most all the way."""
    falling = change < 0
    return min(1.0, 0.995 * np.min(-value[falling] / change[falling], initial=np.inf))


def main(side: int = 50) -> float:
    x, y = np.meshgrid(*[np.linspace(0.0, 1.0, side + 2)[1:-1]] * 2)
    bumps = 0.4 * np.exp(-60 * ((x - 0.35) ** 2 + (y - 0.4) ** 2)) + 0.3 * np.exp(
        -80 * ((x - 0.7) ** 2 + (y - 0.65) ** 2)
    )
    floor = (bumps - 0.1).ravel()

    slope = pb.jit(pb.grad(lambda u: area(u, side)))
    curvature = pb.sparse_hessian.plan(lambda u: area(u, side), floor)
    entries, products = curvature.pattern.nnz, curvature.products
    print(f"{floor.size} unknowns; the Hessian has {entries} entries and takes {products} products")

    # area'(u) = z,  u - floor = s,  s z = mu,  with s and z positive and mu going to zero
    u = np.maximum(floor, 0.0) + 0.1
    z = np.full(u.size, 1.0 / u.size)
    print("step         mu   forces out of balance")
    for step in range(60):
        s = u - floor
        gap, off = s @ z / u.size, np.abs(slope(u) - z).max()
        if step % 4 == 0 or max(gap, off) < 1e-11:
            print(f"{step:4d}  {gap:9.2e}  {off:9.2e}")
        if max(gap, off) < 1e-11:
            break
        mu = 0.2 * gap
        # eliminating the changes of s and z leaves (area'' + z/s) du = mu/s - area'
        system = curvature(u) + scipy.sparse.diags_array(z / s)
        du = spsolve(system.tocsc(), mu / s - slope(u))
        dz = (mu - z * du) / s - z
        u, z = u + longest(s, du) * du, z + longest(z, dz) * dz

    touching = u - floor < 1e-6
    print(f"area {area(u, side):.6f} over a square of 1; the membrane touches the floor at {touching.sum()} places")
    print(f"force of the floor: up to {z[touching].max():.1e} where they touch, {z[~touching].max():.1e} elsewhere")
    assert max(gap, off) < 1e-11
    assert np.all(u > floor)
    return float(gap)


if __name__ == "__main__":
    main()
