"""The total cast: codes of any format to codes of any format, in one rounding."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim._grids import FloatGrid, Grid, IntGrid, ScaleGrid, TaperedGrid
from npusim.dtypes import (
    DT_DOUBLE,
    DT_FP16,
    DT_FP32,
    DT_HF32,
    DT_INT16,
    DT_UINT32,
    DataType,
)
from npusim.modes import CastMode
from npusim.numerics import integers, words
from npusim.numerics.codec import decode_words, encode_words
from npusim.numerics.grid import float64_to_float32, quantize_words
from npusim.numerics.params import FormatParams, format_params
from npusim.numerics.rounding import Mode
from npusim.numerics.words import F32, F64

# Pairs that clamp whatever the saturation mode (Ascend C Reg Cast page).
_ALWAYS_CLAMPS = {(DT_INT16, DT_UINT32)}


def decode(codes: Array, fmt: DataType, soc: str | None = None) -> Array:
    """Float words of the codes of a float or scale format: uint64 for FP64, else uint32."""
    if fmt in (DT_DOUBLE, DT_FP32, DT_HF32):
        return codes
    return decode_words(codes, _float_grid(fmt.on(soc)), fmt.bits)


def encode(word: Array, fmt: DataType, soc: str | None = None) -> Array:
    """Codes of float32 words that lie on the grid of ``fmt``."""
    if fmt in (DT_FP32, DT_HF32):
        return word
    return encode_words(word, _float_grid(fmt.on(soc)), fmt.bits)


def _float_grid(grid: Grid) -> FloatGrid | TaperedGrid | ScaleGrid:
    assert isinstance(grid, FloatGrid | TaperedGrid | ScaleGrid)
    return grid


def int_grid(fmt: DataType) -> IntGrid:
    """The integer grid of an integer or bool format."""
    assert isinstance(fmt.grid, IntGrid)
    return fmt.grid


def convert(
    codes: Array,
    src: DataType,
    dst: DataType,
    mode: Mode,
    saturate: Array | bool,
    *,
    soc: str | None = None,
    through_bits: int = 0,
    inf_wraps: bool = False,
) -> Array:
    """Cast codes of ``src`` to codes of ``dst`` by the laboratory's rules.

    Shape: any; elementwise.

    Special values: see `npusim.cast`. NaN comes out as the destination's canonical NaN, positive;
    casting a format to itself returns the codes.

    Args:
        codes: unsigned words of ``src``, one an element (a real format; complex casts act on the
            parts).
        src: source format.
        dst: destination format.
        mode: a CastMode other than NONE, or a traced index of `rounding.MODE_INDEX`; HYBRID only
            towards HF8 from FP32 and FP16.
        saturate: static or traced.
        soc: chip name, for formats that differ between chips.
        through_bits: see `integers.float_to_int`.
        inf_wraps: see `integers.float_to_int`.

    Source: Ascend C precision conversion page; Ascend C boundary value pages.
    """
    if src is dst:
        return codes
    if dst.kind == "bool":
        if src.kind == "scale":  # has no zero
            return jnp.ones_like(codes, np.uint8)
        return integers.nonzero(codes, _magnitude_bits(src))
    if (src, dst) in _ALWAYS_CLAMPS:
        saturate = True
    if src.kind in ("int", "bool"):
        grid = int_grid(src)
        if dst.kind == "int":
            return integers.int_to_int(codes, grid, int_grid(dst), saturate)
        if dst is DT_DOUBLE:
            return integers.int_to_float(codes, grid, mode, F64)
        if dst is DT_FP32:
            return integers.int_to_float(codes, grid, mode, F32)
        # Rounding to odd first keeps the second rounding the only one that counts.
        first = CastMode.CAST_TRUNC if dst.kind == "scale" else CastMode.CAST_ODD
        word = integers.int_to_float(codes, grid, first, F32)
    else:
        word = decode(codes, src, soc)
        if dst.kind == "int":
            codes, _ = integers.float_to_int(
                word, int_grid(dst), mode, saturate, through_bits, inf_wraps
            )
            return codes
        if dst is DT_DOUBLE:
            return words.widen(word)
        if dst is DT_FP32:
            return float64_to_float32(word, mode) if src is DT_DOUBLE else _canonical(word)
    hybrid = mode is CastMode.CAST_HYBRID
    params = _params(dst, CastMode.CAST_ROUND if hybrid else mode, saturate, soc)
    word, _ = quantize_words(word, params, from_half=src is DT_FP16, hybrid=hybrid)
    return encode(word, dst, soc)


def _canonical(word: Array) -> Array:
    return jnp.where((word & F32.magnitude) > F32.inf, words.NAN32, word)


def _magnitude_bits(fmt: DataType) -> int:
    """How many low bits of a code are all zero exactly for the value zero."""
    grid = fmt.grid
    signed_zero = isinstance(grid, FloatGrid) and grid.negative_zero
    return fmt.bits - 1 if signed_zero else fmt.bits


def _params(dst: DataType, mode: Mode, saturate: Array | bool, soc: str | None) -> FormatParams:
    static = CastMode.CAST_RINT if not isinstance(mode, CastMode) else mode
    if isinstance(saturate, bool | np.bool_):
        params = format_params(dst, static, bool(saturate), soc)
    else:
        params = jax.tree.map(
            lambda on, off: on if on == off else jnp.where(saturate, on, off),
            format_params(dst, static, True, soc),
            format_params(dst, static, False, soc),
        )
    if isinstance(mode, CastMode) or dst.kind == "scale":
        return params
    return dataclasses.replace(params, mode=mode)


def quantize(
    x: Array,
    dtype: DataType | FormatParams,
    mode: CastMode = CastMode.CAST_RINT,
    saturate: bool = True,
    *,
    soc: str | None = None,
) -> tuple[Array, Array]:
    """Round a float array onto the grid of a format, the values staying in float32.

    The raw kernel behind `npusim.fake_cast`: it has no derivative rule.

    Shape: any; elementwise.

    Args:
        x: float32, float16, bfloat16 or (under x64) float64.
        dtype: a DataType with a traced form, or FormatParams, which bring mode and saturation.
        mode: any CastMode but NONE; HYBRID towards HF8 only.
        saturate: clamp (True) or inf, NaN and low bits (False).
        soc: chip name, for formats that differ between chips.

    Returns:
        ``(values, outside)``: float32 values, and where the input was out of range, infinite or
        NaN.
    """
    hybrid = mode is CastMode.CAST_HYBRID
    if isinstance(dtype, FormatParams):
        params = dtype
    else:
        params = format_params(dtype, CastMode.CAST_ROUND if hybrid else mode, saturate, soc)
    word, outside = quantize_words(
        float_words(x),
        params,
        from_half=x.dtype == jnp.float16,
        from_bfloat16=x.dtype == jnp.bfloat16,
        hybrid=hybrid,
    )
    return words.from_words(word, np.dtype(np.float32)), outside


def float_words(x: Array) -> Array:
    """The words of a float array: uint64 for float64, else exact float32 words."""
    word = words.as_words(x)
    if x.dtype == jnp.float64 or x.dtype == jnp.float32:
        return word
    if x.dtype == jnp.bfloat16:
        return word.astype(np.uint32) << np.uint32(16)
    assert x.dtype == jnp.float16, x.dtype
    return decode(word, DT_FP16)
