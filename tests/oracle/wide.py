"""Vectorised exact casts for what a ladder cannot list: 32 and 64-bit sources and destinations.

Integers in uint64 throughout; float64 only where it is exact (splitting an integer part off).
"""

from functools import cache

import numpy as np

from tests.oracle.formats import FORMATS, FloatFormat, IntFormat
from tests.oracle.ladder import Ladder, ladder, thresholds

ONE = np.uint64(1)
BITS64 = np.uint64(64)


def split_words(words: np.ndarray, src: str) -> tuple[np.ndarray, np.ndarray]:
    """Sign and magnitude key of the words of a 32 or 64-bit format; keys rise with magnitude."""
    fmt = FORMATS[src]
    words = words.astype(np.uint64)
    if isinstance(fmt, IntFormat):
        if not fmt.signed:
            return np.zeros(words.shape, bool), words
        negative = (words >> np.uint64(fmt.bits - 1)).astype(bool)
        mask = np.uint64((1 << fmt.bits) - 1)
        return negative, np.where(negative, (~words + ONE) & mask, words)
    negative = (words & np.uint64(fmt.sign_bit)) != 0
    return negative, words & np.uint64(fmt.sign_bit - 1)


def significands(keys: np.ndarray, src: str) -> tuple[np.ndarray, np.ndarray]:
    """Finite magnitude keys as integer times 2**exponent."""
    fmt = FORMATS[src]
    if isinstance(fmt, IntFormat):
        return keys, np.zeros(keys.shape, np.int64)
    mantissa_bits = fmt.mantissa_bits + fmt.padding
    field = (keys >> np.uint64(mantissa_bits)).astype(np.int64)
    mantissa = keys & np.uint64((1 << mantissa_bits) - 1)
    integer = mantissa | ((field > 0).astype(np.uint64) << np.uint64(mantissa_bits))
    return integer, np.maximum(field, 1) - fmt.bias - mantissa_bits


def bit_length(integers: np.ndarray) -> np.ndarray:
    """Bit length of each uint64."""
    powers = ONE << np.arange(64, dtype=np.uint64)
    return np.searchsorted(powers, integers, "right")


def round_to_float(
    integer: np.ndarray, exponent: np.ndarray, negative: np.ndarray, fmt: FloatFormat, mode: str
) -> np.ndarray:
    """Magnitude codes of integer * 2**exponent in a float format with an unbounded exponent.

    A code beyond the largest finite one stands for an overflow.
    """
    floor_log = bit_length(integer) - 1 + exponent
    lowest = fmt.min_exponent - fmt.mantissa_bits
    quantum = np.maximum(floor_log - fmt.mantissa_bits, lowest)
    shift = quantum - exponent
    integer = np.where((shift > 64) & (integer > 0), ONE, integer)  # far below: sticky only
    right = np.clip(shift, 0, 64).astype(np.uint64)
    left = np.clip(-shift, 0, 63).astype(np.uint64)
    gone = right == BITS64
    safe = np.minimum(right, np.uint64(63))
    quotient = np.where(gone, np.uint64(0), (integer >> safe) << left)
    rest = np.where(gone, integer, integer & ((ONE << safe) - ONE))
    half = np.where(right > 0, ONE << (np.maximum(right, ONE) - ONE), np.uint64(0))
    odd = (quotient & ONE) == 1
    up = {
        "RINT": (rest > half) | ((rest == half) & (right > 0) & odd),
        "ROUND": (rest >= half) & (right > 0),
        "FLOOR": negative & (rest > 0),
        "CEIL": ~negative & (rest > 0),
        "TRUNC": np.zeros(rest.shape, bool),
        "ODD": (rest > 0) & ~odd,
    }[mode]
    quotient = np.where(integer == 0, np.uint64(0), quotient + up)
    binade = np.where(integer == 0, 0, quantum - lowest).astype(np.uint64)
    code = (binade << np.uint64(fmt.mantissa_bits)) + quotient
    return code << np.uint64(fmt.padding)


def as_float64(words: np.ndarray, src: str) -> np.ndarray:
    """Words of a 32 or 64-bit float format as float64, exact."""
    if src == "f64":
        return words.astype(np.uint64).view(np.float64)
    negative, keys = split_words(words, src)
    fmt, double = FORMATS[src], FORMATS["f64"]
    finite = np.minimum(keys, np.uint64(fmt.max_code))
    code = round_to_float(*significands(finite, src), negative, double, "TRUNC")
    inf = np.uint64(fmt.inf_code)
    code = np.where(keys == inf, np.uint64(double.inf_code), code)
    code = np.where(keys > inf, np.uint64(double.nan_code), code)
    return (code | (negative.astype(np.uint64) << np.uint64(63))).view(np.float64)


def float_to_int(values: np.ndarray, fmt: IntFormat, mode: str, sat: bool) -> np.ndarray:
    """Integer codes of float64 values; every step is exact in float64."""
    special = ~np.isfinite(values)
    finite = np.where(special, 0.0, values)
    whole = np.trunc(finite)
    rest = np.abs(finite - whole)
    odd = np.fmod(whole, 2.0) != 0
    negative = np.signbit(finite)
    up = {
        "RINT": (rest > 0.5) | ((rest == 0.5) & odd),
        "ROUND": rest >= 0.5,
        "FLOOR": negative & (rest > 0),
        "CEIL": ~negative & (rest > 0),
        "TRUNC": np.zeros(rest.shape, bool),
        "ODD": (rest > 0) & ~odd,
    }[mode]
    magnitude = np.abs(whole) + up
    low_bits = np.fmod(magnitude, 2.0**64).astype(np.uint64)
    too_big = magnitude >= 2.0**64
    code = int_code(low_bits, too_big, negative, fmt, sat)
    mask = (1 << fmt.bits) - 1
    code = np.where(values == np.inf, np.uint64(fmt.max_value), code)
    return np.where(values == -np.inf, np.uint64(fmt.min_value & mask), code)


def int_code(
    magnitude: np.ndarray, too_big: np.ndarray, negative: np.ndarray, fmt: IntFormat, sat: bool
) -> np.ndarray:
    """Clamp (sat) or keep the low bits of sign and magnitude; too_big means 2**64 or more."""
    mask = np.uint64((1 << fmt.bits) - 1)
    code = np.where(negative, ~magnitude + ONE, magnitude) & mask
    if sat:
        above = ~negative & (too_big | (magnitude > np.uint64(fmt.max_value)))
        below = negative & (too_big | (magnitude > np.uint64(-fmt.min_value)))
        code = np.where(above, np.uint64(fmt.max_value), code)
        code = np.where(below, np.uint64(fmt.min_value & int(mask)), code)
    return code


@cache
def _keys(points_of: str, dst: str, src: str) -> tuple[np.ndarray, np.ndarray]:
    """The smallest magnitude keys of src at or above, and above, each point of a ladder."""
    rungs: Ladder = ladder(dst)
    points = getattr(rungs, points_of)
    fmt = FORMATS[src]
    if isinstance(fmt, IntFormat):
        points = points[points < 2.0**64]
        whole = np.floor(points)
        floor = whole.astype(np.uint64)
        return floor + (points > whole), floor + ONE
    words = points.view(np.uint64)
    integer, exponent = significands(words, "f64")
    no = np.zeros(words.shape, bool)
    at = round_to_float(integer, exponent, no, fmt, "TRUNC")
    exact = at == round_to_float(integer, exponent, no, fmt, "CEIL")
    step = np.uint64(1 << fmt.padding)
    return np.where(exact, at, at + step), at + step


def rank_of_keys(keys: np.ndarray, src: str, dst: str, mode: str, negative: bool) -> np.ndarray:
    """Rung reached by each magnitude key."""
    points, inclusive = thresholds(dst, mode, negative)
    rungs = ladder(dst)
    if mode == "ODD":
        # An integer source lacks the last high, above 2**64; the rung below it is an odd one.
        low, high = _keys("low", dst, src)[1], _keys("high", dst, src)[0]
        length = min(len(low), len(high))
        starts = np.where(inclusive[:length], high[:length], low[:length])
    else:
        name = next(n for n in ("low", "mid", "high") if getattr(rungs, n) is points)
        at, above = _keys(name, dst, src)
        starts = np.where(inclusive[: len(at)], at, above)
    return np.searchsorted(starts, keys, "right")


def hybrid(words: np.ndarray, src: str, sat: bool) -> np.ndarray:
    """HiFloat8 codes by the vendor's HYBRID procedure, for words of f32 or f16."""
    width, sign, bias = (23, 31, 127) if src == "f32" else (10, 15, 15)
    words = words.astype(np.int64)
    negative = (words >> sign & 1).astype(bool)
    key = words & ((1 << sign) - 1)
    field = key >> width
    mantissa = key & ((1 << width) - 1)
    exponent = field - bias
    if src == "f16":
        length = bit_length(mantissa.astype(np.uint64))
        subnormal = (field == 0) & (mantissa > 0)
        up_by = width + 1 - length
        exponent = np.where(subnormal, 1 - bias - up_by, exponent)
        mantissa = np.where(subnormal, (mantissa << up_by) & ((1 << width) - 1), mantissa)
        exponent = np.where(key == 0, -99, exponent)
        thr_bits, thr = 2, 2 * (words & 1) + 1
    else:
        thr_bits, thr = 14, words & 0x3FFF
    size = np.abs(exponent)
    kept_bits = np.select([size <= 3, size <= 7, exponent >= -15], [3, 2, 1], 0)
    kept = mantissa >> (width - kept_bits)
    after = mantissa & ((1 << (width - kept_bits)) - 1)
    drop = np.maximum(width - kept_bits - thr_bits, 0)
    up = np.where(size <= 3, after >> (width - kept_bits - 1), (after >> drop) >= thr)
    kept = kept + up
    carry = kept >> kept_bits
    exponent_out = exponent + carry
    kept = np.where(carry > 0, 0, kept)
    tiny = ((1 << (thr_bits - 1)) + (mantissa >> (width - thr_bits + 1))) >= thr
    code = _hif8_code(exponent_out, kept, kept_bits)
    code = np.where(exponent == -23, tiny, code)
    code = np.where(exponent < -23, 0, code)
    is_inf = (exponent > 15) | ((exponent == 15) & (mantissa >> (width - 2) >= 1))
    code = np.where(is_inf | (code == 0x6F), 0x6E if sat else 0x6F, code)
    code = np.where(negative & (code > 0), code | 0x80, code)
    nan = key > ((1 << sign) - (1 << width))
    return np.where(nan, 0 if sat else 0x80, code).astype(np.uint64)


def _hif8_code(exponent: np.ndarray, kept: np.ndarray, kept_bits: np.ndarray) -> np.ndarray:
    """Positive HiFloat8 code of a normal or subnormal value whose mantissa is kept_bits wide."""
    size = np.abs(exponent)
    width = np.select([size <= 3, size <= 7], [3, 2], 1)
    # After a carry the mantissa is zero, so its width does not matter.
    digits = np.where(kept_bits == width, kept, 0)
    es = (exponent < 0).astype(np.int64)
    body = [
        0x08 | digits,
        0x10 | es << 3 | digits,
        0x20 | es << 4 | (size & 1) << 3 | digits,
        0x40 | es << 4 | (size & 3) << 2 | digits,
        0x60 | es << 4 | (size & 7) << 1 | digits,
    ]
    normal = np.select([size == 0, size == 1, size <= 3, size <= 7], body[:4], body[4])
    return np.where(exponent < -15, exponent + 23, normal)
