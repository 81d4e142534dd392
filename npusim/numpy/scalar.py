"""Python numbers in the type that an operator computes in."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import dtypes
from npusim._errors import InputError, message
from npusim._grids import FloatGrid
from npusim.casting import NpuArray
from npusim.casting.npuarray import join_halves
from npusim.dtypes import DT_COMPLEX32, DataType


def host_scalar(value: bool | int | float | complex, dtype: DataType, saturate: bool) -> Any:
    """A number as a rank-0 array: one rounding to nearest even, low bits of an integer.

    Special values: a magnitude that overflows becomes inf, or MAX where ``saturate`` (fp16 and
    bf16; then NaN becomes 0 and inf MAX).
    """
    if dtype is DT_COMPLEX32:
        number = complex(value)
        half = (_float(part, dtype.part, saturate) for part in (number.real, number.imag))
        codes = [np.asarray(part).view(np.uint16) for part in half]
        return NpuArray(join_halves(*(jnp.asarray(c) for c in codes)), dtype)
    if dtype.kind == "complex":
        assert dtype.jax_dtype is not None
        return jnp.asarray(dtype.jax_dtype.type(value))
    if isinstance(value, complex):
        raise InputError(
            message(
                f"complex scalar {value!r} for operands of type {dtype}",
                "bool, int and float scalars",
                "Make the other operand complex.",
            )
        )
    if dtype.kind == "bool":
        return jnp.asarray(bool(value))
    if dtype.kind == "int":
        return _integer(int(value), dtype)
    if dtype.stored_as == "codes":
        raise InputError(
            message(
                f"scalar {value!r} beside operands of type {dtype}",
                ", ".join(r.short for r in dtypes.DTYPES if r.stored_as == "jax"),
                "Make it an array first (npusim.array).",
            )
        )
    return jnp.asarray(_float(value, dtype, saturate))


def _integer(value: int, dtype: DataType) -> Array:
    low = value & ((1 << dtype.bits) - 1)
    low -= (low > dtype.max) << dtype.bits
    assert dtype.jax_dtype is not None
    return jnp.asarray(dtype.jax_dtype.type(low))


def _float(value: float, dtype: DataType, saturate: bool) -> np.generic:
    """The nearest value of a float type, ties to even."""
    assert dtype.jax_dtype is not None
    assert isinstance(dtype.grid, FloatGrid)
    clamps = saturate and dtype.bits == 16
    kind = dtype.jax_dtype.type
    try:
        number = float(value)
    except OverflowError:  # an int beyond float64
        number = math.copysign(math.inf, value)
    if math.isnan(number):
        return kind(0.0 if clamps else math.nan)
    if math.isinf(number) or number == 0:
        return kind(math.copysign(float(dtype.max), number) if clamps and number else number)
    exponent = max(math.frexp(number)[1] - 1, dtype.grid.min_exponent)
    step = exponent - dtype.grid.mantissa_bits
    # The exact quotient by a power of two; Python rounds to an integer with ties to even.
    nearest = math.ldexp(round(math.ldexp(number, -step)), step)
    if abs(nearest) > dtype.max:
        limit = float(dtype.max) if clamps else math.inf
        nearest = math.copysign(limit, number)
    return kind(math.copysign(nearest, number))
