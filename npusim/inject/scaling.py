"""Multiplying and dividing by a scale without losing a subnormal.

XLA flushes float32 subnormals in every float operation on CPU, so exponents are moved in integers
and only significands in [1, 2) meet in a float product. Where neither operand nor result is
subnormal the results are those of the plain float32 product and quotient, bit for bit; a subnormal
result is rounded a second time.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Scalar = Any

_SIGN = np.uint32(0x8000_0000)
_INF = np.uint32(0x7F80_0000)
_MAX = np.uint32(0x7F7F_FFFF)
_ONE = np.uint32(0x3F80_0000)
_FRACTION = np.uint32(0x007F_FFFF)
_HIDDEN = np.uint32(0x0080_0000)
_TWO_23 = np.uint32(0x4B00_0000)
_WIDTH = 23
_BIAS = np.int32(127)
_SUBNORMAL = np.int32(149)  # a subnormal is its fraction times 2**-149


def word(x: jax.Array) -> jax.Array:
    """Return the bits of a float32 array."""
    return lax.bitcast_convert_type(x, jnp.uint32)


def value(bits: jax.Array) -> jax.Array:
    """Return the float32 array with these bits."""
    return lax.bitcast_convert_type(bits, jnp.float32)


def shift(x: jax.Array, exponent: Scalar) -> jax.Array:
    """Return ``x * 2**exponent``, rounded to nearest even where the result is subnormal.

    Shape: that of ``x``; ``exponent`` is an int32 scalar or an array of the same shape.
    Special values: zeros, infinities and NaN are returned as they are; overflow gives infinity.
    Gradient: none (integer arithmetic); callers define their own.

    Example:
        >>> float(shift(jnp.float32(1.5), -140)) == 1.5 * 2.0**-140
        True
    """
    return _significands(x, exponent, lambda s: s)


def divided(x: jax.Array, divisor: float) -> jax.Array:
    """Return ``x / divisor`` for a static positive divisor, correctly rounded.

    A power of two moves the exponent, which is exact. For any other divisor XLA would multiply by
    the reciprocal; the divisor is therefore made to look like data.

    Example:
        >>> float(divided(jnp.float32(1.0), 3.0)) == float(np.float32(1) / np.float32(3))
        True
    """
    significand, exponent = parts(divisor)
    change = (lambda s: s) if significand == 1.0 else (lambda s: quotient(s, significand))
    return _significands(x, -exponent, change)


def multiplied(x: jax.Array, factor: float) -> jax.Array:
    """Return ``x * factor`` for a static positive factor; a power of two is exact.

    Example:
        >>> float(multiplied(jnp.float32(2.0**-140), 3.0)) == 3 * 2.0**-140
        True
    """
    significand, exponent = parts(factor)
    change = (lambda s: s) if significand == 1.0 else (lambda s: s * np.float32(significand))
    return _significands(x, exponent, change)


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
    """Return the magnitude word of the largest element; NaN counts as larger than infinity.

    On CPU the float maximum is several times faster than the integer one and right unless it is
    zero, when all elements are zeros or subnormals; only then are the words compared. Elsewhere a
    branch would cost more than it saves.
    """

    def by_words(x: jax.Array) -> jax.Array:
        return jnp.max(word(x) & ~_SIGN)

    def on_cpu(x: jax.Array) -> jax.Array:
        fast = word(jnp.max(jnp.abs(x)))
        return lax.cond(fast == 0, by_words, lambda _: fast, x)

    return lax.platform_dependent(x, cpu=on_cpu, default=by_words)


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
    significand, exponent = _apart(_ordered(amax))
    ratio = quotient(value(top), value(significand))
    lowered = _ordered(magnitude if clamp else jnp.minimum(magnitude, _below_overflow(exponent)))
    # Far below any quantum: which tiny value it is does not matter, that it is not zero does.
    near_one = jnp.maximum(lowered - (exponent << _WIDTH), _HIDDEN.astype(np.int32))
    scaled = jnp.maximum(word(value(near_one.astype(jnp.uint32)) * ratio), _HIDDEN)
    scaled = jnp.where(magnitude == amax, top, jnp.minimum(scaled, top) if clamp else scaled)
    scaled = jnp.where(magnitude == 0, np.uint32(0), scaled)
    if not clamp:
        scaled = jnp.where(magnitude >= _INF, magnitude, scaled)
    return value((bits & _SIGN) | scaled)


def from_range(x: jax.Array, amax: jax.Array, top: jax.Array) -> jax.Array:
    """Return ``x * (amax / MAX)``; finite values stay finite.

    Special values: the magnitude of ``x`` is 0, infinite, NaN or well inside of float32's range,
    which a format that is scaled to MAX has.
    """
    bits = word(x)
    magnitude = bits & ~_SIGN
    significand, exponent = _apart(_ordered(amax))
    factor = quotient(value(significand), value(top))
    scaled = jnp.minimum(_together(value(magnitude) * factor, exponent), _MAX)
    special = (magnitude == 0) | (magnitude >= _INF)
    return value((bits & _SIGN) | jnp.where(special, magnitude, scaled))


def _ordered(magnitude: jax.Array) -> jax.Array:
    """Return magnitude words as integers with the exponent on top, subnormals continued below 0.

    Moving the exponent is then one addition. A subnormal's fraction is an integer below 2**23,
    which becomes a float exactly.
    """
    counted = word(magnitude.astype(jnp.float32)).astype(jnp.int32) - (_SUBNORMAL << _WIDTH)
    return jnp.where(magnitude < _HIDDEN, counted, magnitude.astype(jnp.int32))


def _apart(ordered: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the word of the significand in [1, 2) and the exponent."""
    return _ONE | (ordered.astype(jnp.uint32) & _FRACTION), (ordered >> _WIDTH) - _BIAS


def _together(near_one: jax.Array, exponent: Scalar) -> jax.Array:
    """Return the magnitude word of ``near_one * 2**exponent``."""
    # Beyond these bounds it is 0 or infinity, and with the room that is left nothing wraps.
    exponent = jnp.clip(exponent, -250, 250)
    room = (255 - jnp.maximum(exponent, 0)) << _WIDTH
    moved = jnp.minimum(word(near_one).astype(jnp.int32), room) + (exponent << _WIDTH)
    # A subnormal is an integer times 2**-149: adding 2**23 rounds it to one, to nearest even.
    count = value(jnp.maximum(moved + (_SUBNORMAL << _WIDTH), 0).astype(jnp.uint32))
    small = word(count + np.float32(2**_WIDTH)) - _TWO_23
    normal = jnp.minimum(moved, _INF.astype(np.int32)).astype(jnp.uint32)
    return jnp.where(moved < _HIDDEN.astype(np.int32), small, normal)


def _below_overflow(exponent: jax.Array) -> jax.Array:
    """The magnitude word whose exponent, lowered by ``exponent``, is the highest finite one."""
    highest = jnp.clip(exponent + 254, 1, 254).astype(jnp.uint32)
    return (highest << np.uint32(_WIDTH)) | _FRACTION


def _significands(x: jax.Array, exponent: Scalar, change: Callable[[Any], Any]) -> jax.Array:
    """Apply ``change`` to the significands of ``x``, then move them to their exponents."""
    bits = word(x)
    magnitude = bits & ~_SIGN
    significand, own = _apart(_ordered(magnitude))
    moved = _together(change(value(significand)), own + jnp.asarray(exponent, jnp.int32))
    special = (magnitude == 0) | (magnitude >= _INF)
    return value((bits & _SIGN) | jnp.where(special, magnitude, moved))
