"""Between arrays and codes: reading a source of any kind, storing a result, and the checks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import dtypes, numerics
from npusim._errors import InputError, UnknownNameError, X64RequiredError, message
from npusim.casting.npuarray import NpuArray, join_halves, split_halves
from npusim.dtypes import DT_COMPLEX32, DT_FP32, DT_HF32, DataType
from npusim.numerics import words

Parts = tuple[Array, ...]
"""Codes of one real array, or of the real and the imaginary part of a complex one."""


def check_x64(dtype: DataType, what: str) -> None:
    """Raise X64RequiredError for a 64-bit type while JAX has those switched off."""
    if dtype.needs_x64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise X64RequiredError(
            message(
                f"{what} of type {dtype.short}",
                "types of at most 32 bits while jax_enable_x64 is off",
                "Set jax.config.update('jax_enable_x64', True), or convert to a narrower type "
                "yourself: JAX would narrow it without a word.",
            )
        )


def check_numeric(dtype: Any) -> None:
    """Raise InputError unless ``dtype`` is a boolean or number type of NumPy or JAX."""
    if jnp.issubdtype(dtype, np.number) or dtype == np.bool_:
        return
    raise InputError(
        message(
            f"an array of dtype {dtype}",
            "bool, integer, float and complex arrays",
            "Convert it to numbers first.",
        )
    )


def source(x: Any) -> tuple[Any, DataType]:
    """Return ``x`` as an array with its data type; Python numbers become what JAX makes of them.

    Raises:
        InputError: not an array, or not of numbers.
        UnknownNameError: an array type that is no format of npusim.
        X64RequiredError: a 64-bit array while x64 is off.
    """
    if isinstance(x, NpuArray):
        return x, x.dtype
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        x = jnp.asarray(x)
    if not isinstance(x, jax.Array | np.ndarray | np.generic):
        raise InputError(
            message(
                f"an operand of type {type(x).__name__}",
                "a jax.Array, a NumPy array, an NpuArray or a Python number",
                "Wrap it in jnp.asarray, or in npusim.array(values, dtype).",
            )
        )
    check_numeric(x.dtype)
    try:
        fmt = dtypes.dtype(x.dtype)
    except UnknownNameError:
        raise UnknownNameError(
            message(
                f"an array of dtype {x.dtype}",
                ", ".join(row.jax_name for row in dtypes.DTYPES if row.jax_name),
                "Convert it to one of these first.",
            )
        ) from None
    check_x64(fmt, "an input")
    return x, fmt


def parts(x: Any, fmt: DataType) -> Parts:
    """The codes of an array that `source` has checked."""
    if isinstance(x, NpuArray):
        codes = x.unpack().codes
        return split_halves(codes) if fmt is DT_COMPLEX32 else (codes,)
    x = jnp.asarray(x)
    if fmt.kind == "complex":
        return words.as_words(jnp.real(x)), words.as_words(jnp.imag(x))
    return (words.as_words(x),)


def store(codes: Parts, fmt: DataType, packed: bool = False) -> Array | NpuArray:
    """The array that codes of ``fmt`` stand for."""
    if fmt is DT_COMPLEX32:
        return NpuArray(join_halves(*codes), fmt)
    if fmt.kind == "complex":
        part = fmt.part.jax_dtype
        assert part is not None
        return jax.lax.complex(*(words.from_words(c, part) for c in codes))
    if fmt.stored_as == "codes":
        return NpuArray(numerics.pack(codes[0]) if packed else codes[0], fmt, packed)
    jax_dtype = DT_FP32.jax_dtype if fmt is DT_HF32 else fmt.jax_dtype
    assert jax_dtype is not None
    return words.from_words(codes[0], jax_dtype)


def convert_parts(
    codes: Parts, src: DataType, dst: DataType, mode: Any, saturate: Any, **options: Any
) -> Parts:
    """`numerics.convert` on every part.

    A real source gets the imaginary part +0; a real destination takes the real part; a bool is
    True where either part is non-zero.
    """

    def one(code: Array) -> Array:
        return numerics.convert(code, src.part, dst.part, mode, saturate, **options)

    if dst.kind == "bool":
        out = one(codes[0])
        for code in codes[1:]:
            out = out | one(code)
        return (out,)
    if dst.kind != "complex":
        return (one(codes[0]),)
    if len(codes) == 1:
        real = one(codes[0])
        return real, jnp.zeros_like(real)
    return tuple(one(code) for code in codes)
