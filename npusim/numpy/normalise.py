"""Operators that the NPU runs as one: 16 bits in, float32 inside, 16 bits out."""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from npusim import dtypes
from npusim._errors import InputError, message
from npusim.casting import cast
from npusim.casting.storage import source
from npusim.dtypes import DT_FP16, DT_FP32
from npusim.modes import LABORATORY, Target
from npusim.numpy.bodies import rsqrt
from npusim.numpy.env import DEFAULT, Env, env, run
from npusim.numpy.reductions import Axis, mean_of, reduced, sum_of
from npusim.ops import operator_row
from npusim.ops.arithmetic import divide


def _softmax(x: Array, axis: Axis, half_shift: bool, saturate: bool) -> Array:
    shifted = _shifted(x, axis)
    if half_shift:
        rounded = cast(shifted, DT_FP16, "RINT", saturate, target=LABORATORY)
        assert isinstance(rounded, Array)
        shifted = rounded.astype(x.dtype)
    powers = jnp.exp(shifted)
    return divide(powers, sum_of(powers, axis, True))


def _shifted(x: Array, axis: Axis) -> Array:
    return x - lax.stop_gradient(jnp.max(x, axis, keepdims=True))


def _log_softmax(x: Array, axis: Axis) -> Array:
    shifted = _shifted(x, axis)
    return shifted - jnp.log(sum_of(jnp.exp(shifted), axis, True))


def softmax(
    x: Any,
    axis: int = -1,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return exp(x - max) over its sum along an axis.

    On A2/A3 fp16 subtracts the maximum in half, and continues in fp32; everything else is fp32
    throughout, rounded once.

    Shape: that of ``x``.

    Special values: NaN where the axis holds NaN or +inf, or -inf alone.

    Gradient: that of the function; roundings are straight-through.

    Args:
        x: a float array.
        axis: the axis.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: CANN 8.1 softmax_v2; hicann/ops-nn softmax.

    Example:
        >>> softmax(jnp.array([0.0, 0.0, 0.0, 0.0], jnp.float16))
        Array([0.25, 0.25, 0.25, 0.25], dtype=float16)
    """
    at = env(target, rules)
    own = source(x)[1]
    half = operator_row("softmax", at.target.soc, own).form == "half_shift"
    options = {"axis": int(axis), "half_shift": half, "saturate": at.saturate}
    return reduced("softmax", _softmax, x, own, dtype, at, **options)


def log_softmax(
    x: Any,
    axis: int = -1,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return the logarithm of the softmax along an axis, computed in fp32.

    Shape: that of ``x``.

    Special values: NaN where the axis holds NaN or +inf, or -inf alone.

    Gradient: that of the function; roundings are straight-through.

    Args:
        x: a float array.
        axis: the axis.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take.

    Source: the operator's rows (assumed).

    Example:
        >>> log_softmax(jnp.array([0.0, 0.0], jnp.float16))
        Array([-0.6934, -0.6934], dtype=float16)
    """
    own = source(x)[1]
    at = env(target, rules)
    return reduced("log_softmax", _log_softmax, x, own, dtype, at, axis=int(axis))


def _layer_norm(
    x: Array, *parameters: Array, axis: Axis, eps: float, weighted: bool, centred: bool
) -> Array:
    if centred:
        x = x - mean_of(x, axis, True)
    scale = rsqrt(mean_of(x * x, axis, True) + jnp.asarray(eps, x.dtype))
    rest = list(parameters)
    x = x * scale
    if weighted:
        x = x * rest.pop(0)
    return x + rest.pop(0) if rest else x


def _normalised(
    name: str, x: Any, weight: Any, bias: Any, axis: Any, eps: float, dtype: Any, at: Env
) -> Any:
    own = source(x)[1]
    row = operator_row(name, at.target.soc, own)
    given = [p for p in (weight, bias) if p is not None]
    kinds = [source(p)[1] for p in given]
    if any(kind not in (own, DT_FP32) for kind in kinds) or len(set(kinds)) > 1:
        raise InputError(
            message(
                f"weight and bias of types {', '.join(map(str, kinds))} for {name} of {own}",
                f"both fp32, or both {own}",
                "Cast them first with npusim.cast.",
            )
        )
    axes = tuple(int(a) for a in axis) if isinstance(axis, tuple | list) else int(axis)
    options = {
        "axis": axes,
        "eps": float(eps),
        "weighted": weight is not None,
        "centred": name == "layer_norm",
    }
    out = None if dtype is None else dtypes.dtype(dtype)
    operands = [source(p)[0] for p in (x, *given)]
    return run(row, at, _layer_norm, operands, out=out, brings=False, **options)


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    eps: float = 1e-5,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return ``(x - mean) / sqrt(var + eps) * weight + bias``, in fp32, rounded once.

    Shape: that of ``x``; weight and bias broadcast against it.

    Special values: those of fp32 arithmetic.

    Gradient: that of the function; roundings are straight-through.

    Args:
        x: a float array.
        weight: fp32, or the type of ``x``.
        bias: of the type of ``weight``.
        axis: axis or axes that are normalised.
        eps: added to the variance.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take, of ``x`` or the parameters.

    Source: CANN 8.1 layer_norm; hicann/ops-nn layer_norm.

    Example:
        >>> layer_norm(jnp.array([-1.0, 1.0, -1.0, 1.0], jnp.float16), eps=0.0)
        Array([-1.,  1., -1.,  1.], dtype=float16)
    """
    return _normalised("layer_norm", x, weight, bias, axis, eps, dtype, env(target, rules))


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    axis: int | tuple[int, ...] = -1,
    eps: float = 1e-6,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return ``x / sqrt(mean(x^2) + eps) * weight``, in fp32, rounded once.

    Shape: that of ``x``; weight broadcasts against it.

    Special values: those of fp32 arithmetic.

    Gradient: that of the function; roundings are straight-through.

    Args:
        x: a float array.
        weight: fp32, or the type of ``x``.
        axis: axis or axes that are normalised.
        eps: added to the mean square.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: a type that the operator does not take, of ``x`` or the weight.

    Source: the operator's rows (assumed).

    Example:
        >>> rms_norm(jnp.array([-2.0, 2.0], jnp.bfloat16), eps=0.0)
        Array([-1, 1], dtype=bfloat16)
    """
    return _normalised("rms_norm", x, weight, None, axis, eps, dtype, env(target, rules))
