"""A picture of each example, from what its `main` had when it returned.

`python docs/_extensions/pictures.py FOLDER` runs the examples and writes their pictures and what they print.
"""

import ast
import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from drawing import BLUE, GRAY, GREEN, INK, ORANGE, RED, WIDTH, Picture

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Settings for examples that take longer by default than a test or a build should.
SMALLER: dict[str, dict[str, int]] = {
    "deep_equilibrium": {"epochs": 8}, "maml": {"steps": 600}, "pinn": {"steps": 800}, "transformer": {"steps": 600},
    "wgan_gp": {"rounds": 1600},
}  # fmt: skip
PICTURES: dict[str, Callable[[Any, Any], str]] = {}


def run_example(path: Path) -> tuple[SimpleNamespace, SimpleNamespace]:
    """The names of an example, and those inside its `main` at the end."""
    tree = ast.parse(path.read_text())
    main = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    last = ast.parse("return locals()").body[0]
    main.body = [node for node in main.body if not isinstance(node, ast.Return)] + [ast.copy_location(last, main)]
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), names)
    found = names["main"](**SMALLER.get(path.stem, {}))
    return SimpleNamespace(**names), SimpleNamespace(**found)


def picture(draw: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
    PICTURES[draw.__name__] = draw
    return draw


@picture
def curve_fit(names: Any, found: Any) -> str:
    p = Picture(found.t, found.measured)
    p.dots(found.t, found.measured, GRAY, 2.0)
    p.line(found.t, names.model(found.t, np.array([1.0, 0.1, 1.2])), ORANGE, 1.5, "4 3")
    p.line(found.t, names.model(found.t, found.fitted), BLUE, 2.5)
    p.words(WIDTH - 8, 20, "start", ORANGE, "end")
    p.words(WIDTH - 8, 36, "fitted", BLUE, "end")
    return p.svg("Noisy points of a damped oscillation, and the fitted curve")


@picture
def newton(names: Any, found: Any) -> str:
    x, y = np.meshgrid(np.linspace(-1.6, 1.6, 64), np.linspace(-3.4, 1.8, 40))
    p = Picture([-1.6, 1.6], [-3.4, 1.8])
    p.heat(np.log(names.rosenbrock([x, y]) + 0.1), -1.6, 1.6, -3.4, 1.8)
    path = [np.array([-1.2, 1.0])]
    for _ in range(6):
        gradient, hessian = names.gradient_and_hessian(names.rosenbrock, path[-1])
        path.append(path[-1] - np.linalg.solve(hessian, gradient))
    p.line(*np.transpose(path), color="black", width=1.5)
    p.dots(*np.transpose(path), color="black")
    return p.svg("Newton's steps in Rosenbrock's valley")


@picture
def numpy_code(names: Any, found: Any) -> str:
    (a, b), (da, db) = found.fit.x, found.errors
    across, up = np.linspace(a - 4 * da, a + 4 * da, 22), np.linspace(b - 4 * db, b + 4 * db, 14)
    p = Picture(across, up)
    p.heat([[-np.log(found.misfit(np.array([x, y])) - found.fit.fun + 1) for x in across] for y in up],
           across[0], across[-1], up[0], up[-1])  # fmt: skip
    p.line([a - da, a + da], [b, b], "black")
    p.line([a, a], [b - db, b + db], "black")
    p.dots(*np.log(found.truth), color=GREEN, size=4.0)
    p.words(12, 22, "the estimate with its errors, and the truth", "black")
    return p.svg("The likelihood of a Kalman filter, its maximum with error bars, and the truth")


@picture
def pinn(names: Any, found: Any) -> str:
    from pullback import vmap

    p = Picture([0, 1], [0, 1], square=True)
    p.heat(vmap(names.u, (0, None))(found.grid, found.layers).reshape(41, 41), -0.3, 1.3, 0, 1)
    return p.svg("The solution of Poisson's equation that the network found")


@picture
def neural_ode(names: Any, found: Any) -> str:
    p = Picture([-2.2, 2.2], [-2.4, 3.2])
    for start in ([2.0, 0.0], [-1.5, 1.5], [0.5, -2.0], [-1.0, -1.0]):
        for law, color in ((names.pendulum, GRAY), (lambda y: names.speed(y, *found.weights), BLUE)):
            path = [np.array([start])]
            for _ in range(80):
                path += names.runge_kutta(lambda y, law=law: (law(y[0]),), (path[-1],), 0.05)
            p.line(*np.concatenate(path).T, color=color, width=6.0 if color == GRAY else 1.5)
    p.words(12, 22, "true paths", GRAY)
    p.words(12, 38, "paths by the law it found", BLUE)
    return p.svg("Paths of pendulums by the true law and by the one that was found")


@picture
def bouncing_ball(names: Any, found: Any) -> str:
    end = names.simulate.__globals__
    p = Picture([0.0, 13.0], [0.0, 6.0])
    for throw, color in ((np.array([4.0, 8.0]), GRAY), (found.throw, BLUE)):
        path = []
        for end["END"] in np.linspace(0.0, 3.0, 120):
            path.append(names.simulate(throw, found.bounciness)[:2])
        p.line(*np.transpose(path), color=color)
    p.line([0, 13], [0, 0], "currentColor", 1.0)
    p.dots(*found.target, color=RED, size=5.0)
    p.words(WIDTH - 8, 20, "first throw", GRAY, "end")
    p.words(WIDTH - 8, 36, "the throw that hits", BLUE, "end")
    return p.svg("A ball that bounces, and the throw that brings it to the target")


@picture
def steady_state(names: Any, found: Any) -> str:
    p = Picture([0, 100], [0, 100], square=True)
    p.heat(found.by_source[::2, ::2], -25, 125, 0, 100)
    p.words(WIDTH / 2, 22, "where a source counts for the probe", "white", "middle")
    return p.svg("The derivative of the probe's mean by the source at each place")


@picture
def kepler(names: Any, found: Any) -> str:
    from pullback import vmap

    path = vmap(names.place, (0, None))(np.linspace(0.0, 2 * np.pi, 80), found.e)
    p = Picture(path[:, 0], path[:, 1] * 1.1, square=True)
    p.line(*path.T, color=GRAY, width=1.5)
    p.dots(*found.places.T, color=BLUE, size=5.0)
    p.dots(0.0, 0.0, ORANGE, 9.0)
    return p.svg("Nine places of a planet at equal intervals of time")


@picture
def interior_point(names: Any, found: Any) -> str:
    p = Picture([0, 1], [0, 1], square=True)
    p.heat(found.u.reshape(found.side, found.side), -0.3, 1.3, 0, 1)
    touching = found.touching.reshape(found.side, found.side)[::2, ::2].nonzero()
    p.dots(-0.3 + 1.6 * 2 * touching[1] / found.side, 2 * touching[0] / found.side, "black", 1.2)
    p.words(WIDTH / 2, 22, "dots: the membrane touches the floor", "white", "middle")
    return p.svg("The height of the membrane, and where it touches the floor")


@picture
def sinkhorn(names: Any, found: Any) -> str:
    start = np.random.default_rng(0).normal(size=found.points.shape)
    p = Picture([-2.2, 2.2], [-2.2, 2.2], square=True)
    for a, b in zip(start, found.points, strict=True):
        p.line(*np.transpose([a, b]), color=GRAY, width=1.0)
    p.dots(*start.T, color=GRAY, size=2.0)
    p.dots(*found.targets.T, color=ORANGE, size=2.5)
    p.dots(*found.points.T, color=BLUE)
    return p.svg("Points that were moved to a ring by the gradient of the transport cost")


@picture
def bilevel(names: Any, found: Any) -> str:
    p = Picture([-0.6, 11.6], [0.0, 1.2 * np.exp(found.log_decay).max()])
    for i, decay in enumerate(np.exp(found.log_decay)):
        p.bar(i, decay, BLUE if found.truth[i] else GRAY)
    p.words(12, 22, "weight decay of features that matter", BLUE)
    p.words(12, 38, "and of those that say nothing", GRAY)
    return p.svg("The weight decay of each feature")


@picture
def transformer(names: Any, found: Any) -> str:
    words = found.unseen[:: len(found.unseen) // 9][:9]
    p = Picture([0, 1], [0, 1])
    written = names.written(found.model, [f"{word} " for word in words], 5)
    for i, (word, text) in enumerate(zip(words, written, strict=True)):
        right = text == names.sentence(word).strip()
        p.words(WIDTH / 2 - 10, 26 + 19 * i, word, "currentColor", "end")
        p.words(WIDTH / 2 + 10, 26 + 19 * i, text.removeprefix(f"{word} "), GREEN if right else RED)
    return p.svg("Words that the model had not seen, and what it wrote")


@picture
def deep_equilibrium(names: Any, found: Any) -> str:
    p = Picture([0, 8], [0, 4])
    guesses = names.scores(found.model, found.x[:32]).argmax(axis=1)
    for i, (image, guess) in enumerate(zip(found.x, guesses, strict=False)):
        column, row = i % 8, 3 - i // 8
        p.heat(image.reshape(8, 8)[::-1], column + 0.1, column + 0.9, row + 0.33, row + 0.98, INK)
        right = guess == found.labels[found.test[i]]
        p.words(*(p.places(column + 0.5, row + 0.05)[0].round(1)), str(guess), GREEN if right else RED, "middle")
    return p.svg("Handwritten digits, and what the network read")


@picture
def maml(names: Any, found: Any) -> str:
    x, y, unseen, wanted = (part[2] for part in found.test)
    grid = np.linspace(-5.0, 5.0, 100)[:, None]
    after = names.network(names.adapted(found.meta, x, y, 5), grid)
    p = Picture(grid, np.concatenate([after, wanted, -wanted]) * 1.2)
    p.line(grid, names.network(found.meta["layers"], grid), GRAY, 1.5, "4 3")
    p.line(grid, after, BLUE)
    p.dots(unseen, wanted, GREEN, 2.5)
    p.dots(x, y, ORANGE, 3.5)
    for i, (text, color) in enumerate(
        {"before": GRAY, "after five steps": BLUE, "seen": ORANGE, "unseen": GREEN}.items()
    ):
        p.words(12 + 80 * i - 25 * (i == 1), 16, text, color)
    return p.svg("A network before and after five steps on ten points of a sine wave")


@picture
def wgan_gp(names: Any, found: Any) -> str:
    p = Picture([-1.3, 1.3], [-1.3, 1.3], square=True)
    p.dots(*found.points[:700].T, color=BLUE, size=0.8)
    p.dots(found.centres.real, found.centres.imag, ORANGE, 3.0)
    return p.svg("Points that the generator drew, and the eight spots")


@picture
def variational(names: Any, found: Any) -> str:
    rates = np.linspace(0.02, 5.0, 150)
    exact, guesses = (
        np.exp([names.log_gamma_density(rates, *both) for both in zip(*pair, strict=True)])
        for pair in ((found.true_shape, found.true_rate), (found.shape, found.rate))
    )
    p = Picture([0, 5], [0, exact.max() * 1.15])
    for curve, guess in zip(exact, guesses, strict=True):
        p.line(rates, curve, GRAY, 6.0)
        p.line(rates, guess, BLUE, 1.5)
    p.words(WIDTH - 8, 20, "exact posteriors", GRAY, "end")
    p.words(WIDTH - 8, 36, "found by gradients", BLUE, "end")
    return p.svg("Densities of the rates, exact and found")


def _fall(values: Any, words: str, title: str) -> str:
    """A loss over steps, on a logarithmic scale."""
    steps = np.arange(len(values))
    p = Picture(steps, np.log10(values))
    p.line(steps, np.log10(values), BLUE, 2.0)
    p.words(WIDTH - 8, 20, words, BLUE, "end")
    return p.svg(title)


@picture
def data_parallel(names: Any, found: Any) -> str:
    return _fall(found.losses, "4 ranks, and 1: the same bits", "The loss of a network trained by four ranks")


@picture
def tensor_parallel(names: Any, found: Any) -> str:
    return _fall(found.alone, "hidden units on 4 ranks", "The loss of a network whose layers are divided among ranks")


@picture
def pipeline(names: Any, found: Any) -> str:
    return _fall(found.values, "one layer a rank", "The loss of a chain of layers, one on each rank")


def main(folder: Path) -> None:
    """Write the picture of each example, and what it printed."""
    sys.path.insert(0, str(EXAMPLES))  # one imports another file
    for name, draw in PICTURES.items():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            names, found = run_example(EXAMPLES / f"{name}.py")
        (folder / f"{name}.svg").write_text(draw(names, found))
        (folder / f"{name}.txt").write_text(printed.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
