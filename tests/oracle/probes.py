"""Words of the 32 and 64-bit formats that a cast could get wrong, and random ones.

`probe_words` collects, for one destination: its values, the midpoints between them and the
neighbouring words of each, both signs; overflow thresholds; zeros, subnormals, inf, NaN payloads.
"""

import numpy as np

from tests.oracle import wide
from tests.oracle.formats import FORMATS, FloatFormat, IntFormat
from tests.oracle.ladder import ladder
from tests.oracle.tables import container

MAX_POINTS = 4000


def random_words(seed: int, n: int, src: str = "f32") -> np.ndarray:
    """Uniform random words of a source; HF32 words get zero low bits."""
    kind = container(src)
    words = np.random.default_rng(seed).integers(0, np.iinfo(kind).max, n, kind, endpoint=True)
    return words & kind(_valid_mask(src))


def probe_words(src: str, dst: str) -> np.ndarray:
    """Sorted unique probe words of a 32 or 64-bit source for a destination."""
    fmt, target = FORMATS[src], FORMATS[dst]
    if target.bits <= 16 and not isinstance(target, IntFormat) and dst not in ("bool", "e8m0"):
        keys = _around(_ladder_points(dst), src)
    elif isinstance(target, IntFormat):
        keys = _around(_integer_points(target), src)
    else:
        keys = np.array([], np.uint64)
    if isinstance(fmt, IntFormat):
        keys = np.concatenate([keys, _integer_patterns(fmt)])
        words = np.concatenate([keys, ~keys + np.uint64(1)])
    else:
        keys = np.concatenate([keys, _float_patterns(fmt, target), _specials(fmt)])
        words = np.concatenate([keys, keys | np.uint64(fmt.sign_bit)])
    words = words & np.uint64(_valid_mask(src))
    return np.unique(words).astype(container(src))


def _valid_mask(src: str) -> int:
    fmt = FORMATS[src]
    padding = fmt.padding if isinstance(fmt, FloatFormat) else 0
    return ((1 << fmt.bits) - 1) & ~((1 << padding) - 1)


def _ladder_points(dst: str) -> np.ndarray:
    """Values and midpoints; beyond MAX_POINTS a stride, and the ends of every binade."""
    rungs = ladder(dst)
    points = np.stack([rungs.low, rungs.mid, rungs.high], axis=1)
    count = len(points)
    if count > MAX_POINTS:
        size = 1 << FORMATS[dst].mantissa_bits
        starts = np.arange(0, count, size)
        near = (starts[:, None] + np.array([-2, -1, 0, 1, 2])).ravel()
        picked = np.concatenate([np.arange(0, count, count // MAX_POINTS + 1), near, [count - 1]])
        points = points[np.unique(np.clip(picked, 0, count - 1))]
    return np.unique(points)


def _integer_points(fmt: IntFormat) -> np.ndarray:
    """Small halves and quarters, powers of two and their surroundings, up to beyond 64 bits."""
    small = np.arange(0, 300, 0.25)
    powers = np.exp2(np.arange(-3, 70))
    offsets = np.array([-2, -1.5, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2])
    around = np.abs((powers[:, None] + offsets).ravel())  # rounded where float64 ends
    dense = np.arange(0, 1 << fmt.bits, 0.5) if fmt.bits <= 8 else np.array([])
    return np.unique(np.concatenate([small, around, dense]))


def _around(points: np.ndarray, src: str) -> np.ndarray:
    """Magnitude keys of src just below, at and just above each point."""
    fmt = FORMATS[src]
    if isinstance(fmt, IntFormat):
        points = points[points < 2.0 ** (fmt.bits - fmt.signed)]
        keys = np.floor(points).astype(np.uint64)
        step = np.uint64(1)
    else:
        integer, exponent = wide.significands(points.view(np.uint64), "f64")
        no = np.zeros(points.shape, bool)
        keys = wide.round_to_float(integer, exponent, no, fmt, "TRUNC")
        keys = keys[keys <= np.uint64(fmt.inf_code)]
        step = np.uint64(1 << fmt.padding)
    below = keys[keys > 0] - step
    top = np.uint64(fmt.max_value if isinstance(fmt, IntFormat) else fmt.inf_code)
    above = keys[keys < top] + step
    return np.unique(np.concatenate([below, keys, above]))


def _specials(fmt: FloatFormat) -> np.ndarray:
    """Zero, smallest and largest subnormal and normal, inf, quiet and signalling NaN payloads."""
    mantissa = fmt.mantissa_bits + fmt.padding
    unit = 1 << fmt.padding
    quiet = fmt.inf_code | 1 << (mantissa - 1)
    keys = [
        0, unit, 2 * unit, (1 << mantissa) - unit, 1 << mantissa, (1 << mantissa) + unit,
        fmt.max_code - unit, fmt.max_code, fmt.inf_code,
        fmt.inf_code + unit, quiet - unit, quiet, quiet + unit, quiet | 0x2A * unit,
        (1 << (fmt.bits - 1)) - unit,
    ]  # fmt: skip
    return np.array(keys, np.uint64)


def _float_patterns(fmt: FloatFormat, target: object) -> np.ndarray:
    """Exponents of interest times mantissas of interest, after TestFloat."""
    mantissa = fmt.mantissa_bits + fmt.padding
    fields = np.arange((1 << fmt.exponent_bits) - 1)
    if fmt.exponent_bits > 8:
        middle = np.abs(fields - fmt.bias) <= 160
        fields = fields[middle | (fields < 3) | (fields > fields[-1] - 3)]
    full = (1 << mantissa) - 1
    fractions = {0, full, *(1 << bit for bit in range(mantissa))}
    kept_bits = getattr(target, "mantissa_bits", 0)
    cut = mantissa - kept_bits
    if 0 < cut < mantissa:
        half = 1 << (cut - 1)
        tails = (0, 1, half - 1, half, half + 1, 2 * half - 1)
        heads = (0, 1, (1 << kept_bits) - 2, (1 << kept_bits) - 1)
        fractions |= {head << cut | tail for head in heads for tail in tails}
    grid = (fields.astype(np.uint64)[:, None] << np.uint64(mantissa)) | np.array(
        sorted(fractions), np.uint64
    )
    return grid.ravel()


def _integer_patterns(fmt: IntFormat) -> np.ndarray:
    """Powers of two with their surroundings, and heads of set bits with every kind of tail."""
    bits = fmt.bits
    keys = {0, fmt.max_value, -fmt.min_value}
    for length in range(1, bits + 1):
        top = 1 << (length - 1)
        for low in range(length):
            keys |= {top | 1 << low, top | (1 << low) - 1, 2 * top - (1 << low)}
            keys |= {(top | 3 << low) & (2 * top - 1), (top | 1 << low) + 1, (top | 1 << low) - 1}
    return np.array(sorted(key for key in keys if key < 1 << bits), np.uint64)
