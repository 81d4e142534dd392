"""HYBRID rounding to HiFloat8: the source's own low bits decide, so it is deterministic."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim.numerics.words import F32

_OVERFLOW = np.uint32(0x4720_0000)  # 40960: from here on every mode overflows
_BEYOND_MAX = np.uint32(0x4740_0000)  # 49152 stands for "above 32768"
_SMALLEST = np.uint32((F32.bias - 22) << 23)  # 2**-22
_HALF_LSB_SHIFT = 13  # bit 0 of a half's fraction within a float32 word


def hybrid_magnitude(magnitude: Array, from_half: bool) -> Array:
    """Round float32 magnitude words to the HiFloat8 grid by CAST_HYBRID.

    For exponents -3 to 3 this is CAST_ROUND. Elsewhere the bits after the kept ones (14 for a
    float, 2 for a half) are compared with a threshold out of the source's own low bits: bits 13..0
    of a float, {bit 0 of the original fraction, 1} of a half; "greater or equal" carries. A float
    whose low 14 bits are zero therefore moves up even if it is exact: 16.0 becomes 20.0.

    Source: Ascend C Reg Cast page, float to hifloat8 and half to hifloat8; magnitudes from 40960
    on overflow first (vendor emulation).
    """
    field = (magnitude >> np.uint32(23)).astype(np.int32)
    exponent = field - np.int32(F32.bias)
    distance = jnp.abs(exponent)
    below = exponent < -15
    kept = (
        np.int32(3)
        - (distance > 3).astype(np.int32)
        - (distance > 7).astype(np.int32)
        - below.astype(np.int32)
    )
    drop = np.int32(23) - kept + jnp.maximum(np.int32(-22) - exponent, 0)
    drop = jnp.minimum(drop, 25).astype(np.uint32)
    significand = (magnitude & F32.fraction) | F32.implicit
    if from_half:
        window = np.uint32(2)
        threshold = _half_threshold(magnitude, field)
    else:
        window = np.uint32(14)
        threshold = magnitude & np.uint32((1 << 14) - 1)
    following = (significand >> (drop - window)) & ((np.uint32(1) << window) - np.uint32(1))
    first = (significand >> (drop - np.uint32(1))) & np.uint32(1)
    up = jnp.where(distance <= 3, first != 0, following >= threshold).astype(np.uint32)
    mask = (np.uint32(1) << drop) - np.uint32(1)
    normal = (magnitude & ~mask) + (up << drop)
    # drop 24: between 2**-23 and 2**-22, to the smallest value or to zero; 25: to zero.
    tiny = jnp.where((drop == 24) & (up != 0), _SMALLEST, np.uint32(0))
    out = jnp.where(drop > 23, tiny, normal)
    return jnp.where(magnitude >= _OVERFLOW, jnp.maximum(magnitude, _BEYOND_MAX), out)


def _half_threshold(magnitude: Array, field: Array) -> Array:
    """{bit 0 of the half's stored fraction, 1}; a half subnormal sits shifted in float32."""
    # A half's lowest bit weighs 2**-24 among its subnormals, 2**(exponent - 10) above.
    behind = jnp.clip(np.int32(F32.bias - 14) - field, 0, 10)
    significand = (magnitude & F32.fraction) | F32.implicit
    low = (significand >> (behind + np.int32(_HALF_LSB_SHIFT)).astype(np.uint32)) & np.uint32(1)
    return (low << np.uint32(1)) | np.uint32(1)
