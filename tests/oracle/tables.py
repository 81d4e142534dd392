"""The laboratory cast for whole arrays: `cast_codes`, same values as `casts.cast`, found otherwise.

Destinations of at most 16 bits are a sorted list of points where the result changes; the rest is
exact integer arithmetic. Codes come in and go out as unsigned integers.
"""

from functools import cache

import numpy as np

from tests.oracle import wide
from tests.oracle.casts import HYBRID_SOURCES, MODES, NEVER_SATURATE
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
    decode,
)
from tests.oracle.ladder import ladder, rank, thresholds


def container(name: str) -> type[np.unsignedinteger]:
    """The unsigned type that holds a format's codes."""
    bits = FORMATS[name].bits
    return next(kind for width, kind in _CONTAINERS if bits <= width)


# HiFloat8 codes are not in the order of the values, so overflow is marked by a code of none.
OVERFLOW = np.uint64(1 << 32)
_CONTAINERS = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64))


@cache
def decoded(src: str) -> np.ndarray:
    """Every code of a format of at most 16 bits as float64, which holds all of them exactly."""
    special = {INF: np.inf, NEG_INF: -np.inf, NAN: np.nan, NEG_ZERO: -0.0}
    values = [decode(code, src) for code in range(1 << FORMATS[src].bits)]
    floats = [special[value] if value in special else float(value) for value in values]
    assert all(v in special or v == f for v, f in zip(values, floats, strict=True))
    table = np.array(floats)
    table.flags.writeable = False
    return table


def cast_codes(codes: np.ndarray, src: str, dst: str, mode: str, sat: bool) -> np.ndarray:
    """Codes in `dst` of `codes` in `src`.

    Raises:
        ValueError: an unknown mode, or HYBRID for a pair that does not have it.
    """
    codes = np.asarray(codes)
    if mode == "HYBRID":
        if dst != "hif8" or src not in HYBRID_SOURCES:
            raise ValueError(f"HYBRID exists for f32 and f16 to hif8, not for {src} to {dst}")
        return wide.hybrid(codes, src, sat).astype(np.uint8)
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode}")
    if src == dst:
        return codes.astype(container(dst))
    if dst == "bool":
        return _nonzero(codes, src).astype(np.uint8)
    target = FORMATS[dst]
    if dst == "e8m0":
        result = _to_e8m0(codes, src)
    elif isinstance(target, IntFormat):
        clamp = sat or (src, dst) == ("s16", "u32")
        result = _to_int(codes, src, target, mode, clamp)
    else:
        sat = dst in FP4 or (sat and dst not in NEVER_SATURATE and (src, dst) != ("f16", "bf16"))
        result = _to_float(codes, src, target, mode, sat)
    return result.astype(container(dst))


def _float64(codes: np.ndarray, src: str) -> np.ndarray:
    """Values of any source but a 64-bit integer (exact in float64)."""
    if FORMATS[src].bits <= 16:
        return decoded(src)[codes]
    if isinstance(FORMATS[src], IntFormat):
        negative, keys = wide.split_words(codes, src)
        magnitude = keys.astype(np.float64)  # 32 bits: exact
        return np.where(negative, -magnitude, magnitude)
    return wide.as_float64(codes, src)


def _nonzero(codes: np.ndarray, src: str) -> np.ndarray:
    fmt = FORMATS[src]
    if src == "e8m0":
        return np.ones(codes.shape, bool)
    mask = fmt.sign_bit - 1 if isinstance(fmt, FloatFormat) else (1 << fmt.bits) - 1
    return (codes.astype(np.uint64) & np.uint64(mask)) != 0


def _to_e8m0(codes: np.ndarray, src: str) -> np.ndarray:
    if FORMATS[src].bits == 64 and isinstance(FORMATS[src], IntFormat):
        length = wide.bit_length(wide.split_words(codes, src)[1])
        return np.where(length == 0, 0, length + 126)
    values = np.abs(_float64(codes, src))
    finite = np.isfinite(values)
    exponent = np.frexp(np.where(finite, values, 1.0))[1] + 126
    exponent = np.where(values == 0, 0, np.clip(exponent, 0, 255))
    return np.where(finite, exponent, 255)


def _to_int(codes: np.ndarray, src: str, fmt: IntFormat, mode: str, sat: bool) -> np.ndarray:
    if FORMATS[src].bits > 16 and isinstance(FORMATS[src], IntFormat):
        negative, keys = wide.split_words(codes, src)
        return wide.int_code(keys, np.zeros(keys.shape, bool), negative, fmt, sat)
    return wide.float_to_int(_float64(codes, src), fmt, mode, sat)


def _to_float(codes: np.ndarray, src: str, fmt: Format, mode: str, sat: bool) -> np.ndarray:
    source = FORMATS[src]
    signed_zero = isinstance(fmt, FloatFormat)
    if isinstance(source, IntFormat) and source.bits > 16:
        negative, keys = wide.split_words(codes, src)
        is_inf = is_nan = np.zeros(keys.shape, bool)
        magnitude = _magnitude_of_keys(keys, negative, src, fmt, mode)
    elif source.bits > 16:
        negative, keys = wide.split_words(codes, src)
        inf = np.uint64(source.inf_code)
        is_inf, is_nan = keys == inf, keys > inf
        magnitude = _magnitude_of_keys(np.where(keys < inf, keys, 0), negative, src, fmt, mode)
    else:
        values = decoded(src)[codes]
        negative, is_inf, is_nan = np.signbit(values), np.isinf(values), np.isnan(values)
        magnitude = _magnitude_of_values(
            np.where(np.isfinite(values), np.abs(values), 0.0), negative, fmt, mode
        )
    top = np.uint64(fmt.max_code)
    overflow = is_inf | (magnitude > top if fmt.bits > 16 else magnitude == OVERFLOW)
    beyond = fmt.nan_code if fmt.inf_code is None else fmt.inf_code
    magnitude = np.where(overflow, top if sat else np.uint64(beyond), magnitude)
    sign = np.uint64(1 << (fmt.bits - 1))
    keeps_sign = negative if signed_zero else negative & (magnitude > 0)
    if fmt.inf_code is None and not sat:
        keeps_sign = keeps_sign & ~overflow  # the one canonical NaN
    result = np.where(keeps_sign, magnitude | sign, magnitude)
    return np.where(is_nan, np.uint64(0 if sat else fmt.nan_code or 0), result)


@cache
def _code_table(dst: str) -> np.ndarray:
    """Codes by rung; the rung past the last stands for overflow."""
    return np.append(ladder(dst).codes, OVERFLOW)


def _magnitude_of_keys(
    keys: np.ndarray, negative: np.ndarray, src: str, fmt: Format, mode: str
) -> np.ndarray:
    if fmt.bits > 16:
        return wide.round_to_float(*wide.significands(keys, src), negative, fmt, mode)
    positive_rank = wide.rank_of_keys(keys, src, fmt.name, mode, False)
    if mode in ("FLOOR", "CEIL"):
        negative_rank = wide.rank_of_keys(keys, src, fmt.name, mode, True)
        positive_rank = np.where(negative, negative_rank, positive_rank)
    return _code_table(fmt.name)[positive_rank]


def _magnitude_of_values(
    values: np.ndarray, negative: np.ndarray, fmt: Format, mode: str
) -> np.ndarray:
    if fmt.bits > 16:
        integer, exponent = wide.significands(values.view(np.uint64), "f64")
        return wide.round_to_float(integer, exponent, negative, fmt, mode)
    result = rank(values, *thresholds(fmt.name, mode, False))
    if mode in ("FLOOR", "CEIL"):
        result = np.where(negative, rank(values, *thresholds(fmt.name, mode, True)), result)
    return _code_table(fmt.name)[result]
