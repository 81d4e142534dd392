"""The number formats, by short name: every code has an exact value, every exact value a code.

A value is a Fraction or one of the four markers INF, NEG_INF, NAN, NEG_ZERO.
HF32 values live in float32 words whose low bits are zero (11 or 10 stored mantissa bits).
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache


class Special(Enum):
    """What a code may stand for besides a rational number."""

    INF = "inf"
    NEG_INF = "-inf"
    NAN = "nan"
    NEG_ZERO = "-0"


INF, NEG_INF, NAN, NEG_ZERO = Special.INF, Special.NEG_INF, Special.NAN, Special.NEG_ZERO
Value = Fraction | Special


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """A sign-magnitude float: sign, exponent field, mantissa, then `padding` zero bits.

    `top` says what the largest exponent field means: "ieee" (inf and NaN), "fn" (numbers, except
    that all ones is NaN) or "numbers" (numbers only).
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    top: str
    max_code: int
    nan_code: int | None
    padding: int = 0

    @property
    def bits(self) -> int:
        """Width of a code."""
        return 1 + self.exponent_bits + self.mantissa_bits + self.padding

    @property
    def sign_bit(self) -> int:
        """The code of negative zero."""
        return 1 << (self.bits - 1)

    @property
    def inf_code(self) -> int | None:
        """The code of positive infinity, if the format has one."""
        field = (1 << self.exponent_bits) - 1
        return field << (self.mantissa_bits + self.padding) if self.top == "ieee" else None

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal value, shared by the subnormals."""
        return 1 - self.bias

    @property
    def max_value(self) -> Fraction:
        """Largest finite value."""
        return _decode_float(self.max_code, self)


@dataclass(frozen=True, kw_only=True)
class IntFormat:
    """Two's complement or unsigned integer."""

    name: str
    bits: int
    signed: bool

    @property
    def min_value(self) -> int:
        """Smallest value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def max_value(self) -> int:
        """Largest value."""
        return (1 << (self.bits - self.signed)) - 1


@dataclass(frozen=True, kw_only=True)
class CodeFormat:
    """A format that only a decoder of its own describes: hif8, e8m0, bool."""

    name: str
    bits: int
    nan_code: int | None
    inf_code: int | None
    max_code: int


Format = FloatFormat | IntFormat | CodeFormat


def _float(
    name: str, exponent_bits: int, mantissa_bits: int, bias: int, top: str,
    max_code: int, nan_code: int | None, padding: int = 0,
) -> FloatFormat:  # fmt: skip
    return FloatFormat(
        name=name, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits, bias=bias, top=top,
        max_code=max_code, nan_code=nan_code, padding=padding,
    )  # fmt: skip


_FLOATS = [
    _float("f32", 8, 23, 127, "ieee", 0x7F7F_FFFF, 0x7FFF_FFFF),
    _float("f16", 5, 10, 15, "ieee", 0x7BFF, 0x7FFF),
    _float("bf16", 8, 7, 127, "ieee", 0x7F7F, 0x7FFF),
    _float("f64", 11, 52, 1023, "ieee", 0x7FEF_FFFF_FFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF),
    _float("e4m3fn", 4, 3, 7, "fn", 0x7E, 0x7F),
    _float("e5m2", 5, 2, 15, "ieee", 0x7B, 0x7F),
    _float("e2m1", 2, 1, 1, "numbers", 0x7, None),
    _float("e1m2", 1, 2, 1, "numbers", 0x7, None),
    _float("hf32_11", 8, 11, 127, "ieee", 0x7F7F_F000, 0x7FFF_FFFF, padding=12),
    _float("hf32_10", 8, 10, 127, "ieee", 0x7F7F_E000, 0x7FFF_FFFF, padding=13),
]
_OTHERS = [
    CodeFormat(name="hif8", bits=8, nan_code=0x80, inf_code=0x6F, max_code=0x6E),
    CodeFormat(name="e8m0", bits=8, nan_code=0xFF, inf_code=None, max_code=0xFE),
    CodeFormat(name="bool", bits=1, nan_code=None, inf_code=None, max_code=1),
]
_INTS = [
    IntFormat(name=f"{kind}{bits}", bits=bits, signed=kind == "s")
    for kind, widths in (("s", (4, 8, 16, 32, 64)), ("u", (8, 16, 32, 64)))
    for bits in widths
]
FORMATS: dict[str, Format] = {fmt.name: fmt for fmt in [*_FLOATS, *_OTHERS, *_INTS]}
FP4 = frozenset({"e2m1", "e1m2"})
HF32 = frozenset({"hf32_11", "hf32_10"})
NARROW = tuple(name for name, fmt in FORMATS.items() if fmt.bits <= 16)
WIDE = tuple(name for name, fmt in FORMATS.items() if fmt.bits > 16)


def power_of_two(exponent: int) -> Fraction:
    """2 to any integer power, exact."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def floor_log2(value: Fraction) -> int:
    """Exponent of the binade that holds a positive value."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if exponent >= 0:
        below = value.numerator < value.denominator << exponent
    else:
        below = value.numerator << -exponent < value.denominator
    return exponent - below


def decode(code: int, name: str) -> Value:
    """The exact value of a code.

    Raises:
        ValueError: the code is out of range, or an HF32 word with bits below its mantissa.
    """
    fmt = FORMATS[name]
    if not 0 <= code < 1 << fmt.bits:
        raise ValueError(f"{code:#x} is not a code of {name} ({fmt.bits} bits)")
    if isinstance(fmt, FloatFormat):
        return _decode_float(code, fmt)
    if isinstance(fmt, IntFormat):
        negative = fmt.signed and code >> (fmt.bits - 1)
        return Fraction(code - (1 << fmt.bits) if negative else code)
    if name == "hif8":
        return _decode_hif8(code)
    if name == "e8m0":
        return NAN if code == 0xFF else power_of_two(code - 127)
    return Fraction(code)


def _decode_float(code: int, fmt: FloatFormat) -> Value:
    negative = bool(code & fmt.sign_bit)
    magnitude = code & (fmt.sign_bit - 1)
    field = magnitude >> (fmt.mantissa_bits + fmt.padding)
    mantissa = magnitude & ((1 << (fmt.mantissa_bits + fmt.padding)) - 1)
    all_ones = field == (1 << fmt.exponent_bits) - 1
    if all_ones and fmt.top == "ieee":
        if mantissa:
            return NAN
        return NEG_INF if negative else INF
    if mantissa & ((1 << fmt.padding) - 1):
        raise ValueError(f"{code:#x} has bits below the mantissa of {fmt.name}")
    mantissa >>= fmt.padding
    if all_ones and fmt.top == "fn" and mantissa == (1 << fmt.mantissa_bits) - 1:
        return NAN
    if field == 0 and mantissa == 0:
        return NEG_ZERO if negative else Fraction(0)
    significand = mantissa + (bool(field) << fmt.mantissa_bits)
    exponent = max(field, 1) - fmt.bias - fmt.mantissa_bits
    if negative:
        significand = -significand
    if exponent >= 0:
        return Fraction(significand << exponent)
    return Fraction(significand, 1 << -exponent)


_HIF8_EXPONENT_BITS = {"11": 4, "10": 3, "01": 2, "001": 1, "0001": 0}


def _decode_hif8(code: int) -> Value:
    """HiFloat8 from its prefix code: sign, prefix, sign of the exponent, exponent, mantissa."""
    sign = -1 if code & 0x80 else 1
    body = f"{code & 0x7F:07b}"
    prefix = next((p for p in _HIF8_EXPONENT_BITS if body.startswith(p)), None)
    if prefix is None:
        denormal = int(body[4:], 2)
        if denormal:
            return sign * power_of_two(denormal - 23)
        return NAN if sign < 0 else Fraction(0)
    exponent_bits = _HIF8_EXPONENT_BITS[prefix]
    rest = body[len(prefix) :]
    exponent_field, mantissa_field = rest[:exponent_bits], rest[exponent_bits:]
    exponent = 0
    if exponent_bits:
        exponent = int("1" + exponent_field[1:], 2)  # the leading 1 is implied
        if exponent_field[0] == "1":
            exponent = -exponent
    if exponent == 15 and mantissa_field == "1":
        return INF if sign > 0 else NEG_INF
    mantissa = Fraction(int(mantissa_field, 2), 1 << len(mantissa_field))
    return sign * power_of_two(exponent) * (1 + mantissa)


@cache
def _codes_of(name: str) -> dict[Value, int]:
    """Inverse of `decode` for the formats described by a decoder of their own."""
    fmt = FORMATS[name]
    table = {decode(code, name): code for code in range(1 << fmt.bits)}
    if fmt.nan_code is not None:
        table[NAN] = fmt.nan_code
    return table


def encode(value: Value | int, name: str) -> int:
    """The code of a value that the format holds exactly; NaN gives the canonical code.

    Raises:
        ValueError: the format does not hold the value.
    """
    fmt = FORMATS[name]
    code = None
    if isinstance(fmt, FloatFormat):
        code = _encode_float(value, fmt)
    elif isinstance(fmt, CodeFormat):
        code = _codes_of(name).get(value)
    elif not isinstance(value, Special) and value.denominator == 1:
        number = value.numerator
        if fmt.min_value <= number <= fmt.max_value:
            code = number & ((1 << fmt.bits) - 1)
    if code is None:
        raise ValueError(f"{value} is not a value of {name}")
    return code


def _encode_float(value: Value | int, fmt: FloatFormat) -> int | None:
    if isinstance(value, Special):
        if value is NAN:
            return fmt.nan_code
        if value is NEG_ZERO:
            return fmt.sign_bit
        if fmt.inf_code is None:
            return None
        return fmt.inf_code | (fmt.sign_bit if value is NEG_INF else 0)
    if value == 0:
        return 0
    magnitude = Fraction(abs(value))
    exponent = max(floor_log2(magnitude), fmt.min_exponent)
    quantum = exponent - fmt.mantissa_bits
    numerator = magnitude.numerator << max(-quantum, 0)
    significand, remainder = divmod(numerator, magnitude.denominator << max(quantum, 0))
    code = ((exponent - fmt.min_exponent) << fmt.mantissa_bits) + significand
    code <<= fmt.padding
    if remainder or code > fmt.max_code:
        return None
    return code | (fmt.sign_bit if value < 0 else 0)


@cache
def finite_magnitudes(name: str) -> tuple[tuple[Fraction, int], ...]:
    """The non-negative finite (value, code) pairs of a float format of at most 16 bits, rising."""
    fmt = FORMATS[name]
    if fmt.bits > 16:
        raise ValueError(f"{name} has too many values to list")
    pairs = []
    for code in range(1 << (fmt.bits - (name != "e8m0"))):
        value = decode(code, name)
        if not isinstance(value, Special):
            pairs.append((value, code))
    return tuple(sorted(pairs))
