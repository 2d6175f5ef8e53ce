"""Plots of solvers' residuals against the step: `python docs/figures/residuals.py` writes the SVG files."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pullback as pb
from pullback import implicit
from pullback.implicit.linear.operator import LinearSystem
from pullback.implicit.solvers.method_loop import run_method

HERE = Path(__file__).parent
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 680, 320, 60, 210, 34, 44
HIGHEST, LOWEST = 2, -12
Curves = dict[str, list[float]]


def histories(pose: Callable, solvers: dict[str, object], max_steps: int = 60) -> Curves:
    """The residual after each step of each solver, converged or not."""
    return {
        name: pose(solver=solver, max_steps=max_steps, tol=1e-12).report.history for name, solver in solvers.items()
    }


def fixed_points() -> Curves:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(100, 100))
    W *= 0.9 / np.abs(np.linalg.eigvals(W)).max()
    b = 0.1 * rng.normal(size=100)

    def pose(**options):
        return implicit.solve.fixed_point(lambda z: pb.tanh(W @ z) + b, np.zeros(100), **options)

    solvers = {
        "Picard()": implicit.Picard(),
        "Picard(damping=0.5)": implicit.Picard(0.5),
        "Anderson(memory=5)": implicit.Anderson(),
        "Anderson(memory=20)": implicit.Anderson(20),
        "Accelerated()": implicit.Accelerated(),
    }
    return histories(pose, solvers)


def roots() -> Curves:
    rng = np.random.default_rng(1)
    A = np.eye(20) + 0.3 * rng.normal(size=(20, 20)) / 20**0.5

    def pose(**options):
        return implicit.solve.root(lambda x: A @ x + 0.3 * x**3 - 1.0, np.full(20, 0.6), **options)

    solvers = {
        "Newton()": implicit.Newton(),
        "NewtonKrylov()": implicit.NewtonKrylov(),
        "Broyden()": implicit.Broyden(),
        "Chord()": implicit.Chord(),
    }
    alone = implicit.solve.root(lambda x: x**3 - 2.0, 0.3, solver=implicit.Bisection(0.0, 2.0), tol=1e-12)
    return histories(pose, solvers) | {"Bisection(0, 2), one unknown": alone.report.history}


def minima() -> Curves:
    def valley(x):
        return pb.sum(5.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    def parts(x):
        return {"bend": 10**0.5 * (x[1:] - x[:-1] ** 2), "rest": 2**0.5 * (1.0 - x[:-1])}

    def pose(**options):
        return implicit.solve.argmin(valley, np.full(6, -0.5), **options)

    def pose_squares(**options):
        return implicit.solve.least_squares(parts, np.full(6, -0.5), **options)

    solvers = {
        "GradientDescent()": implicit.GradientDescent(),
        "BFGS()": implicit.BFGS(),
        "LBFGS(memory=5)": implicit.LBFGS(5),
        "Newton()": implicit.Newton(),
        "Dogleg()": implicit.Dogleg(),
    }
    squares = {"GaussNewton()": implicit.GaussNewton(), "LevenbergMarquardt()": implicit.LevenbergMarquardt()}
    return histories(pose, solvers) | histories(pose_squares, squares)


def constrained() -> Curves:
    rng = np.random.default_rng(3)
    L, G, q = rng.normal(size=(20, 20)), rng.normal(size=(30, 20)), rng.normal(size=20)
    P, h = L @ L.T / 20, rng.uniform(0.1, 1.0, size=30)

    def pose(**options):
        limits = [implicit.AtMost(G, h)]
        return implicit.solve.argmin(lambda x: 0.5 * x @ P @ x + q @ x, np.zeros(20), constraints=limits, **options)

    solvers = {"InteriorPoint()": implicit.InteriorPoint(), "PredictorCorrector()": implicit.PredictorCorrector()}
    return histories(pose, solvers)


def systems() -> Curves:
    rng = np.random.default_rng(2)
    J = rng.normal(size=(60, 60))
    J = J + J.T
    A = np.eye(60) - 0.9 * J / np.linalg.norm(J, 2)  # symmetric and definite, so that each method may try
    b = rng.normal(size=60)
    methods = {
        "Neumann()": implicit.Neumann(),
        "GMRES(restart=5), cycles": implicit.GMRES(5),
        "BiCGStab()": implicit.BiCGStab(),
        "CG()": implicit.CG(),
        "MINRES()": implicit.MINRES(),
        "LSMR()": implicit.LSMR(),
        "Dense()": implicit.Dense(),
        "Sparse()": implicit.Sparse(),
        "Structured()": implicit.Structured(),
    }
    curves: Curves = {}
    for name, method in methods.items():
        curve = curves[name] = []

        def watch(step, state, method=method, curve=curve):
            curve.append(float(np.linalg.norm(b - A @ method.value(state)) / np.linalg.norm(b)))

        system = LinearSystem(lambda v: pb.matmul(A, v), 60, b.dtype, 1e-12)
        if name == "Structured()":  # one block, of all rows
            system.precondition = implicit.BlockDiagonal([A]).solve_directly
        run_method(method, system, b, 60, watch)
    return curves


def plot(title: str, curves: Curves) -> str:
    """The curves as SVG: steps to the right, residuals upwards by powers of ten."""
    steps = max(len(curve) for curve in curves.values())

    def across(step: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * step / steps:.1f}"

    def down(residual: float) -> str:
        power = min(max(math.log10(residual), LOWEST), HIGHEST) if residual > 0 else LOWEST
        return f"{TOP + (HEIGHT - TOP - BOTTOM) * (HIGHEST - power) / (HIGHEST - LOWEST):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{title}</text>',
    ]
    for power in range(LOWEST, HIGHEST + 1, 2):
        y = down(10.0**power)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">1e{power}</text>')
    lines += [
        f'<text x="{across(step)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>'
        for step in range(0, steps + 1, max(1, round(steps / 6)))
    ]
    lines.append(f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour, y = COLOURS[i % len(COLOURS)], TOP + 12 + 20 * i
        points = " ".join(f"{across(step)},{down(residual)}" for step, residual in enumerate(curve, 1))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        lines += [
            f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2" fill="{colour}"/>' for p in points.split()
        ]
        lines.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 8}" width="12" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


FIGURES = {
    "fixed-points": ("Norm of f(x) - x after each step", fixed_points),
    "roots": ("Norm of F after each step", roots),
    "minima": ("Norm of the gradient after each step", minima),
    "constrained": ("Residual of the conditions of the optimum after each step", constrained),
    "systems": ("Residual of A x = b, relative, after each step", systems),
}

if __name__ == "__main__":
    for name, (title, made) in FIGURES.items():
        (HERE / f"{name}.svg").write_text(plot(title, made()))
        print(f"docs/figures/{name}.svg")
