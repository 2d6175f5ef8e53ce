"""Optimisers written down from their papers in plain NumPy, one parameter at a time: `f(w, g, s, t) -> w`, where s is a
dict that the rule may keep things in and t counts steps from 1.
"""

import numpy as np


def sgd(lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    def step(w, g, s, t):
        g = g + weight_decay * w
        if momentum:
            s["m"] = momentum * s.get("m", 0) + g
            g = g + momentum * s["m"] if nesterov else s["m"]
        return w - lr * g

    return step


def adam(lr, betas=(0.9, 0.999), eps=1e-8, amsgrad=False, weight_decay=0.0, decoupled=0.0):
    def step(w, g, s, t):
        g = g + weight_decay * w
        s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
        s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g**2
        s["largest"] = np.maximum(s.get("largest", 0), s["v"])
        m = s["m"] / (1 - betas[0] ** t)
        v = (s["largest"] if amsgrad else s["v"]) / (1 - betas[1] ** t)
        return w - lr * (m / (np.sqrt(v) + eps) + decoupled * w)

    return step


def adamax(lr, betas=(0.9, 0.999), eps=1e-8):
    def step(w, g, s, t):
        s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
        s["u"] = np.maximum(betas[1] * s.get("u", np.zeros_like(g)), abs(g) + eps)
        return w - lr / (1 - betas[0] ** t) * s["m"] / s["u"]

    return step


def nadam(lr, betas=(0.9, 0.999), eps=1e-8, momentum_decay=4e-3):
    def mu(t):
        return betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))

    def step(w, g, s, t):
        s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
        s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g**2
        upto = np.prod([mu(i) for i in range(1, t + 1)])
        m = mu(t + 1) * s["m"] / (1 - upto * mu(t + 1)) + (1 - mu(t)) * g / (1 - upto)
        return w - lr * m / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps)

    return step


def radam(lr, betas=(0.9, 0.999), eps=1e-8):
    def step(w, g, s, t):
        s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
        s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g**2
        most = 2 / (1 - betas[1]) - 1
        rho = most - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        m = s["m"] / (1 - betas[0] ** t)
        if rho <= 5:
            return w - lr * m
        r = np.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        return w - lr * r * m * np.sqrt(1 - betas[1] ** t) / (np.sqrt(s["v"]) + eps)

    return step


def adagrad(lr, eps=1e-10, initial=0.0):
    def step(w, g, s, t):
        s["v"] = s.get("v", initial) + g**2
        return w - lr * g / (np.sqrt(s["v"]) + eps)

    return step


def rmsprop(lr, decay=0.99, eps=1e-8, centered=False, momentum=0.0):
    def step(w, g, s, t):
        s["v"] = decay * s.get("v", 0) + (1 - decay) * g**2
        s["g"] = decay * s.get("g", 0) + (1 - decay) * g
        v = s["v"] - s["g"] ** 2 if centered else s["v"]
        s["m"] = momentum * s.get("m", 0) + g / (np.sqrt(v) + eps)
        return w - lr * s["m"]

    return step


def adadelta(lr=1.0, decay=0.9, eps=1e-6):
    def step(w, g, s, t):
        s["v"] = decay * s.get("v", 0) + (1 - decay) * g**2
        d = np.sqrt(s.get("d", 0) + eps) / np.sqrt(s["v"] + eps) * g
        s["d"] = decay * s.get("d", 0) + (1 - decay) * d**2
        return w - lr * d

    return step


def adafactor(lr=0.01, decay=0.8, eps=(1e-30, 1e-3), clip=1.0, weight_decay=0.0):
    def step(w, g, s, t):
        b = 1 - t**-decay
        u = g**2 + eps[0]
        if w.ndim < 2:
            v = s["v"] = b * s.get("v", 0) + (1 - b) * u
        else:  # the paper's sums of rows and columns
            r = s["r"] = b * s.get("r", 0) + (1 - b) * u.sum(-1)
            c = s["c"] = b * s.get("c", 0) + (1 - b) * u.sum(-2)
            v = r[..., :, None] * c[..., None, :] / r.sum(-1)[..., None, None]
        d = g / np.sqrt(v)
        d = d / max(1, np.sqrt(np.mean(d**2)) / clip)
        size = min(lr, 1 / np.sqrt(t)) * max(eps[1], np.sqrt(np.mean(w**2)))
        return w - size * d - lr * weight_decay * w

    return step


def lion(lr, betas=(0.9, 0.99), weight_decay=0.0):
    def step(w, g, s, t):
        m = s.get("m", 0)
        s["m"] = betas[1] * m + (1 - betas[1]) * g
        return w - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * w)

    return step


def lamb(lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
    inner = adam(1.0, betas, eps, decoupled=weight_decay)

    def step(w, g, s, t):
        d = w - inner(w, g, s, t)
        return w - lr * np.linalg.norm(w) / np.linalg.norm(d) * d

    return step


def lars(lr, momentum=0.9, weight_decay=0.0, trust=1e-3):
    def step(w, g, s, t):
        size = np.linalg.norm(w)
        local = trust * size / (np.linalg.norm(g) + weight_decay * size)
        s["m"] = momentum * s.get("m", 0) + lr * local * (g + weight_decay * w)
        return w - s["m"]

    return step


def rprop(lr=0.01, factors=(0.5, 1.2), limits=(1e-6, 50.0)):
    def step(w, g, s, t):
        length, before = s.get("length", np.full_like(w, lr)), s.get("g", np.zeros_like(w))
        g, w = g.copy(), w.copy()
        for i in np.ndindex(w.shape):
            if g[i] * before[i] > 0:
                length[i] = min(length[i] * factors[1], limits[1])
            elif g[i] * before[i] < 0:
                length[i] = max(length[i] * factors[0], limits[0])
                g[i] = 0
            w[i] -= length[i] * np.sign(g[i])
        s["length"], s["g"] = length, g
        return w

    return step


def muon(lr, momentum=0.95, nesterov=True, steps=5, weight_decay=0.0):
    def step(w, g, s, t):
        s["m"] = momentum * s.get("m", 0) + (1 - momentum) * g
        b = momentum * s["m"] + (1 - momentum) * g if nesterov else s["m"]
        u, sigma, vt = np.linalg.svd(b / (np.linalg.norm(b) + 1e-7), full_matrices=False)
        for _ in range(steps):  # the iteration acts on singular values alone
            sigma = 3.4445 * sigma - 4.7750 * sigma**3 + 2.0315 * sigma**5
        d = max(1, w.shape[0] / w.shape[1]) ** 0.5 * (u * sigma) @ vt
        return w - lr * (d + weight_decay * w)

    return step


def shampoo(lr, eps=1e-4):
    def root(a, p):
        values, vectors = np.linalg.eigh(a)
        return vectors * values ** (-1 / p) @ vectors.T

    def step(w, g, s, t):
        k = w.ndim
        d = g
        for axis in range(k):
            flat = np.moveaxis(g, axis, 0).reshape(w.shape[axis], -1)
            s[axis] = s.get(axis, eps * np.eye(w.shape[axis])) + flat @ flat.T
            d = np.moveaxis(np.tensordot(root(s[axis], 2 * k), d, axes=(1, axis)), 0, axis)
        return w - lr * d

    return step


def run(step, params, gradient, count):
    """The parameters after each of so many steps."""
    states = {name: {} for name in params}
    found = []
    for t in range(1, count + 1):
        g = gradient(params)
        params = {name: step(params[name], g[name], states[name], t) for name in params}
        found.append(params)
    return found
