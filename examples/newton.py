"""Finds the minimum of Rosenbrock's valley: Newton's method with an exact Hessian from the tape.

Gradient descent needs tens of thousands of steps along this curved valley; with second derivatives it is a handful.

Run it with: python examples/newton.py
"""

import numpy as np

import pullback as pb


def rosenbrock(x):
    return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2


def gradient_and_hessian(f, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient stays on the tape (`create_graph`), so each of its elements can be differentiated again."""
    x = pb.tensor(point, requires_grad=True)
    (gradient,) = pb.gradients(f(x), [x], create_graph=True)
    rows = [pb.gradients(element, [x], retain_graph=True)[0].numpy() for element in gradient]
    return gradient.detach().numpy(), np.stack(rows)


def main(steps: int = 10) -> np.ndarray:
    point = np.array([-1.2, 1.0])
    print("step        x        y   gradient norm")
    for step in range(steps):
        gradient, hessian = gradient_and_hessian(rosenbrock, point)
        print(f"{step:4d} {point[0]:8.5f} {point[1]:8.5f}   {np.linalg.norm(gradient):.3e}")
        if np.linalg.norm(gradient) < 1e-10:
            break
        point = point - np.linalg.solve(hessian, gradient)
    assert np.allclose(point, 1.0)
    return point


if __name__ == "__main__":
    main()
