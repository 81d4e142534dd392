"""Parameters, master copies and moments held in a chosen format, as an optax transformation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from npusim._errors import InputError, message
from npusim.casting import cast
from npusim.inject import CastSpec, apply_cast
from npusim.inject.spec import as_spec
from npusim.modes import LABORATORY, Target

_NARROW = (np.dtype(np.float16), np.dtype(jnp.bfloat16))


@jax.tree_util.register_pytree_with_keys_class
class NewValue:
    """An update that carries the parameter's new value: adding it to the old one gives that value.

    Rounded parameters cannot be reached by adding a difference: ``new - old`` need not be a float32
    (1.0 to 2**-30 is not). With this, `optax.apply_updates` and ``params + update`` are exact.

    Attributes:
        value: the new value.

    Example:
        >>> jnp.float32(1.0) + NewValue(jnp.float32(2.0**-30)) == jnp.float32(2.0**-30)
        Array(True, dtype=bool)
    """

    # NumPy would otherwise add to the object inside of an object array.
    __array_ufunc__ = None

    def __init__(self, value: Any):
        self.value = value

    def __radd__(self, old: Any) -> Any:
        return self.value

    def __repr__(self) -> str:
        return f"NewValue({self.value!r})"

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        """The value as the only child."""
        return ((jax.tree_util.GetAttrKey("value"), self.value),), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> "NewValue":
        """Rebuild it."""
        return cls(*children)


def is_new_value(node: Any) -> bool:
    """Whether a node of an update tree carries a new value."""
    return isinstance(node, NewValue)


class StoredState(NamedTuple):
    """State of `stored_in`.

    Attributes:
        inner: state of the optimizer, its moments rounded.
        master: the master copy in float32 carriers; an empty tuple where there is none.
    """

    inner: Any
    master: Any


def stored(tree: Any, spec: Any, *, target: Target = LABORATORY) -> Any:
    """Return the tree with every float array rounded as ``spec`` stores it.

    An array whose dtype is the format's own (float16, bfloat16) or narrower stays in that dtype;
    others stay in their float as carrier. Use it on initial parameters.

    Shape: that of each leaf. Leaves that are not real floats are returned as they are.

    Special values: those of `npusim.fake_cast`.

    Args:
        tree: a pytree.
        spec: a `npusim.CastSpec`, its fields as a dict, or a format alone.
        target: chip and entry point.

    Example:
        >>> stored({"w": jnp.array([1.1])}, "fp8_e4m3")
        {'w': Array([1.125], dtype=float32)}
    """
    cast_to = as_spec(spec)
    return jax.tree.map(lambda leaf: _rounded(leaf, cast_to, target), tree)


def _rounded(leaf: Any, spec: CastSpec, target: Target) -> Any:
    if not _is_float(leaf):
        return leaf
    x = jnp.asarray(leaf)
    return _into(apply_cast(spec, x, target=target), x.dtype)


def _into(value: jax.Array, dtype: Any) -> jax.Array:
    """A float value in a dtype of its own, rounded in integers where it is not on that grid."""
    if value.dtype == dtype:
        return value
    if dtype in _NARROW:
        narrow = cast(value, dtype, "RINT", "OFF", target=LABORATORY)
        assert isinstance(narrow, jax.Array)
        return narrow
    return value.astype(dtype)


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def stored_in(
    inner: optax.GradientTransformation,
    params: Any = None,
    *,
    master: Any = None,
    moments: Any = None,
    target: Target = LABORATORY,
) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer with parameters and state held in formats, rounded after each update.

    Without a master copy the update is added to the parameters in float32 and the sum rounded to
    ``params``. With one (``master="fp32"``, or a narrower format) the update is added to the copy,
    which lives in the optimizer state, and the visible parameters are the copy rounded to
    ``params``, or to their own dtype where they are float16 or bfloat16 arrays.

    It stands outermost but for `with_loss_scale`: its updates are `NewValue`, which
    `optax.apply_updates` turns into exactly the stored bits. No stochastic rounding.

    Shape: the updates have the structure of the parameters.

    Special values: those of `npusim.fake_cast`. The sum is XLA's float32 sum, in which a subnormal
    parameter counts as zero on CPU.

    Gradient: not meant to be differentiated.

    Args:
        inner: the optimizer; it sees float32 gradients and parameters.
        params: how the visible parameters are stored: a `npusim.CastSpec` (format, mode,
            saturation, scale), its fields as a dict, or a format alone; None: as they are.
        master: how the master copy is stored; None: no copy.
        moments: how arrays of the state that mirror the parameters (moments, traces) are stored;
            None: as the optimizer holds them. Counters are never touched.
        target: chip and entry point of the casts.

    Raises:
        InputError: nothing to store, or an update without ``params``.
        UnknownNameError, CarrierError: from `npusim.CastSpec`.

    Example:
        >>> optimizer = stored_in(optax.sgd(1.0), {"dtype": "bf16", "mode": "TRUNC"})
        >>> weights = jnp.array([1.0])
        >>> updates, _ = optimizer.update(jnp.array([-0.01]), optimizer.init(weights), weights)
        >>> optax.apply_updates(weights, updates)
        Array([1.0078125], dtype=float32)
    """
    if params is None and master is None and moments is None:
        raise InputError(
            message(
                "stored_in without a format",
                "params, master or moments",
                'Pass for example params="bf16".',
            )
        )
    of_params, of_master, of_moments = (
        None if spec is None else as_spec(spec) for spec in (params, master, moments)
    )
    inner = optax.with_extra_args_support(inner)

    def hold(tree: Any) -> Any:
        return tree if of_master is None else stored(tree, of_master, target=target)

    def hold_moments(state: Any) -> Any:
        if of_moments is None:
            return state
        spec = of_moments
        return optax.tree_utils.tree_map_params(inner, lambda m: _rounded(m, spec, target), state)

    def init(params: Any) -> StoredState:
        wide = _widened(params)
        # A copy also where nothing is rounded: a step may donate parameters and state together.
        copy = () if of_master is None else jax.tree.map(jnp.array, hold(wide))
        return StoredState(hold_moments(inner.init(wide if of_master is None else copy)), copy)

    def show(value: Any, old: Any) -> Any:
        if not _is_float(old):
            return value
        if of_params is not None:
            value = apply_cast(of_params, value, target=target)
        return _into(value, jnp.result_type(old))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, StoredState]:
        if params is None:
            raise InputError(
                message(
                    "an update of stored_in without parameters",
                    "the parameters as third argument",
                    "Call update(grads, state, params).",
                )
            )
        start = _widened(params) if of_master is None else state.master
        change, inner_state = inner.update(_widened(updates), state.inner, start, **extra)
        moved = hold(optax.apply_updates(start, change))
        new = jax.tree.map(lambda value, old: NewValue(show(value, old)), moved, params)
        copy = () if of_master is None else moved
        return new, StoredState(hold_moments(inner_state), copy)

    return optax.GradientTransformationExtraArgs(init, update)


def _widened(tree: Any) -> Any:
    """The tree with 16-bit floats as float32, which is exact."""
    return jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.result_type(x) in _NARROW else x, tree
    )
