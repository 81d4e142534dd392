"""Reductions that pick or test elements and compute none."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from npusim.casting.storage import source
from npusim.modes import Target
from npusim.numpy.env import DEFAULT, env
from npusim.numpy.reductions import Axis, axes_of, reduced
from npusim.ops import operator_row


def _largest(x: Array, axis: Axis, keepdims: bool) -> Array:
    return jnp.max(x, axis, keepdims=keepdims)


def _smallest(x: Array, axis: Axis, keepdims: bool) -> Array:
    return jnp.min(x, axis, keepdims=keepdims)


def max(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the largest element over axes.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: NaN if there is one.

    Gradient: to the largest elements, in equal shares.

    Args:
        a: array or number.
        axis: axis or axes; None: all.
        keepdims: keep the axes.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> max(jnp.array([[1, 5], [7, 2]], jnp.int8), axis=1)
        Array([5, 7], dtype=int8)
    """
    own = source(a)[1]
    at = env(target, rules)
    return reduced("max", _largest, a, own, None, at, axis=axes_of(axis), keepdims=keepdims)


def min(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the smallest element over axes; see `max`.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: NaN if there is one.

    Gradient: to the smallest elements, in equal shares.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> min(jnp.array([[1, 5], [7, 2]], jnp.int8), axis=1)
        Array([1, 2], dtype=int8)
    """
    own = source(a)[1]
    at = env(target, rules)
    return reduced("min", _smallest, a, own, None, at, axis=axes_of(axis), keepdims=keepdims)


def argmax(
    a: Any,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Array:
    """Return where the largest element is, the first of equal ones, as JAX's default integer.

    Shape: ``a`` without the axis, or with length 1 there.

    Special values: the first NaN if there is one.

    Gradient: none.

    Args:
        a: array or number.
        axis: the axis; None: of the flattened array.
        keepdims: keep the axis.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> argmax(jnp.array([3, 9, 9], jnp.uint8))
        Array(1, dtype=int32)
    """
    at = env(target, rules)
    own = source(a)[1]
    operator_row("argmax", at.target.soc, own)
    return jnp.argmax(jnp.asarray(source(a)[0]), axis, keepdims=keepdims)


def argmin(
    a: Any,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Array:
    """Return where the smallest element is; see `argmax`.

    Shape: ``a`` without the axis, or with length 1 there.

    Special values: the first NaN if there is one.

    Gradient: none.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> argmin(jnp.array([3, 1, 9], jnp.uint8))
        Array(1, dtype=int32)
    """
    at = env(target, rules)
    own = source(a)[1]
    operator_row("argmin", at.target.soc, own)
    return jnp.argmin(jnp.asarray(source(a)[0]), axis, keepdims=keepdims)


def _any(x: Array, axis: Axis, keepdims: bool) -> Array:
    return jnp.any(x, axis, keepdims=keepdims)


def _all(x: Array, axis: Axis, keepdims: bool) -> Array:
    return jnp.all(x, axis, keepdims=keepdims)


def any(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Array:
    """Return whether an element over axes is unequal to 0.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: NaN is unequal to 0; nothing gives False.

    Gradient: none.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> any(jnp.array([[0, 0], [0, 3]], jnp.int8), axis=1)
        Array([False,  True], dtype=bool)
    """
    at = env(target, rules)
    return reduced("any", _any, a, source(a)[1], None, at, axis=axes_of(axis), keepdims=keepdims)


def all(
    a: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Array:
    """Return whether every element over axes is unequal to 0.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: NaN is unequal to 0; nothing gives True.

    Gradient: none.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> all(jnp.array([[1, 0], [2, 3]], jnp.int8), axis=1)
        Array([False,  True], dtype=bool)
    """
    at = env(target, rules)
    return reduced("all", _all, a, source(a)[1], None, at, axis=axes_of(axis), keepdims=keepdims)
