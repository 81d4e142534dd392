"""Numbers as a reader writes and reads them: exact, by integers and fractions.

Text becomes a code of the source format with one rounding, to nearest even, whatever its length;
codes become their exact values again.
"""

import dataclasses
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from npusim._errors import InputError, message
from npusim._grids import FloatGrid, Grid, IntGrid, ScaleGrid, TaperedGrid
from npusim.dtypes import DT_DOUBLE, DT_FP32, DT_HF32, DataType

_DIGITS = 17  # what tells any two float64 values apart; longer values are marked with ~
_INTEGER_DIGITS = 20  # integers are written out up to the range of 64 bits
_EXPONENT_DIGITS = 4  # beyond every format, and 10**9999 is still quick
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_POWER = re.compile(r"([+-]?)2(?:\^|\*\*)([+-]?\d{1,4})")


@dataclasses.dataclass(frozen=True)
class Exact:
    """A value of a format: a sign with a magnitude, an infinity, or NaN."""

    negative: bool
    magnitude: Fraction = Fraction(0)
    kind: Literal["finite", "inf", "nan"] = "finite"

    @property
    def value(self) -> Fraction:
        """The finite value."""
        return -self.magnitude if self.negative else self.magnitude

    def __str__(self) -> str:
        if self.kind == "nan":
            return "nan"
        size = "inf" if self.kind == "inf" else decimal(self.magnitude)
        return signed(size, self.negative)

    @property
    def plain(self) -> int | float | str:
        """The value for JSON: a number, or ``inf``, ``-inf``, ``nan``, which JSON has not."""
        if self.kind != "finite":
            return str(self)
        if self.magnitude == 0 and self.negative:
            return -0.0
        return int(self.value) if self.value.denominator == 1 else float(self.value)


def signed(size: str, negative: bool) -> str:
    """A decimal with its sign, which goes after the mark of a value cut short."""
    if not negative:
        return size
    return f"~-{size[1:]}" if size.startswith("~") else f"-{size}"


NAN = Exact(False, kind="nan")


def decimal(value: Fraction) -> str:
    """A non-negative value in decimal: exact, or ``~`` and 17 digits where it is longer.

    Example:
        >>> decimal(Fraction(1, 1024)), decimal(Fraction(2) ** -133)
        ('0.0009765625', '~9.1835496157991212e-41')
    """
    if value == 0:
        return "0"
    if value.denominator == 1 and value < 10**_INTEGER_DIGITS:
        return str(value.numerator)
    twos = value.denominator.bit_length() - 1
    if value.denominator == 1 << twos:
        digits = str(value.numerator * 5**twos)
        stripped = digits.rstrip("0")
        if len(stripped) <= _DIGITS:
            return _place(stripped, len(digits) - twos)
    rounded = f"{Decimal(value.numerator) / Decimal(value.denominator):.16e}"
    mantissa, _, exponent = rounded.partition("e")
    return f"~{_place(mantissa.replace('.', ''), int(exponent) + 1)}"


def _place(digits: str, point: int) -> str:
    """Digits with a decimal point before position ``point``."""
    if not -4 < point <= _INTEGER_DIGITS:
        rest = digits[1:].rstrip("0")
        return f"{digits[0]}{'.' + rest if rest else ''}e{point - 1:+03d}"
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits.ljust(point, "0")
    return f"{digits[:point]}.{digits[point:]}"


def floor_log2(value: Fraction) -> int:
    """The exponent of a positive value."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def quantum_exponent(magnitude: Fraction, grid: Grid) -> int:
    """The weight, as a power of two, of the last bit that a grid keeps of a magnitude."""
    if isinstance(grid, IntGrid):
        return 0
    assert isinstance(grid, FloatGrid | TaperedGrid | ScaleGrid)
    least = floor_log2(grid.quantum)
    exponent = floor_log2(magnitude) if magnitude else least
    if isinstance(grid, FloatGrid):
        return max(exponent, grid.min_exponent) - grid.mantissa_bits
    if isinstance(grid, ScaleGrid):
        return max(exponent, least)
    if exponent < grid.min_exponent:
        return max(exponent, least)
    bits = next(
        (m for limit, m in grid.mantissa_by_exponent if abs(exponent) <= limit),
        grid.mantissa_by_exponent[-1][1],
    )
    return exponent - bits


def nearest_even(magnitude: Fraction, grid: Grid) -> Fraction:
    """The grid's value nearest to a magnitude, with unbounded exponent; a tie to the even."""
    unit = Fraction(2) ** quantum_exponent(magnitude, grid)
    return round(magnitude / unit) * unit


def word_format(fmt: DataType) -> DataType:
    """The format that an array's words are in: HF32 lies in float32 words."""
    return DT_FP32 if fmt is DT_HF32 else fmt


def hexadecimal(code: int, bits: int) -> str:
    """A code as ``0x...`` with all its digits."""
    return f"0x{code:0{(bits + 3) // 4}X}"


def binary(code: int, bits: int) -> str:
    """A code as ``0b...`` with all its digits, in groups of four from the right."""
    digits = f"{code:0{bits}b}"
    head = len(digits) % 4
    groups = [digits[:head]] if head else []
    groups += [digits[i : i + 4] for i in range(head, len(digits), 4)]
    return "0b" + "_".join(groups)


def width(fmt: DataType) -> int:
    """Bits of a code; a bool has one."""
    return 1 if fmt.kind == "bool" else fmt.bits


def exact_values(codes: Sequence[int], fmt: DataType) -> list[Exact]:
    """The values of codes of a real format, or of float32 words for HF32."""
    if isinstance(fmt.grid, IntGrid):
        wrap = 1 << width(fmt)
        signed = [c - wrap if fmt.grid.signed and c >= wrap // 2 else c for c in codes]
        return [Exact(v < 0, Fraction(abs(v))) for v in signed]
    if fmt is DT_DOUBLE:
        floats = np.array(codes, np.uint64).view(np.float64).tolist()
    else:
        from npusim import numerics
        from npusim.numerics.words import unsigned

        words = numerics.decode(np.array(codes, unsigned(fmt.bits)), fmt)  # pyright: ignore
        floats = np.asarray(words).view(np.float32).astype(np.float64).tolist()
    return [_of_float(value) for value in floats]


def _of_float(value: float) -> Exact:
    if value != value:
        return NAN
    negative = str(value).startswith("-")
    if value in (float("inf"), float("-inf")):
        return Exact(negative, kind="inf")
    return Exact(negative, Fraction(abs(value)))


def parse(text: str, fmt: DataType) -> tuple[Exact, bool]:
    """The value of a real format that a text means, and whether it had to be rounded to it.

    Raises:
        InputError: no number, or one outside the format's range.

    Example:
        >>> from npusim.dtypes import dtype
        >>> value, rounded = parse("0.1", dtype("half"))
        >>> str(value), rounded
        ('0.0999755859375', True)
    """
    given = _read(text)
    grid = fmt.grid
    if given is None:
        raise InputError(
            message(
                f"{text!r} as a value of {fmt}",
                "decimal numbers, 2^-14, inf, nan, 0x bit patterns with --codes",
                "Correct it; options start with two hyphens (see --help).",
            )
        )
    if fmt.kind == "bool":
        return Exact(False, Fraction(int(given.kind != "finite" or given.magnitude != 0))), False
    if given.kind != "finite":
        return _special(text, given, fmt), False
    magnitude = nearest_even(given.magnitude, grid)
    if isinstance(grid, IntGrid) and magnitude != given.magnitude:
        raise InputError(
            message(f"{text} as {fmt}", f"integers from {fmt.min} to {fmt.max}", "Round it first.")
        )
    low, high = (fmt.min, fmt.max) if isinstance(grid, IntGrid) else (-fmt.max, fmt.max)
    value = Exact(given.negative, magnitude)
    if not low <= value.value <= high or (isinstance(grid, ScaleGrid) and value.value <= 0):
        low = fmt.min if isinstance(grid, ScaleGrid) else low
        shown = f"{signed(decimal(abs(low)), low < 0)} to {decimal(high)}"
        raise InputError(
            message(
                f"{text} as {fmt}, outside its range",
                shown + (", inf, nan" if getattr(grid, "inf_code", None) is not None else ""),
                "Take a wider source format.",
            )
        )
    if magnitude == 0 and not getattr(grid, "negative_zero", False):
        value = Exact(False)
    return value, magnitude != given.magnitude


def _read(text: str) -> Exact | None:
    word = text.strip().lower().replace("_", "")
    sign, body = word.startswith("-"), word.lstrip("+-")
    if body in ("true", "false"):
        return Exact(False, Fraction(int(body == "true")))
    if body in ("inf", "infinity"):
        return Exact(sign, kind="inf")
    if body == "nan":
        return NAN
    if power := _POWER.fullmatch(word):
        return Exact(power[1] == "-", Fraction(2) ** int(power[2]))
    found = _NUMBER.fullmatch(word)
    if not found or len((found[2] or "").lstrip("eE+-")) > _EXPONENT_DIGITS:
        return None
    return Exact(sign, abs(Fraction(word)))


def _special(text: str, given: Exact, fmt: DataType) -> Exact:
    grid: Any = fmt.grid
    code = "inf_code" if given.kind == "inf" else "nan_code"
    if getattr(grid, code, None) is None:
        raise InputError(
            message(
                f"{text} as {fmt}", f"finite values: {fmt} has no {given.kind}", "Leave it out."
            )
        )
    return given


def parse_code(text: str, fmt: DataType) -> int:
    """The bit pattern that a text means: hexadecimal, binary or decimal.

    Raises:
        InputError: no pattern, or one wider than the format.
    """
    bits = width(fmt)
    try:
        code = int(text.strip().replace("_", ""), 0)
    except ValueError:
        code = -1
    if not 0 <= code < 1 << bits:
        raise InputError(
            message(
                f"{text!r} as a code of {fmt}",
                f"0 to {hexadecimal((1 << bits) - 1, bits)}, as 0x..., 0b... or decimal",
                "Leave --codes out to give values.",
            )
        )
    return code


def code_of(value: Exact, fmt: DataType) -> int:
    """The code of a value that lies on the grid of a real format."""
    grid = fmt.grid
    if isinstance(grid, IntGrid):
        return int(value.value) % (1 << width(fmt))
    if value.kind == "finite" and fmt is not DT_DOUBLE:
        import npusim as npu

        # Exact: every value of the narrower formats is a float64.
        host = np.array([_float(value)], np.float64)
        made = npu.cast(host, fmt, "RINT", "OFF", target=npu.Target(api="numerics"))
        return int(np.asarray(npu.to_codes(made))[0])
    if fmt is DT_DOUBLE:
        return int(np.array([_float(value)], np.float64).view(np.uint64)[0])
    assert isinstance(grid, FloatGrid | TaperedGrid | ScaleGrid)
    code = grid.nan_code if value.kind == "nan" else getattr(grid, "inf_code", None)
    assert code is not None
    sign = value.negative and value.kind == "inf"
    return code | (1 << (fmt.bits - 1)) if sign else code


def _float(value: Exact) -> float:
    if value.kind == "nan":
        return float(np.uint64(0x7FFF_FFFF_FFFF_FFFF).view(np.float64))
    size = float("inf") if value.kind == "inf" else float(value.magnitude)
    return -size if value.negative else size
