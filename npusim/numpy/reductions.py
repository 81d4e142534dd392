"""Reductions: one type in, a wider sum, one rounding out."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import dtypes
from npusim.casting.storage import source
from npusim.dtypes import DT_FP32, DataType
from npusim.modes import Target
from npusim.numpy.env import DEFAULT, Env, env, run
from npusim.ops import check_output, operator_row
from npusim.ops.arithmetic import divide
from npusim.promotion import check_conversion

Axis = int | tuple[int, ...] | None


def axes_of(axis: Any) -> Axis:
    """An axis argument as a hashable value."""
    if axis is None:
        return None
    return tuple(int(a) for a in axis) if isinstance(axis, tuple | list) else int(axis)


def _default_integer(own: DataType) -> DataType:
    """The type that integers and bools are summed in: JAX's default integer."""
    if own.kind in ("int", "bool"):
        return dtypes.dtype(jax.dtypes.canonicalize_dtype(np.int64))
    return own


def reduced(name: str, body: Any, a: Any, own: DataType, out: Any, at: Env, **options: Any) -> Any:
    """Bring ``a`` to ``own``, reduce it, and convert the result."""
    row = operator_row(name, at.target.soc, own)
    wanted = row.result if out is None else dtypes.dtype(out)
    check_output(row, wanted, at.rules)
    return run(row, at, body, [source(a)[0]], out=wanted, **options)


def sum_of(x: Array, axis: Axis, keepdims: bool) -> Array:
    """The sum, in the type of x (XLA's order)."""
    return jnp.sum(x, axis, dtype=x.dtype, keepdims=keepdims)


def sum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the sum over axes: fp16 and bf16 are summed in fp32 and rounded once.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: the sum of nothing is 0; integers wrap.

    Gradient: that of the sum; the rounding is straight-through.

    Args:
        a: array or number.
        axis: axis or axes; None: all.
        dtype: the type that ``a`` is cast to before, and of the result; by default that of ``a``,
            for integers and bools JAX's default integer.
        keepdims: keep the axes.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: hicann/ops-math reduce_sum; CANN 8.1 reduce_sum. The order of the sum is XLA's.

    Example:
        >>> sum(jnp.full(512, 1.0, jnp.float16)), sum(jnp.array([True, True]))
        (Array(512., dtype=float16), Array(2, dtype=int32))
    """
    at = env(target, rules)
    own = _default_integer(source(a)[1]) if dtype is None else dtypes.dtype(dtype)
    return reduced("sum", sum_of, a, own, None, at, axis=axes_of(axis), keepdims=keepdims)


def _count(shape: tuple[int, ...], axis: Axis) -> int:
    axes = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(shape[i] for i in axes)


def mean_of(x: Array, axis: Axis, keepdims: bool, scale_first: bool = False) -> Array:
    """The mean, by a product with 1/N before or after the sum."""
    count = _count(x.shape, axis)
    part = jnp.real(x).dtype if jnp.issubdtype(x.dtype, np.complexfloating) else x.dtype
    share = divide(jnp.ones((), part), jnp.asarray(count, part)) if count else jnp.nan
    scale = jnp.asarray(share, x.dtype)
    if scale_first:
        return sum_of(x * scale, axis, keepdims)
    return sum_of(x, axis, keepdims) * scale


def mean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the mean over axes: on 950 the sum times 1/N, on A2/A3 the sum of x times 1/N.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: the mean of nothing is NaN.

    Gradient: that of the mean; the rounding is straight-through.

    Args:
        a: array or number.
        axis: axis or axes; None: all.
        dtype: the type that ``a`` is cast to before, and of the result; by default that of ``a``,
            fp32 for integers and bools.
        keepdims: keep the axes.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        ConversionError: ``a`` does not convert to ``dtype``.
        InputError: a type that the operator does not take.

    Source: hicann/ops-math reduce_mean; CANN 8.1 reduce_mean_d. The order of the sum is XLA's.

    Example:
        >>> mean(jnp.array([65504.0, -65504.0, 1.0, 3.0], jnp.float16))
        Array(1., dtype=float16)
    """
    at = env(target, rules)
    given = source(a)[1]
    own = DT_FP32 if given.kind in ("int", "bool") else given
    if dtype is not None:
        own = dtypes.dtype(dtype)
        check_conversion(given, own, at.rules)
    first = operator_row("mean", at.target.soc, own).form == "scale_first"
    return reduced(
        "mean", mean_of, a, own, None, at, axis=axes_of(axis), keepdims=keepdims, scale_first=first
    )


def var_of(x: Array, axis: Axis, ddof: int, keepdims: bool) -> Array:
    """The variance in two passes."""
    centred = x - mean_of(x, axis, True)
    total = sum_of(centred * centred, axis, keepdims)
    return divide(total, jnp.asarray(_count(x.shape, axis) - ddof, x.dtype))


def var(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    *,
    ddof: int = 0,
    keepdims: bool = False,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the variance over axes, in two passes in the compute type, rounded once.

    Shape: ``a`` without the axes, or with length 1 there.

    Special values: NaN for fewer than ``ddof + 1`` elements.

    Gradient: that of the variance; the rounding is straight-through.

    Args:
        a: array or number.
        axis: axis or axes; None: all.
        dtype: type of the result; by default that of ``a``, fp32 for integers and bools.
        ddof: subtracted from the number of elements.
        keepdims: keep the axes.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.
        ConversionError: an output type that the result does not become.

    Source: the operator's rows (assumed).

    Example:
        >>> var(jnp.array([1.0, 2.0, 3.0, 4.0], jnp.bfloat16))
        Array(1.25, dtype=bfloat16)
    """
    own = source(a)[1]
    own = DT_FP32 if own.kind in ("int", "bool") else own
    at = env(target, rules)
    options = {"axis": axes_of(axis), "ddof": int(ddof), "keepdims": keepdims}
    return reduced("var", var_of, a, own, dtype, at, **options)


def _running_sum(x: Array, axis: int | None) -> Array:
    flat = x.ravel() if axis is None else x
    return jnp.cumsum(flat, 0 if axis is None else axis, dtype=x.dtype)


def cumsum(
    a: Any,
    axis: int | None = None,
    dtype: Any = None,
    *,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return running sums: fp16 and bf16 in fp32, every element rounded once.

    Shape: that of ``a``; flat if ``axis`` is None.

    Special values: integers wrap.

    Gradient: that of the sums; the rounding is straight-through.

    Args:
        a: array or number.
        axis: the axis; None: of the flattened array.
        dtype: as for `sum`.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> cumsum(jnp.array([256.0, 1.0, 1.0], jnp.bfloat16))
        Array([256, 256, 258], dtype=bfloat16)
    """
    own = _default_integer(source(a)[1]) if dtype is None else dtypes.dtype(dtype)
    axis = None if axis is None else int(axis)
    return reduced("cumsum", _running_sum, a, own, None, env(target, rules), axis=axis)
