"""The value sets a number format can have, with limits derived as exact fractions."""

import dataclasses
from fractions import Fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class FloatGrid:
    """A sign-exponent-mantissa format.

    Attributes:
        exponent_bits: width of the exponent field.
        mantissa_bits: width of the stored fraction.
        bias: exponent bias; the all-zero exponent field holds zero and subnormals.
        max_code: code of the largest finite value.
        inf_code: code of +infinity, None where the format has none.
        nan_code: code casts use for NaN, None where the format has none.
        negative_zero: whether -0 is a value of its own.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    inf_code: int | None
    nan_code: int | None
    negative_zero: bool

    @property
    def fraction_bits(self) -> int:
        """The most fraction bits a value can have."""
        return self.mantissa_bits

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def quantum(self) -> Fraction:
        """The smallest positive value."""
        return Fraction(2) ** (self.min_exponent - self.mantissa_bits)

    @property
    def max(self) -> Fraction:
        """The largest finite value."""
        exponent, fraction = divmod(self.max_code, 1 << self.mantissa_bits)
        significand = Fraction(fraction, 1 << self.mantissa_bits) + 1
        return significand * Fraction(2) ** (exponent - self.bias)

    @property
    def min(self) -> Fraction:
        """The smallest finite value."""
        return -self.max


@dataclasses.dataclass(frozen=True, kw_only=True)
class IntGrid:
    """A two's complement or unsigned integer format."""

    bits: int
    signed: bool

    @property
    def max(self) -> Fraction:
        """The largest value."""
        return Fraction((1 << (self.bits - self.signed)) - 1)

    @property
    def min(self) -> Fraction:
        """The smallest value."""
        return Fraction(-(1 << (self.bits - 1)) if self.signed else 0)

    @property
    def quantum(self) -> Fraction:
        """The smallest positive value."""
        return Fraction(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaperedGrid:
    """HiFloat8: the wider the exponent, the shorter the mantissa.

    Attributes:
        mantissa_by_exponent: pairs (largest absolute exponent, mantissa bits), narrowest first.
        min_exponent: exponent below which values are bare powers of two.
        quantum_exponent: exponent of the smallest positive value.
        max_code: code of the largest finite value.
        inf_code: code of +infinity.
        nan_code: code of NaN.
    """

    mantissa_by_exponent: tuple[tuple[int, int], ...]
    min_exponent: int
    quantum_exponent: int
    max_code: int
    inf_code: int
    nan_code: int

    @property
    def fraction_bits(self) -> int:
        """The most fraction bits a value can have."""
        return max(bits for _, bits in self.mantissa_by_exponent)

    @property
    def max(self) -> Fraction:
        """The largest finite value; the code above it in the top binade is infinity."""
        return Fraction(2) ** self.mantissa_by_exponent[-1][0]

    @property
    def min(self) -> Fraction:
        """The smallest finite value."""
        return -self.max

    @property
    def quantum(self) -> Fraction:
        """The smallest positive value."""
        return Fraction(2) ** self.quantum_exponent


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleGrid:
    """E8M0: an exponent alone. No sign, no zero; one NaN code."""

    exponent_bits: int
    bias: int
    max_code: int
    nan_code: int

    @property
    def fraction_bits(self) -> int:
        """The most fraction bits a value can have: none."""
        return 0

    @property
    def max(self) -> Fraction:
        """The largest finite value."""
        return Fraction(2) ** (self.max_code - self.bias)

    @property
    def min(self) -> Fraction:
        """The smallest value, which is positive."""
        return self.quantum

    @property
    def quantum(self) -> Fraction:
        """The smallest positive value."""
        return Fraction(2) ** -self.bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComplexGrid:
    """A pair (real, imaginary) of values of another data type, named by its PyPTO-style name."""

    part: str


Grid = FloatGrid | IntGrid | TaperedGrid | ScaleGrid | ComplexGrid
