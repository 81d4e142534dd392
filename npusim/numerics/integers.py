"""Integers on either side of a cast: to and from float words, and between widths."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim._grids import IntGrid
from npusim.numerics.grid import round_magnitude, wrap_integer
from npusim.numerics.rounding import Mode, addend
from npusim.numerics.words import F32, F64, WordLayout, unsigned


def round_integral(word: Array, mode: Mode) -> Array:
    """Magnitude words of float words rounded to an integral value, exponent unbounded."""
    layout = F64 if word.dtype == np.uint64 else F32
    whole = np.int32(layout.mantissa_bits)
    magnitude, negative = word & layout.magnitude, word & layout.sign
    rounded, lost = round_magnitude(magnitude, negative, layout, whole, whole, mode)
    return jnp.where(lost, layout.uint(0), rounded)


def float_to_int(
    word: Array,
    grid: IntGrid,
    mode: Mode,
    saturate: Array | bool,
    through_bits: int = 0,
    inf_wraps: bool = False,
) -> tuple[Array, Array]:
    """Codes (two's complement, unsigned type) of float words as integers, and what did not fit.

    NaN gives 0. Infinities give MAX and MIN whatever ``saturate`` says.

    Args:
        word: uint32 or uint64 float words.
        grid: the integer type.
        mode: how the fraction is dropped.
        saturate: clamp to MAX and MIN, or keep the low bits of the exact integer.
        through_bits: 0, or the width of a saturating signed integer that the value passes
            through before its low bits are kept; ``saturate`` is then without effect.
        inf_wraps: the infinities alone pass through such an integer: they become -1 and 0.

    Returns:
        ``(codes, outside)``: outside is where the rounded value exceeds the destination's range,
        or is infinite or NaN.
    """
    layout = F64 if word.dtype == np.uint64 else F32
    negative = word >> layout.uint(layout.bits - 1)
    minus = negative != 0
    magnitude = word & layout.magnitude
    infinite = magnitude == layout.inf
    rounded = round_integral(word, mode)
    wide = np.uint64 if grid.bits > 32 else np.uint32
    low = wrap_integer(rounded, negative, layout, wide, np.uint32(0))
    # The bounds are powers of two, so they are exact even where MAX itself is no float.
    above = rounded >= layout.power_of_two(grid.bits - grid.signed)
    below = rounded > layout.power_of_two(grid.bits - 1) if grid.signed else rounded > 0
    outside = jnp.where(minus, below, above)
    wrapped = jnp.where(minus, wide(0), wide(_ones(wide)))
    if through_bits:
        edge = layout.power_of_two(through_bits - 1)
        replaced = jnp.where(minus, rounded > edge, rounded >= edge)
        bound = wrapped
    else:
        replaced = outside & (jnp.asarray(saturate) | infinite)
        bound = jnp.where(minus, wide(int(grid.min) & _ones(wide)), wide(int(grid.max)))
        if inf_wraps:
            bound = jnp.where(infinite & ~jnp.asarray(saturate), wrapped, bound)
    is_nan = magnitude > layout.inf
    low = jnp.where(replaced, bound, low)
    low = jnp.where(is_nan, wide(0), low)
    return _mask(low, grid.bits).astype(unsigned(grid.bits)), outside | is_nan


def _ones(kind: type[np.unsignedinteger]) -> int:
    return int(np.iinfo(kind).max)


def _mask(low: Array, bits: int) -> Array:
    kind = low.dtype.type
    return low if bits == np.iinfo(kind).bits else low & kind((1 << bits) - 1)


def _sign_magnitude(codes: Array, grid: IntGrid) -> tuple[Array, Array]:
    """(negative 0/1, magnitude) as uint32, or as uint64 for a 64-bit grid."""
    kind = np.uint64 if grid.bits > 32 else np.uint32
    code = codes.astype(kind)
    if not grid.signed:
        return jnp.zeros_like(code), code
    negative = (code >> kind(grid.bits - 1)) & kind(1)
    return negative, jnp.where(negative != 0, _mask(~code + kind(1), grid.bits), code)


def int_to_float(codes: Array, grid: IntGrid, mode: Mode, layout: WordLayout) -> Array:
    """Float words of integer codes, rounded by ``mode`` where the float is too short.

    -0 does not arise, nor does overflow.
    """
    negative, magnitude = _sign_magnitude(codes, grid)
    source = magnitude.dtype.type
    width = int(np.iinfo(source).bits)
    if layout.bits > width:
        magnitude, negative = magnitude.astype(layout.uint), negative.astype(layout.uint)
        source, width = layout.uint, layout.bits
    zeros = jax.lax.clz(magnitude)
    normal = magnitude << zeros  # leading one in the top bit
    drop = width - 1 - layout.mantissa_bits
    mask = source((1 << drop) - 1)
    kept = normal >> source(drop)
    if grid.bits <= layout.mantissa_bits:
        up = source(0)
    else:
        extra = addend(mode, jnp.full_like(kept, 1 << drop), kept & source(1), negative)
        # `normal` is exact where its low bits are zero; the rule then adds nothing that carries.
        up = ((normal & mask) + extra) >> source(drop)
    exponent = source(layout.bias + width - 1) - zeros
    fraction = (kept + up).astype(layout.uint) - layout.implicit
    word = (exponent.astype(layout.uint) << layout.uint(layout.mantissa_bits)) + fraction
    word = jnp.where(magnitude == 0, layout.uint(0), word)
    return word | (negative.astype(layout.uint) << layout.uint(layout.bits - 1))


def int_to_int(codes: Array, source: IntGrid, grid: IntGrid, saturate: Array | bool) -> Array:
    """Codes of integers in another integer type: clamped, or their low bits."""
    negative, magnitude = _sign_magnitude(codes, source)
    wide = np.uint64 if max(source.bits, grid.bits) > 32 else np.uint32
    negative, magnitude = negative.astype(wide), magnitude.astype(wide)
    minus = negative != 0
    low = jnp.where(minus, ~magnitude + wide(1), magnitude)
    if grid.bits < 64:
        above = magnitude > wide(min(int(grid.max), _ones(wide)))
    else:
        above = magnitude > wide(int(grid.max)) if grid.signed else jnp.zeros_like(minus)
    below = magnitude > wide(int(-grid.min))
    outside = jnp.where(minus, below, above)
    top = wide(min(int(grid.max), _ones(wide)))
    bound = jnp.where(minus, wide(int(grid.min) & _ones(wide)), top)
    low = jnp.where(outside & jnp.asarray(saturate), bound, low)
    return _mask(low, grid.bits).astype(unsigned(grid.bits))


def nonzero(codes: Array, magnitude_bits: int) -> Array:
    """1 where any of the low ``magnitude_bits`` is set, as uint8: a cast to bool."""
    kind = codes.dtype.type
    return ((codes & kind((1 << magnitude_bits) - 1)) != 0).astype(np.uint8)
