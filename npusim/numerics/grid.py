"""Rounding a float word to the grid of a format: the one kernel behind every float destination.

Integer arithmetic only. ``FormatParams`` may be static (NumPy scalars, which XLA folds) or traced.
"""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim.modes import CastMode
from npusim.numerics import words
from npusim.numerics.hybrid import hybrid_magnitude
from npusim.numerics.params import FormatParams
from npusim.numerics.rounding import DIRECTED, MODE_INDEX, Mode, addend
from npusim.numerics.words import F32, F64, WordLayout

_STATIC_MODES = {index: mode for mode, index in MODE_INDEX.items()}


def is_static(*values: object) -> bool:
    """Whether all parameters are NumPy scalars known at trace time."""
    return all(isinstance(value, np.generic) for value in values)


def _off(value: object) -> bool:
    return value is None or (is_static(value) and value == 0)


def _static_mode(mode: Mode) -> Mode:
    return _STATIC_MODES[int(mode)] if isinstance(mode, np.generic) else mode


def round_magnitude(
    magnitude: Array,
    negative: Array,
    layout: WordLayout,
    mantissa_bits: Any,
    min_exponent: Any,
    mode: Mode,
    tapered: Any = None,
) -> tuple[Array, Array]:
    """Round magnitude words to a grid with unbounded exponent; the result may exceed its MAX.

    Args:
        magnitude: words without their sign bit.
        negative: not zero where the sign bit was set, of the word's own type.
        layout: of the words.
        mantissa_bits: fraction bits the grid keeps in a normal number.
        min_exponent: exponent below which the spacing stays at
            ``2 ** (min_exponent - mantissa_bits)``.
        mode: a CastMode or a traced rule index.
        tapered: 1 for the HiFloat8 grid, whose fraction width follows from the exponent.

    Returns:
        ``(rounded, lost)``: words on the grid, and where the result is zero instead. Infinity
        stays; NaN words stay above infinity's (modulo the word).
    """
    mode = _static_mode(mode)
    top, sint, uint = layout.mantissa_bits, layout.sint, layout.uint
    kept = _as(mantissa_bits, sint)
    lowest = _as(min_exponent, sint) + sint(layout.bias)
    held: Array = magnitude
    lost: Any = np.bool_(False)
    unit = lowest - kept
    if not (is_static(unit) and unit <= 0):  # a step that is a subnormal word needs no care
        # Nothing lies between 0 and the smallest step: a word in there is lost or counts as one.
        step = (jnp.maximum(unit, 0) << sint(top)).astype(uint)
        held = jnp.maximum(magnitude, step)
        lost = magnitude <= _lost_limit(mode, step, negative, layout)
    significand, ulp = _last_kept(held, layout, kept, lowest, tapered)
    extra = addend(mode, ulp, significand & ulp, negative)
    return (held + extra) & (~ulp + uint(1)), lost


def _as(value: Array | np.generic, kind: type[np.signedinteger]) -> Any:
    return kind(value) if isinstance(value, np.generic) else jnp.asarray(value).astype(kind)


def _last_kept(
    magnitude: Array, layout: WordLayout, kept: Any, lowest: Any, tapered: Any
) -> tuple[Array, Array]:
    """A word that has the last kept bit at its place, and the weight of that place."""
    top, sint, uint = layout.mantissa_bits, layout.sint, layout.uint
    # The last kept bit of a lone implicit one is 1; on the tapered grid it is the exponent's
    # parity, because there the code of a power of two below 2**-15 is its exponent.
    if is_static(tapered) and tapered != 0:
        return magnitude, _tapered_ulp(magnitude, layout)
    significand = magnitude | layout.implicit
    ulp = uint(1) << (sint(top) - kept).astype(uint)
    if is_static(lowest) and lowest == 1:
        return significand, ulp  # the grid's subnormals are the layout's own
    # Both subnormals and the lowest normals of the layout have the exponent `lowest` == 1.
    start = lowest if is_static(lowest) else jnp.where(lowest > 1, lowest, sint(0))
    field = (magnitude >> uint(top)).astype(sint)
    ulp = ulp << jnp.maximum(start - field, sint(0)).astype(uint)
    if tapered is not None and not is_static(tapered):
        significand = magnitude | jnp.where(tapered != 0, uint(0), layout.implicit)
        ulp = jnp.where(tapered != 0, _tapered_ulp(magnitude, layout), ulp)
    return significand, ulp


# Bits HiFloat8 drops beyond top - 3 by floor(abs(exponent) / 4): it keeps 3 fraction bits up to
# 3, 2 up to 7, 1 up to 15, none below. Two bits an entry. (Above 15 everything overflows.)
_TAPER_TABLE = 0b11_11_11_11_10_10_01_00


def _tapered_ulp(magnitude: Array, layout: WordLayout) -> Array:
    top, sint, uint = layout.mantissa_bits, layout.sint, layout.uint
    one = layout.power_of_two(0)
    # The exponent and its negative, both in the exponent's place above some fraction.
    plus = (magnitude - one).astype(sint)
    minus = (layout.inf - uint(1) - one - magnitude).astype(sint)
    index = (jnp.maximum(plus, minus) >> sint(top + 1)) & sint(0b1110)
    drop = (sint(_TAPER_TABLE) >> index) & sint(3)
    return uint(1 << (top - 3)) << drop.astype(uint)


def _lost_limit(mode: Mode, step: Array, negative: Array, layout: WordLayout) -> Array:
    """The largest magnitude that rounds to zero; ``step`` is the smallest number of the grid.

    The rule is asked with two bits to cut off: what it adds to them (3, 2, 1 or 0) tells whether
    everything above 0, the half and above, all above the half, or nothing moves up.
    """
    uint = layout.uint
    half = step - layout.implicit
    limits: list[Array] = []
    for sign in (0, 1):
        extra = addend(mode, *(jnp.uint32(v) for v in (4, 0, sign)))
        limit = jnp.where(extra == 2, half - uint(1), jnp.where(extra == 1, half, step - uint(1)))
        limits.append(jnp.where((extra == 3) | (step == 0), uint(0), limit))
    if isinstance(mode, CastMode) and mode not in DIRECTED:
        return limits[0]
    return jnp.where(negative != 0, limits[1], limits[0])


def wrap_integer(
    magnitude: Array,
    negative: Array,
    layout: WordLayout,
    uint: type[np.unsignedinteger],
    up: Any,
) -> Array:
    """The low bits, in ``uint``, of ``2**up`` times an integral float word, as two's complement."""
    field = magnitude >> layout.uint(layout.mantissa_bits)
    significand = (magnitude & layout.fraction) | layout.implicit
    # One of the two shifts is in range (both, and equal, at 0); the other one gives 0.
    left = field - (layout.uint(layout.bias + layout.mantissa_bits) - up.astype(layout.uint))
    low = significand.astype(uint) << left.astype(uint)
    if not (is_static(up) and up >= layout.mantissa_bits):  # else all but 0 is shifted left
        low = low | (significand >> (~left + layout.uint(1))).astype(uint)
    return jnp.where(negative != 0, ~low + uint(1), low)


def _wrapped_word(
    magnitude: Array, negative: Array, layout: WordLayout, params: FormatParams
) -> Array:
    """Float32 word of the low ``wrap_bits`` (at most 16) of an integral value."""
    unused = np.uint32(32) - params.wrap_bits  # at the top of the word what is above falls off
    low = wrap_integer(magnitude, negative, layout, np.uint32, unused) >> unused
    half = (np.uint32(1) << params.wrap_bits >> np.uint32(1)) * params.wrap_signed
    value = ((low ^ half) - half).astype(np.int32).astype(np.float32)  # exact, and never -0
    return words.as_words(value)


def quantize_words(
    word: Array,
    params: FormatParams,
    *,
    from_half: bool = False,
    from_bfloat16: bool = False,
    hybrid: bool = False,
) -> tuple[Array, Array]:
    """Round float32 or float64 words to a format and fit them into its range.

    Args:
        word: uint32 or uint64 words.
        params: the format.
        from_half: the words were widened from float16 (bears on FP16, BF16 and HYBRID).
        from_bfloat16: the words were widened from bfloat16 (bears on BF16).
        hybrid: HiFloat8's HYBRID mode instead of ``params.mode``.

    Returns:
        Float32 words on the grid (canonical NaN), and where the value was out of range, infinite
        or NaN.
    """
    layout = F64 if word.dtype == np.uint64 else F32
    source_magnitude = word & layout.magnitude
    source_negative = word & layout.sign
    original = word
    if layout is F64:
        # Rounding to odd with at least two spare bits keeps the later rounding single (Boldo and
        # Melquiond, "Emulation of FMA and correctly rounded sums", 2008). Finite values of 2**128
        # and above become infinity, which overflows every narrower float format alike.
        original = float64_to_float32(word, params.mode)
        word = float64_to_float32(word, CastMode.CAST_ODD)
    magnitude = word & F32.magnitude
    negative = word & F32.sign
    sign = word & params.sign

    if hybrid:
        rounded = hybrid_magnitude(magnitude, from_half)
        lost = rounded == 0
    else:
        rounded, lost = round_magnitude(
            magnitude,
            negative,
            F32,
            params.mantissa_bits,
            params.min_exponent,
            params.mode,
            params.tapered,
        )
    minus = negative != 0
    limit = _by_sign(minus, params.max_positive, params.max_negative)
    is_nan = magnitude > F32.inf
    out_of_range = ((rounded > limit) & ~lost) | is_nan
    over = _by_sign(minus, params.over_positive, params.over_negative)
    if _clamps(params):
        out = jnp.minimum(rounded, limit) | sign
    else:
        out = jnp.where(rounded > limit, over, rounded | sign)
    out = jnp.where(lost, (word & params.zero_sign) | params.least, out)
    nan = params.nan
    if (from_half or from_bfloat16) and not _off(params.keeps_half):
        keeps = (params.keeps_half & np.uint32(1 if from_half else 2)) != 0
        out = jnp.where(keeps & (magnitude == F32.inf), F32.inf | sign, out)
        nan = jnp.where(keeps, words.NAN32, nan)
    out = jnp.where(is_nan, nan, out)

    if not _off(params.wrap_bits):
        if layout is F64:
            whole = np.int32(F64.mantissa_bits)
            integral, lost = round_magnitude(
                source_magnitude, source_negative, F64, whole, whole, params.mode
            )
            integral = jnp.where(lost, np.uint64(0), integral)
            wrapped = _wrapped_word(integral, source_negative, F64, params)
        else:
            wrapped = _wrapped_word(jnp.where(lost, np.uint32(0), rounded), negative, F32, params)
        wrapped = jnp.where(source_magnitude == layout.inf, over, wrapped)  # NaN has become 0
        # Alone under a scalar condition, so that a compiler can branch around it.
        out = jnp.where(jnp.asarray(params.wrap_bits) != 0, wrapped, out)
    if is_static(params.identity):
        if params.identity != 0:
            out, out_of_range = original, (original & F32.magnitude) >= F32.inf
    else:
        out = jnp.where(params.identity != 0, original, out)
        out_of_range = jnp.where(
            params.identity != 0, (original & F32.magnitude) >= F32.inf, out_of_range
        )
    return out, out_of_range


def _clamps(params: FormatParams) -> bool:
    """Whether an overflow is known to give the largest value of its sign."""
    over = params.over_positive, params.over_negative
    return (
        is_static(params.max_positive, params.max_negative, *over)
        and params.over_positive == params.max_positive
        and (params.over_negative & F32.magnitude) == params.max_negative
    )


def _by_sign(minus: Array, positive: Any, negative: Any) -> Any:
    if is_static(positive, negative) and positive == negative:
        return positive
    return jnp.where(minus, negative, positive)


def float64_to_float32(word: Array, mode: Mode) -> Array:
    """Round float64 words to float32 words; subnormals kept, infinity and NaN pass."""
    magnitude = word & F64.magnitude
    negative = word & F64.sign
    rounded, lost = round_magnitude(
        magnitude,
        negative,
        F64,
        np.int32(F32.mantissa_bits),
        np.int32(1 - F32.bias),
        mode,
    )
    rounded = jnp.where(lost, np.uint64(0), rounded)
    kept = jnp.where(magnitude >= F64.inf, magnitude, rounded)
    return words.narrow(kept | negative)
