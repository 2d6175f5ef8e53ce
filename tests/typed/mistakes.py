"""What a type checker is to find; never run."""

import numpy as np

import pullback as pb

x = pb.tensor([1.0, 2.0])


def f(a: pb.Tensor, b: float = 1.0) -> pb.Tensor:
    return a * b


class Scaled(pb.nn.Module):
    inner: pb.nn.Module
    factor: float = 2.0

    def forward(self, x: pb.Tensor) -> pb.Tensor:
        return x


pb.sinn(x)  # attr-defined
pb.nn.rellu(x)  # attr-defined
pb.optim.Adamm([x])  # attr-defined
pb.random.norml()  # attr-defined
x.sine()  # attr-defined
pb.sin(x, 3, 4)  # call-overload
pb.sin()  # call-overload
pb.add(x)  # call-overload
pb.sum(x, axes=0)  # call-overload
pb.linalg.norm(x, ord=2, axiss=1)  # call-overload
pb.sum(x).shape.lower()  # attr-defined
pb.sin(np.ones(2)).backward()  # attr-defined
pb.jit(f)(x, c=3)  # call-arg
pb.jit(f)(3)  # arg-type
pb.jit(f).lowered()  # attr-defined
pb.grad(f)(x, c=3)  # call-arg
pb.vmap(f)("x")  # arg-type
pb.checkpoint(f)()  # call-arg
Scaled()  # call-arg
Scaled(pb.nn.Linear(1, 1), 2.0, 3)  # call-arg
Scaled(pb.nn.Linear(1, 1))(3)  # arg-type
pb.optim.Adam([x], learning_rate=0.1)  # call-overload
pb.optim.SGD([x], lr=0.1, momentun=0.9)  # call-overload
pb.optim.Lion([x])  # call-overload
pb.nn.Linear(in_features=3)  # call-overload
pb.nn.Conv2d(3, 4, kernel=3)  # call-overload
pb.random.normal(sizes=3)  # call-overload
pb.random.uniform(loc=0.0)  # call-overload
pb.linalg.svd(x).V.sum()  # attr-defined
pb.random.normal(size=3).backward()  # attr-defined
