"""The steps of a float grid of at most 16 bits: where on the real line the result changes.

All numbers are float64, which holds every value of these formats and every midpoint exactly; the
construction asserts that.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from tests.oracle.casts import HIF8_OVERFLOW
from tests.oracle.formats import FORMATS, finite_magnitudes, floor_log2, power_of_two


@dataclass(frozen=True, eq=False)
class Ladder:
    """Rungs of a grid: code i lies at `low[i]`, the next one at `high[i]`, the middle at `mid[i]`.

    The last `high` is the first value that overflows.
    """

    codes: np.ndarray
    low: np.ndarray
    mid: np.ndarray
    high: np.ndarray


def exact_floats(values: list[Fraction]) -> np.ndarray:
    """Fractions as float64, refusing any that float64 does not hold."""
    floats = [float(value) for value in values]
    assert all(Fraction(number) == value for number, value in zip(floats, values, strict=True))
    return np.array(floats)


@cache
def ladder(dst: str) -> Ladder:
    """The non-negative rungs of a destination, with one rung of the unbounded continuation."""
    pairs = finite_magnitudes(dst)
    values = [value for value, _ in pairs]
    if dst == "hif8":
        above = HIF8_OVERFLOW
    else:
        top = values[-1]
        above = top + power_of_two(floor_log2(top) - FORMATS[dst].mantissa_bits)
    ends = [*values[1:], above]
    middles = [(low + high) / 2 for low, high in zip(values, ends, strict=True)]
    codes = np.array([code for _, code in pairs], np.uint64)
    rungs = Ladder(codes, exact_floats(values), exact_floats(middles), exact_floats(ends))
    assert (codes % np.uint64(2) == np.arange(len(codes), dtype=np.uint64) % np.uint64(2)).all()
    return rungs


@cache
def thresholds(dst: str, mode: str, negative: bool) -> tuple[np.ndarray, np.ndarray]:
    """For each rung the point where a magnitude leaves it, and whether the point itself leaves."""
    rungs = ladder(dst)
    odd = np.arange(len(rungs.codes)) % 2 == 1
    always, never = np.ones_like(odd), np.zeros_like(odd)
    match mode:
        case "RINT":
            return rungs.mid, odd
        case "ROUND":
            return rungs.mid, always
        case "TRUNC":
            return rungs.high, always
        case "FLOOR" | "CEIL":
            away = negative == (mode == "FLOOR")
            return (rungs.low, never) if away else (rungs.high, always)
        case "ODD":
            return np.where(odd, rungs.high, rungs.low), odd
    raise ValueError(f"unknown mode {mode}")


def rank(magnitudes: np.ndarray, points: np.ndarray, inclusive: np.ndarray) -> np.ndarray:
    """How many points each magnitude has passed; reaching an inclusive point passes it."""
    passed = np.searchsorted(points, magnitudes, "left")
    at = np.minimum(passed, len(points) - 1)
    return passed + (inclusive[at] & (points[at] == magnitudes))
