"""Multiplying and dividing by a scale without losing a subnormal.

XLA flushes float32 subnormals in every float operation on CPU, so exponents are moved in integers
and only significands in [1, 2) meet in a float product. Where nothing lies below 2**-126 the
results are those of the plain float32 product and quotient, bit for bit.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Scalar = Any

_SIGN = np.uint32(0x8000_0000)
_INF = np.uint32(0x7F80_0000)
_ONE = np.uint32(0x3F80_0000)
_FRACTION = np.uint32(0x007F_FFFF)
_HIDDEN = np.uint32(0x0080_0000)
_MAX = np.uint32(0x7F7F_FFFF)
_BIAS = np.int32(127)
_SUBNORMAL = np.int32(149)  # a subnormal is its fraction times 2**-149


def word(x: jax.Array) -> jax.Array:
    """Return the bits of a float32 array."""
    return lax.bitcast_convert_type(x, jnp.uint32)


def value(bits: jax.Array) -> jax.Array:
    """Return the float32 array with these bits."""
    return lax.bitcast_convert_type(bits, jnp.float32)


def split(magnitude: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the word of the significand in [1, 2) and the exponent of a magnitude word.

    Shape: any; both results have it.
    Special values: zero gives significand 1 and an exponent that means nothing; the caller decides.
    """
    # A subnormal's fraction is an integer below 2**23, which becomes a float exactly.
    subnormal = magnitude < _HIDDEN
    normal = jnp.where(subnormal, word(magnitude.astype(jnp.float32)), magnitude)
    exponent = (normal >> np.uint32(23)).astype(jnp.int32) - _BIAS
    exponent = exponent - jnp.where(subnormal, _SUBNORMAL, np.int32(0))
    return _ONE | (normal & _FRACTION), exponent


def shift(x: jax.Array, exponent: Scalar) -> jax.Array:
    """Return ``x * 2**exponent``, rounded to nearest even where the result is subnormal.

    Shape: that of ``x``; ``exponent`` is an int32 scalar or an array of the same shape.
    Special values: zeros, infinities and NaN are returned as they are; overflow gives infinity.
    Gradient: none (integer arithmetic); callers define their own.

    Example:
        >>> float(shift(jnp.float32(1.5), -140)) == 1.5 * 2.0**-140
        True
    """
    bits = word(x)
    magnitude = bits & ~_SIGN
    significand, own = split(magnitude)
    biased = own + jnp.asarray(exponent, jnp.int32) + _BIAS
    fraction = significand & _FRACTION
    in_range = jnp.clip(biased, 1, 254).astype(jnp.uint32)
    normal = (in_range << np.uint32(23)) | fraction
    drop = jnp.clip(1 - biased, 1, 25).astype(jnp.uint32)
    whole = fraction | _HIDDEN
    odd = (whole >> drop) & np.uint32(1)
    half = np.uint32(1) << (drop - np.uint32(1))
    small = (whole + half - np.uint32(1) + odd) >> drop
    moved = jnp.where(biased > 254, _INF, jnp.where(biased < 1, small, normal))
    special = (magnitude == 0) | (magnitude >= _INF)
    return value((bits & _SIGN) | jnp.where(special, magnitude, moved))


def times(x: jax.Array, factor: Scalar, exponent: Scalar) -> jax.Array:
    """Return ``x * factor * 2**exponent`` with one float32 product between significands.

    Shape: that of ``x``; ``factor`` is a positive, moderate float32 scalar.
    Special values: zeros, infinities and NaN of ``x`` are returned as they are.

    Example:
        >>> float(times(jnp.float32(2.0**-140), 3.0, 0)) == 3 * 2.0**-140
        True
    """
    return _significands(x, exponent, lambda s: s * jnp.asarray(factor, jnp.float32))


def divided(x: jax.Array, divisor: float) -> jax.Array:
    """Return ``x / divisor`` for a static positive divisor, correctly rounded.

    A power of two moves the exponent, which is exact. For any other divisor XLA would multiply by
    the reciprocal; the divisor is therefore made to look like data.

    Example:
        >>> float(divided(jnp.float32(1.0), 3.0)) == float(np.float32(1) / np.float32(3))
        True
    """
    significand, exponent = parts(divisor)
    if significand == 1.0:
        return shift(x, -exponent)
    return _significands(x, -exponent, lambda s: quotient(s, significand))


def multiplied(x: jax.Array, factor: float) -> jax.Array:
    """Return ``x * factor`` for a static positive factor; a power of two is exact."""
    significand, exponent = parts(factor)
    return shift(x, exponent) if significand == 1.0 else times(x, significand, exponent)


def parts(number: float) -> tuple[float, int]:
    """Return significand in [1, 2) and exponent of a positive number."""
    mantissa, exponent = math.frexp(float(np.float32(number)))
    return mantissa * 2, exponent - 1


def quotient(numerator: jax.Array, divisor: Scalar) -> jax.Array:
    """Return ``numerator / divisor`` by IEEE division; ``numerator`` must be positive or zero.

    XLA turns division by a constant, or by a broadcast scalar, into multiplication by its
    reciprocal. Adding the numerator's sign bit, which is 0, makes the divisor an array of its own.
    """
    zero = word(numerator) >> np.uint32(31)
    return numerator / value(word(jnp.asarray(divisor, jnp.float32)) + zero)


def largest(x: jax.Array) -> jax.Array:
    """Return the magnitude word of the largest element; NaN counts as larger than infinity."""
    return jnp.max(word(x) & ~_SIGN)


def bounded(x: jax.Array, top: jax.Array) -> jax.Array:
    """Return ``x`` with no magnitude above the word ``top``, in integers, signs kept."""
    bits = word(x)
    return value((bits & _SIGN) | jnp.minimum(bits & ~_SIGN, top))


def usable(amax: jax.Array) -> jax.Array:
    """Whether a scale can be derived from this magnitude word: neither 0 nor inf nor NaN."""
    return (amax > 0) & (amax < _INF)


def to_range(x: jax.Array, amax: jax.Array, top: jax.Array, *, clamp: bool = True) -> jax.Array:
    """Return ``x * (MAX / amax)`` with the elements of magnitude ``amax`` exactly on MAX.

    Shape: ``x`` any; ``amax`` and ``top`` (MAX) are magnitude words, scalars.
    Special values: nothing passes MAX (unless ``clamp`` is off: where ``amax`` is not the tensor's
        own, larger elements are left to overflow), and nothing but zero becomes zero, so that no
        directed mode goes a step wrong through the rounding of the product.
    """
    bits = word(x)
    magnitude = bits & ~_SIGN
    significand, exponent = split(amax)
    ratio = quotient(jnp.maximum(value(top), 0.0), value(significand))
    scaled = word(times(x, ratio, -exponent)) & ~_SIGN
    # Far below any quantum: which tiny value it is does not matter, that it is not zero does.
    scaled = jnp.where(magnitude == 0, np.uint32(0), jnp.maximum(scaled, _HIDDEN))
    scaled = jnp.where(magnitude == amax, top, jnp.minimum(scaled, top) if clamp else scaled)
    return value((bits & _SIGN) | scaled)


def from_range(x: jax.Array, amax: jax.Array, top: jax.Array) -> jax.Array:
    """Return ``x * (amax / MAX)``; finite values stay finite."""
    significand, exponent = split(amax)
    factor = quotient(value(significand), value(top))
    scaled = word(times(x, factor, exponent))
    magnitude = scaled & ~_SIGN
    finite = (word(x) & ~_SIGN) < _INF
    kept = jnp.where(finite, jnp.minimum(magnitude, _MAX), magnitude)
    return value((scaled & _SIGN) | kept)


def _significands(x: jax.Array, exponent: Scalar, change: Any) -> jax.Array:
    """Apply ``change`` to the significands of ``x``, then move them to their exponents."""
    bits = word(x)
    magnitude = bits & ~_SIGN
    significand, own = split(magnitude)
    moved = word(shift(change(value(significand)), own + jnp.asarray(exponent, jnp.int32)))
    special = (magnitude == 0) | (magnitude >= _INF)
    return value((bits & _SIGN) | jnp.where(special, magnitude, moved))
