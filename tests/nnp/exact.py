"""Exact results of + - * / sqrt max min: Fraction arithmetic, rounded by the oracle."""

from fractions import Fraction
from math import isqrt

import numpy as np

from tests.oracle.casts import to_float
from tests.oracle.formats import FORMATS, INF, NAN, NEG_INF, NEG_ZERO, Special, decode, encode

MIN_NORMAL = Fraction(1, 1 << 126)
_BITS = 200  # of the integer square root: far below any tie


def _number(value):
    """A float64 that stands for a value: exact for every code of 16 bits."""
    named = {INF: np.inf, NEG_INF: -np.inf, NAN: np.nan, NEG_ZERO: -0.0}
    return np.float64(named[value]) if isinstance(value, Special) else np.float64(float(value))


def _value(number):
    if np.isnan(number):
        return NAN
    if np.isinf(number):
        return INF if number > 0 else NEG_INF
    if number == 0:
        return NEG_ZERO if np.signbit(number) else Fraction(0)
    return Fraction(float(number))


_FLOAT = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_EXACT = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": max,
    "minimum": min,
}


def value_of(op, *operands):
    """The exact result of an operator on values; IEEE's where one is special or it is zero."""
    with np.errstate(all="ignore"):
        if op == "sqrt":
            return _root(operands[0])
        number = _FLOAT[op](*(_number(v) for v in operands))
    if any(isinstance(v, Special) for v in operands) or number == 0 or not np.isfinite(number):
        if all(isinstance(v, Fraction) for v in operands) and not (
            op == "divide" and operands[1] == 0
        ):
            exact = _EXACT[op](*operands)
            return exact if exact else _value(number)
        return _value(number)
    return _EXACT[op](*operands)


def _root(value):
    if value is NEG_ZERO or value == 0:
        return value
    if value is NAN or value is NEG_INF or (isinstance(value, Fraction) and value < 0):
        return NAN
    if value is INF:
        return INF
    scaled = (value.numerator << 2 * _BITS) // value.denominator
    root = isqrt(scaled)
    exact = root * root == scaled and scaled * value.denominator == value.numerator << 2 * _BITS
    return Fraction(2 * root + (not exact), 2 << _BITS)  # one sticky bit below


def code_of(op, fmt, saturate, *codes):
    """The code of the result, and whether something lies below the smallest normal float32."""
    values = [decode(int(c), fmt) for c in codes]
    exact = value_of(op, *values)
    tiny = any(isinstance(v, Fraction) and 0 < abs(v) < MIN_NORMAL for v in (*values, exact))
    return to_float(exact, FORMATS[fmt], "RINT", saturate), tiny


def special_codes(fmt):
    """Codes worth pairing with each other: zeros, subnormals, 1, MAX, inf, NaN, both signs."""
    row = FORMATS[fmt]
    one = encode(Fraction(1), fmt)
    plain = [0, 1, 2, 3, row.inf_code - 1, row.inf_code, row.nan_code, one, one + 1, one - 1]
    plain.append(1 << row.mantissa_bits)
    plain.append((1 << row.mantissa_bits) - 1)
    return [c | sign for c in plain for sign in (0, row.sign_bit)]
