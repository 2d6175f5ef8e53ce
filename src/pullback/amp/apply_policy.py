"""`pb.amp.apply`: a policy for a module, or for all modules of some classes inside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..arrays.argument_checks import short_repr
from ..errors import ArgumentTypeError
from ..nn.module import Module, convert_parameters
from ..nn.policy import Policy

M = TypeVar("M", bound=Module)


def apply(module: M, policy: Policy, to: type[Module] | Sequence[type[Module]] | None = None) -> M:
    """Give a module a policy, in place, and its parameters the policy's dtype; with `to`, give it to the modules of
    these classes inside instead, which is how norms stay in float32. Returns the module.

    >>> import pullback as pb
    >>> net = pb.nn.Sequential(pb.nn.Linear(2, 2), pb.nn.LayerNorm(2))
    >>> net = pb.amp.apply(net, pb.Policy(compute="bfloat16"))
    >>> net = pb.amp.apply(net, pb.Policy(compute="float32"), to=pb.nn.LayerNorm)
    >>> net[1].policy.compute
    'float32'
    """
    if not isinstance(module, Module):
        raise ArgumentTypeError(f"apply: wants a module, got {short_repr(module)}.")
    if not isinstance(policy, Policy):
        raise ArgumentTypeError(f"apply: wants a pb.Policy, got {short_repr(policy)}.")
    kinds = () if to is None else (to,) if isinstance(to, type) else tuple(to)
    for each in [module] if to is None else [m for m in module.modules() if isinstance(m, kinds)]:
        each.policy = policy
        if policy.params is not None:
            convert_parameters(each, policy.params)
    return module
