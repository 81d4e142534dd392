"""Codes of a format and the float32 words of their values: both ways, total, by integers."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim._grids import FloatGrid, ScaleGrid, TaperedGrid
from npusim.numerics import words
from npusim.numerics.words import F32, NAN32, unsigned

_TOP = F32.mantissa_bits


def decode_words(codes: Array, grid: FloatGrid | TaperedGrid | ScaleGrid, bits: int) -> Array:
    """Float32 words of the values of ``codes``; NaN becomes the canonical NaN.

    Args:
        codes: unsigned codes, one an element.
        grid: a grid whose every value is a float32.
        bits: width of a code.
    """
    code = codes.astype(np.uint32)
    if isinstance(grid, ScaleGrid):
        word = jnp.where(code == 0, np.uint32(1 << (_TOP - 1)), code << np.uint32(_TOP))
        return jnp.where(code == np.uint32(grid.nan_code), NAN32, word)
    sign = code >> np.uint32(bits - 1)
    size = code & np.uint32((1 << (bits - 1)) - 1)
    if isinstance(grid, TaperedGrid):
        word = _decode_tapered(size)
        word = word | (sign << np.uint32(31))
        word = jnp.where(size == grid.inf_code, F32.inf | (sign << np.uint32(31)), word)
        word = jnp.where(code == 0, np.uint32(0), word)
        return jnp.where(code == np.uint32(grid.nan_code), NAN32, word)
    fraction_bits = np.uint32(grid.mantissa_bits)
    up = np.uint32(_TOP) - fraction_bits
    rebias = F32.bias - grid.bias
    word = (size << up) + np.uint32(rebias << _TOP)
    if rebias:  # else the subnormals of both coincide
        subnormal = words.scaled_integer(size, grid.min_exponent - grid.mantissa_bits, F32)
        word = jnp.where(size < np.uint32(1 << grid.mantissa_bits), subnormal, word)
    if grid.inf_code is not None:
        word = jnp.where(size == np.uint32(grid.inf_code), F32.inf, word)
    word = word | (sign << np.uint32(31))
    if grid.nan_code is not None:
        word = jnp.where(size > np.uint32(_last_number(grid)), NAN32, word)
    return word


def _last_number(grid: FloatGrid) -> int:
    """The largest magnitude code that is not NaN."""
    return grid.max_code if grid.inf_code is None else grid.inf_code


def encode_words(word: Array, grid: FloatGrid | TaperedGrid | ScaleGrid, bits: int) -> Array:
    """Codes of float32 words that lie on the grid; the inverse of `decode_words`."""
    magnitude = word & F32.magnitude
    sign = word >> np.uint32(31)
    if isinstance(grid, ScaleGrid):
        return (magnitude >> np.uint32(_TOP)).astype(unsigned(bits))
    if isinstance(grid, TaperedGrid):
        code = _encode_tapered(magnitude) | (sign << np.uint32(bits - 1))
        code = jnp.where(magnitude == 0, np.uint32(0), code)
        inf = np.uint32(grid.inf_code) | (sign << np.uint32(bits - 1))
        code = jnp.where(magnitude == F32.inf, inf, code)
        code = jnp.where(magnitude > F32.inf, np.uint32(grid.nan_code), code)
        return code.astype(unsigned(bits))
    down = np.uint32(_TOP - grid.mantissa_bits)
    rebias = F32.bias - grid.bias
    code = (magnitude >> down) - np.uint32(rebias << grid.mantissa_bits)
    if rebias:
        field = (magnitude >> np.uint32(_TOP)).astype(np.int32)
        shift = np.int32(_TOP - grid.mantissa_bits + 1 + rebias) - field
        significand = (magnitude & F32.fraction) | F32.implicit
        subnormal = significand >> jnp.clip(shift, 0, 31).astype(np.uint32)
        code = jnp.where(field > np.int32(rebias), code, subnormal)
    if grid.inf_code is not None:
        code = jnp.where(magnitude == F32.inf, np.uint32(grid.inf_code), code)
    code = code | (sign << np.uint32(bits - 1))
    if grid.nan_code is not None:
        code = jnp.where(magnitude > F32.inf, np.uint32(grid.nan_code), code)
    return code.astype(unsigned(bits))


# HiFloat8 after its sign bit: a prefix that tells the width of the exponent, the exponent's sign
# and its magnitude without the leading one, then the fraction:
#   0000 mmm     2**(m - 23), m = 1..7           01 s b mmm    |exponent| 2, 3
#   0001 mmm     exponent 0                      10 s bb mm    |exponent| 4..7
#   001 s mmm    |exponent| 1                    11 s bbb m    |exponent| 8..15
# Rows: smallest |exponent|, prefix bits, position of the exponent's sign, fraction bits.
_TAPER = ((1, 0x10, 3, 3), (2, 0x20, 4, 3), (4, 0x40, 4, 2), (8, 0x60, 4, 1))


def _decode_tapered(size: Array) -> Array:
    exponent = jnp.where(size < 8, size.astype(np.int32) - np.int32(23), np.int32(0))
    fraction = jnp.where(size < 8, np.uint32(0), (size & np.uint32(7)) << np.uint32(_TOP - 3))
    for least, prefix, sign_at, fraction_bits in _TAPER:
        below = size & np.uint32((1 << sign_at) - 1)
        high = (below >> np.uint32(fraction_bits)).astype(np.int32) + np.int32(least)
        minus = (size >> np.uint32(sign_at)) & np.uint32(1)
        here = size >= np.uint32(prefix)
        exponent = jnp.where(here, jnp.where(minus != 0, -high, high), exponent)
        low = size & np.uint32((1 << fraction_bits) - 1)
        fraction = jnp.where(here, low << np.uint32(_TOP - fraction_bits), fraction)
    field = (exponent + np.int32(F32.bias)).astype(np.uint32)
    return (field << np.uint32(_TOP)) | fraction


def _encode_tapered(magnitude: Array) -> Array:
    exponent = (magnitude >> np.uint32(_TOP)).astype(np.int32) - np.int32(F32.bias)
    distance = jnp.abs(exponent)
    fraction = magnitude & F32.fraction
    code = np.uint32(0x08) | (fraction >> np.uint32(_TOP - 3))
    minus = (exponent < 0).astype(np.uint32)
    for least, prefix, sign_at, fraction_bits in _TAPER:
        high = (distance - np.int32(least)).astype(np.uint32) << np.uint32(fraction_bits)
        low = fraction >> np.uint32(_TOP - fraction_bits)
        tapered = np.uint32(prefix) | (minus << np.uint32(sign_at)) | high | low
        code = jnp.where(distance >= least, tapered, code)
    return jnp.where(exponent < -15, (exponent + np.int32(23)).astype(np.uint32), code)
