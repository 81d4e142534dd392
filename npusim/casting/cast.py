"""`cast`: a value of one type to a value of another, as a chip's entry point does it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from npusim import dtypes, numerics
from npusim._errors import InputError, TracedValueError, message
from npusim.casting.array import array
from npusim.casting.npuarray import NpuArray, check_packable
from npusim.casting.resolve import (
    PYPTO,
    ResolvedCast,
    check_target,
    resolve_cast,
    warn_fallback,
)
from npusim.casting.run import run_compiled
from npusim.casting.storage import check_x64, parts, source, store
from npusim.dtypes import DT_FP16, DataType
from npusim.modes import CastMode, SaturationMode, Target
from npusim.numerics import FormatParams

_MAX_RANK = 4
_INT32_MAX = (1 << 31) - 1


def cast(
    x: Any,
    dtype: Any,
    mode: CastMode | str | None = None,
    satmode: SaturationMode | str | bool | None = None,
    *,
    target: Target = PYPTO,
    deqscale: Any = 1.0,
    packed: bool = False,
) -> Array | NpuArray:
    """Cast to another type, bit for bit as ``target`` does it.

    Shape: that of ``x``; the last axis halves with ``packed``.

    Special values: float to integer: NaN becomes 0, infinities MAX and MIN (pypto with OFF: -1
    and 0 for FP32 -> INT16, FP16 -> INT16 and FP16 -> INT8). Float to float: an overflow, which
    begins where the value rounded with unbounded exponent exceeds MAX, becomes inf (NaN in FP8
    E4M3) or, saturating, MAX; NaN stays or, saturating, becomes +0; FP32 and wider never saturate,
    FP4 always does. -0 stays where the destination has it. Subnormals are kept.

    Gradient: straight-through between float types (and between complex types); none for integers
    and NpuArrays.

    Args:
        x: a jax.Array, NumPy array, NpuArray or Python number.
        dtype: destination: a DataType or any name of one.
        mode: rounding; None: the entry point's default (pypto and ascendc NONE, laboratory RINT;
            aclnn has none).
        satmode: saturation; None: the entry point's default (pypto OFF, ascendc and laboratory
            ON; aclnn has none).
        target: chip and entry point.
        deqscale: scale of INT32 -> FP16 (deq mode), rounded to half; a number or an array that
            broadcasts against ``x``.
        packed: two 4-bit elements to a byte, element 0 in the low nibble.

    Returns:
        A jax.Array where JAX has a sound dtype, otherwise an NpuArray (HF8, FP4, INT4, FP8E8M0,
        COMPLEX32). HF32 is a float32 array.

    Raises:
        UnsupportedCastError: the target lacks the pair or the mode.
        InputError: not an array of numbers; an odd last axis to pack; under pypto an empty
            array, rank 0 or above 4, or more than INT32_MAX elements; a deqscale that has no use.
        X64RequiredError: a 64-bit type while x64 is off.
        TracedValueError: a traced ``dtype``, ``mode`` or ``satmode``.

    Warns:
        CastFallbackWarning: under pypto, a mode the pair does not take.

    Source: pypto.cast page; Ascend C precision conversion page and Cast pages; aclnnCast.

    Example:
        >>> import npusim as npu
        >>> x = jnp.array([300.0, -300.0, 50.0], jnp.float16)
        >>> npu.cast(x, "int8", satmode="OFF")
        Array([ 44, -44,  50], dtype=int8)
        >>> npu.cast(x, "int8", satmode="ON")
        Array([ 127, -128,   50], dtype=int8)
    """
    fmt = static_dtype(dtype, "cast")
    check_static(mode=mode, satmode=satmode)
    check_target(target)
    x, src = source(x)
    if target.api == "pypto":
        _check_pypto_input(x.shape)
    resolved = resolve_cast(src, fmt, mode, satmode, target)
    warn_fallback(resolved, stacklevel=3)
    if packed:
        check_packable(fmt)
        _check_even(x.shape)
    check_x64(fmt, "a result")
    for step in resolved.steps[:-1]:
        check_x64(step.dst, "an intermediate result")
    scale = _deqscale(deqscale, resolved)
    if not resolved.steps:
        return _as_given(x, fmt, packed)
    return _cast(x, resolved, scale, packed)


def check_static(**values: Any) -> None:
    """Raise TracedValueError for an argument that must be known at trace time and is not."""
    for name, value in values.items():
        if isinstance(value, Tracer | jax.Array):
            raise TracedValueError(
                message(
                    f"{name} as a traced value",
                    f"a static {name}",
                    "Mark the argument static in jax.jit, or pass npusim.FormatParams, which may "
                    "be traced, as the dtype of npusim.fake_cast.",
                )
            )


def static_dtype(dtype: Any, what: str) -> DataType:
    """The DataType that ``dtype`` names; FormatParams and traced values are refused."""
    if isinstance(dtype, FormatParams):
        raise TracedValueError(
            message(
                f"FormatParams as the destination of {what}",
                "a data type or its name",
                "The storage form needs a static type; npusim.fake_cast takes FormatParams.",
            )
        )
    check_static(dtype=dtype)
    return dtypes.dtype(dtype)


def _check_pypto_input(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape, dtype=np.float64))
    if 1 <= len(shape) <= _MAX_RANK and 0 < size <= _INT32_MAX:
        return
    raise InputError(
        message(
            f"shape {tuple(shape)} for pypto.cast",
            f"rank 1 to {_MAX_RANK}, not empty, at most {_INT32_MAX} elements",
            "Reshape the array, or use another entry point, e.g. Target(api='numerics').",
        )
    )


def _check_even(shape: tuple[int, ...]) -> None:
    if not shape or shape[-1] % 2:
        axis = f"axis {len(shape) - 1} has length {shape[-1]}" if shape else "it has no axis"
        raise InputError(
            message(
                f"shape {tuple(shape)} to pack two to a byte ({axis})",
                "an even length of the last axis",
                "Pad the last axis by one element (jnp.pad), or pass packed=False.",
            )
        )


def _deqscale(deqscale: Any, resolved: ResolvedCast) -> Array | None:
    if any(step.kind == "deq" for step in resolved.steps):
        if isinstance(deqscale, jax.Array):
            value, _ = numerics.quantize(
                deqscale.astype(jnp.float32), DT_FP16, CastMode.CAST_RINT, False
            )
            return value
        half = array(np.asarray(deqscale), DT_FP16)
        assert isinstance(half, jax.Array)
        return half.astype(jnp.float32)
    if isinstance(deqscale, int | float) and deqscale == 1.0:
        return None
    raise InputError(
        message(
            f"deqscale for {resolved.src} -> {resolved.dst} on {resolved.target}",
            "a deqscale for int32 -> fp16 under pypto and ascendc only",
            "Leave deqscale out, or multiply by the scale yourself.",
        )
    )


def _as_given(x: Any, fmt: DataType, packed: bool) -> Array | NpuArray:
    if isinstance(x, NpuArray):
        return x.pack() if packed else x.unpack()
    if fmt.stored_as == "codes":
        return store(parts(x, fmt), fmt, packed)
    return jnp.asarray(x)


def _cast(x: Any, resolved: ResolvedCast, scale: Array | None, packed: bool) -> Array | NpuArray:
    src, dst = resolved.src, resolved.dst
    differentiable = src.kind in ("float", "complex") and dst.kind == src.kind
    if differentiable and dst.stored_as == "jax" and not isinstance(x, NpuArray):
        return _straight_through(resolved, jnp.asarray(x))
    return store(_run(x, resolved, scale), dst, packed)


def _run(x: Any, resolved: ResolvedCast, scale: Array | None):
    return run_compiled(parts(x, resolved.src), resolved.steps, str(resolved.target.soc), scale)


def _forward(resolved: ResolvedCast, x: Array) -> Array:
    out = store(_run(x, resolved, None), resolved.dst)
    assert isinstance(out, jax.Array)
    return out


_straight_through = jax.custom_jvp(_forward, nondiff_argnums=(0,))


@_straight_through.defjvp
def _straight_through_jvp(resolved: ResolvedCast, primals, tangents):
    (x,), (tangent,) = primals, tangents
    out = _straight_through(resolved, x)
    return out, tangent.astype(out.dtype)
