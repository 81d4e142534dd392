"""A loss scale around an optax optimizer: unscale, skip at an overflow, adjust."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from npusim.training.loss_scale import LossScale, LossScaleState
from npusim.training.storage import NewValue, is_new_value


class ScaledState(NamedTuple):
    """State of `with_loss_scale`.

    Attributes:
        loss_scale: scale, counters; `LossScale.scale` takes it.
        inner: state of the optimizer.
    """

    loss_scale: LossScaleState
    inner: Any


def with_loss_scale(
    inner: optax.GradientTransformation, loss_scale: LossScale
) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer for gradients of a scaled loss: it unscales, skips and adjusts.

    The loss is scaled by ``loss_scale.scale(loss, opt_state.loss_scale)``. At an overflow neither
    the parameters nor the state of ``inner`` change, ``opt_state.loss_scale.skipped`` counts it and
    the scale moves by its rule; where the rule has ``skip=False`` the update is made all the same.

    ``update`` takes ``overflow``: the flag of the step, needed by rules that read it and counted in
    addition by the others; and what ``inner`` takes.

    Special values: a skipped step adds -0.0, which leaves every normal number, +0 and -0 as it is.

    Raises:
        InputError: when updating, if the rule reads the flag and ``overflow`` is not given.

    Example:
        >>> rule = LossScale.dynamic("torch_npu", initial=4.0)
        >>> optimizer = with_loss_scale(optax.sgd(1.0), rule)
        >>> params = jnp.array([1.0, 2.0])
        >>> state = optimizer.init(params)
        >>> grad = jax.grad(lambda p: rule.scale(jnp.sum(p**2), state.loss_scale))(params)
        >>> updates, state = optimizer.update(grad, state, params)
        >>> optax.apply_updates(params, updates)
        Array([-1., -2.], dtype=float32)
        >>> updates, state = optimizer.update(grad / 0, state, params)
        >>> float(state.loss_scale.scale), int(state.loss_scale.skipped)
        (2.0, 1)
    """
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> ScaledState:
        return ScaledState(loss_scale.init(), inner.init(params))

    def update(
        updates: Any, state: Any, params: Any = None, *, overflow: Any = None, **extra: Any
    ) -> tuple[Any, ScaledState]:
        grads, failed = loss_scale.unscale(updates, state.loss_scale, overflow)
        new, inner_state = inner.update(grads, state.inner, params, **extra)
        if loss_scale.skip:
            new = _kept(failed, new, params)
            inner_state = jax.tree.map(
                lambda old, after: jnp.where(failed, old, after), state.inner, inner_state
            )
        return new, ScaledState(loss_scale.adjust(state.loss_scale, failed), inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _kept(failed: jax.Array, updates: Any, params: Any) -> Any:
    """The updates, or where the step failed those that change nothing."""

    def keep(update: Any, param: Any) -> Any:
        if isinstance(update, NewValue):
            return NewValue(jnp.where(failed, param, update.value))
        return jnp.where(failed, jnp.full_like(update, -0.0), update)

    new_values = [u for u in jax.tree.leaves(updates, is_leaf=is_new_value) if is_new_value(u)]
    if not new_values:
        return jax.tree.map(lambda update: keep(update, None), updates)
    return jax.tree.map(keep, updates, params, is_leaf=is_new_value)
