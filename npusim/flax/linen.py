"""Flax Linen: a module's ``apply`` under a policy. Linen names its instances by itself."""

from collections.abc import Callable, Sequence
from typing import Any

from flax import linen as nn

from npusim._errors import InputError, message
from npusim.inject import Policy
from npusim.inject import simulate as simulate_function
from npusim.inject.arguments import Params


def simulate_apply(
    module: nn.Module,
    policy: Policy,
    *,
    params: Params = None,
    static_argnames: Sequence[str] = (),
) -> Callable[..., Any]:
    """Return ``module.apply`` with the policy's casts: same arguments, same results.

    ``mutable``, ``method``, ``rngs`` and the module's own arguments are passed on; those that are
    bool, str or callables stay static. Mutable collections come back as from ``apply``. Paths start
    with the class of the module: ``MLP/Dense_0``.

    Args:
        module: the module, not bound.
        policy: the rules.
        params: as in `npusim.inject.simulate`; by default the collection ``params``.
        static_argnames: arguments of the module that stay Python values.

    Gradient: straight-through; for gradients rounded as the chip rounds them, put the gradient
        inside: ``npusim.simulate(jax.grad(loss), policy)`` with a loss that calls ``module.apply``.

    Raises:
        InputError: ``module`` is no Linen module.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from npusim.inject import CastSpec, Rule
        >>> model = nn.Dense(2, use_bias=False)
        >>> variables = {"params": {"kernel": jnp.array([[1.1, 0.3]])}}
        >>> policy = Policy([Rule("Dense", weight=CastSpec("fp4_e2m1"))])
        >>> simulate_apply(model, policy)(variables, jnp.ones((1, 1)))
        Array([[1. , 0.5]], dtype=float32)
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            message(f"{module!r}", "a flax.linen.Module", "Pass the module itself, e.g. MLP().")
        )
    return simulate_function(
        module.apply, policy, params=params, static_argnames=tuple(static_argnames)
    )
