"""The laboratory cast, code to code, one value at a time: Fraction and int only.

`cast` rounds once, from any format to any format. The rules come from the vendor pages; where a
page is silent the docstring of the function says what is assumed.
"""

from bisect import bisect_right
from fractions import Fraction
from functools import cache

from tests.oracle.formats import (
    FORMATS,
    FP4,
    INF,
    NAN,
    NEG_INF,
    NEG_ZERO,
    FloatFormat,
    Format,
    IntFormat,
    Special,
    Value,
    decode,
    encode,
    finite_magnitudes,
    floor_log2,
    power_of_two,
)

MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
HYBRID_SOURCES = ("f32", "f16")
NEVER_SATURATE = frozenset({"f32", "f64"})
HIF8_OVERFLOW = Fraction(49152)  # 1.5 * 2**15: the value code 0x6F would have as a number
HYBRID_OVERFLOW = Fraction(40960)


def cast(code: int, src: str, dst: str, mode: str, sat: bool) -> int:
    """The code in `dst` of the value of `code` in `src`.

    Special values: decided per destination, see `to_int`, `to_float`, `to_e8m0`, `to_bool`.

    Raises:
        ValueError: an unknown mode, or HYBRID for a pair that does not have it.
    """
    if mode == "HYBRID":
        if dst != "hif8" or src not in HYBRID_SOURCES:
            raise ValueError(f"HYBRID exists for f32 and f16 to hif8, not for {src} to {dst}")
        return hybrid(code, src, sat)
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode}")
    value = decode(code, src)
    if src == dst:
        return code
    if dst == "bool":
        return to_bool(value)
    if dst == "e8m0":
        return to_e8m0(value)
    fmt = FORMATS[dst]
    if isinstance(fmt, IntFormat):
        return to_int(value, fmt, mode, sat or (src, dst) == ("s16", "u32"))
    if dst in FP4:
        sat = True
    elif dst in NEVER_SATURATE or (src, dst) == ("f16", "bf16"):
        sat = False
    return to_float(value, fmt, mode, sat)


def rounds_up(quotient: int, remainder: int, divisor: int, negative: bool, mode: str) -> bool:
    """Whether magnitude quotient + remainder / divisor goes to quotient + 1."""
    match mode:
        case "RINT":
            twice = 2 * remainder
            return twice > divisor or (twice == divisor and quotient % 2 == 1)
        case "ROUND":
            return 2 * remainder >= divisor
        case "FLOOR":
            return negative and remainder > 0
        case "CEIL":
            return not negative and remainder > 0
        case "TRUNC":
            return False
        case "ODD":
            return remainder > 0 and quotient % 2 == 0
    raise ValueError(f"unknown mode {mode}")


def round_to_integer(value: Fraction, mode: str) -> int:
    """The integer that the mode picks."""
    negative = value < 0
    quotient, remainder = divmod(abs(value.numerator), value.denominator)
    quotient += rounds_up(quotient, remainder, value.denominator, negative, mode)
    return -quotient if negative else quotient


def to_int(value: Value, fmt: IntFormat, mode: str, sat: bool) -> int:
    """Round, then clamp (ON) or keep the low bits of the exact integer (OFF).

    Special values: NaN gives 0, the infinities give the extremes, whatever `sat` says.
    """
    if isinstance(value, Special):
        extremes = {INF: fmt.max_value, NEG_INF: fmt.min_value}
        return encode(Fraction(extremes.get(value, 0)), fmt.name)
    number = round_to_integer(value, mode)
    if sat:
        number = min(max(number, fmt.min_value), fmt.max_value)
    return number & ((1 << fmt.bits) - 1)


def to_float(value: Value, fmt: Format, mode: str, sat: bool) -> int:
    """Round with an unbounded exponent; a result above the largest finite value overflows.

    Special values: ON turns overflow and inf into the largest value and NaN into +0; OFF turns
    overflow into inf (e4m3fn: NaN) and keeps inf and NaN. Negative zero stays, also as the result
    of rounding, where the format has one.
    """
    if value is NAN:
        return 0 if sat else encode(NAN, fmt.name)
    if value is INF or value is NEG_INF:
        return _overflow(value is NEG_INF, fmt, sat)
    if value is NEG_ZERO:
        return _zero(True, fmt)
    negative = value < 0
    magnitude = round_magnitude(abs(value), negative, fmt, mode)
    if magnitude == 0:
        return _zero(negative, fmt)
    if magnitude > largest(fmt.name):
        return _overflow(negative, fmt, sat)
    return encode(-magnitude if negative else magnitude, fmt.name)


@cache
def largest(name: str) -> Fraction:
    """Largest finite value of a float format."""
    return decode(FORMATS[name].max_code, name)


def _zero(negative: bool, fmt: Format) -> int:
    return fmt.sign_bit if negative and isinstance(fmt, FloatFormat) else 0


def _overflow(negative: bool, fmt: Format, sat: bool) -> int:
    if sat:
        return encode(-largest(fmt.name) if negative else largest(fmt.name), fmt.name)
    if fmt.inf_code is None:
        return encode(NAN, fmt.name)
    return encode(NEG_INF if negative else INF, fmt.name)


def round_magnitude(magnitude: Fraction, negative: bool, fmt: Format, mode: str) -> Fraction:
    """The grid neighbour that the mode picks, on the grid continued above its largest value."""
    if magnitude == 0:
        return magnitude
    if fmt.name == "hif8":
        return _round_hif8(magnitude, negative, mode)
    exponent = max(floor_log2(magnitude), fmt.min_exponent)
    quantum = exponent - fmt.mantissa_bits
    numerator = magnitude.numerator << max(-quantum, 0)
    divisor = magnitude.denominator << max(quantum, 0)
    quotient, remainder = divmod(numerator, divisor)
    quotient += rounds_up(quotient, remainder, divisor, negative, mode)
    return quotient * power_of_two(quantum)


@cache
def _hif8_ladder() -> tuple[Fraction, ...]:
    """Zero and the positive values, which alternate between even and odd codes, one step more."""
    pairs = finite_magnitudes("hif8")
    assert all(code % 2 == rank % 2 for rank, (_, code) in enumerate(pairs))
    return (*(value for value, _ in pairs), HIF8_OVERFLOW)


def _round_hif8(magnitude: Fraction, negative: bool, mode: str) -> Fraction:
    """Nearest by value between neighbours of any binade; even and odd are those of the code."""
    ladder = _hif8_ladder()
    rank = bisect_right(ladder, magnitude) - 1
    if rank == len(ladder) - 1:
        return HIF8_OVERFLOW
    low, high = ladder[rank], ladder[rank + 1]
    position = (magnitude - low) / (high - low)
    return (low, high)[rounds_up(rank, position.numerator, position.denominator, negative, mode)]


def hybrid(code: int, src: str, sat: bool) -> int:
    """HiFloat8 by the vendor's deterministic "stochastic" rounding, from f32 or f16.

    The threshold is made of the low bits of the source: for f32 mantissa bits 13..0, for f16
    {bit 0, 1} of the original mantissa, also when a subnormal is normalised for the rest.
    Magnitudes from 40960 overflow before any of it.
    """
    fmt = FORMATS["hif8"]
    value = decode(code, src)
    if isinstance(value, Special) or abs(value) >= HYBRID_OVERFLOW:
        if isinstance(value, Fraction):
            value = INF if value > 0 else NEG_INF
        return to_float(value, fmt, "ROUND", sat)
    if value == 0:
        return 0
    source = FORMATS[src]
    width = source.mantissa_bits
    threshold_bits = 14 if src == "f32" else 2
    threshold = code & 0x3FFF if src == "f32" else 2 * (code & 1) + 1
    exponent = floor_log2(abs(value))
    mantissa = int((abs(value) / power_of_two(exponent) - 1) * (1 << width))
    if exponent < -23:
        return 0
    if exponent == -23:
        fraction = (1 << (threshold_bits - 1)) + (mantissa >> (width - threshold_bits + 1))
        magnitude = power_of_two(-22) if fraction >= threshold else Fraction(0)
    else:
        kept_bits = _hif8_mantissa_bits(exponent)
        kept = mantissa >> (width - kept_bits)
        if abs(exponent) <= 3:
            up = mantissa >> (width - kept_bits - 1) & 1
        else:
            fraction = mantissa >> (width - kept_bits - threshold_bits)
            up = fraction & ((1 << threshold_bits) - 1) >= threshold
        magnitude = power_of_two(exponent) * (1 + Fraction(kept + up, 1 << kept_bits))
    if magnitude > largest("hif8"):
        return _overflow(value < 0, fmt, sat)
    if magnitude == 0:
        return 0
    return encode(-magnitude if value < 0 else magnitude, "hif8")


def _hif8_mantissa_bits(exponent: int) -> int:
    """Mantissa bits of the binade; the subnormal binades hold one value each."""
    if abs(exponent) <= 3:
        return 3
    if abs(exponent) <= 7:
        return 2
    return 1 if exponent >= -15 else 0


def to_e8m0(value: Value) -> int:
    """The exponent field of the value as bfloat16; sign, mantissa, mode and saturation ignored.

    A wider source is truncated to bfloat16 first, so subnormals and zero give 0x00. Assumed: a
    finite source from 2**128 on counts as inf, and integers go the same way.
    """
    if value is NEG_ZERO or value == 0:
        return 0x00
    if isinstance(value, Special):
        return 0xFF
    exponent = floor_log2(abs(value))
    if exponent > 127:
        return 0xFF
    return max(exponent + 127, 0)


def to_bool(value: Value) -> int:
    """Whether the value differs from zero: inf and NaN do, negative zero does not."""
    return int(value is not NEG_ZERO and value != 0)
