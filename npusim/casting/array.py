"""The doors into and out of a format: `array`, `from_codes`, `to_codes`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from npusim import dtypes, numerics
from npusim._errors import InputError, TracedValueError, message
from npusim.casting.npuarray import NpuArray, check_packable
from npusim.casting.storage import (
    Parts,
    check_numeric,
    check_x64,
    convert_parts,
    parts,
    source,
    store,
)
from npusim.dtypes import DT_COMPLEX32, DataType
from npusim.modes import CastMode
from npusim.numerics import words


def from_codes(codes: Any, dtype: Any, packed: bool = False) -> Array | NpuArray:
    """Return values given by their codes.

    Shape: that of ``codes``; the last axis doubles if ``packed``.

    Args:
        codes: integer array of codes. Concrete codes are checked against the format's width.
        dtype: the format. A format that JAX has comes back as a jax.Array of the same bits.
        packed: ``codes`` are bytes of two 4-bit codes each.

    Raises:
        InputError: codes of another type than integer, or outside the format's width.
        X64RequiredError: a 64-bit format while x64 is off.

    Example:
        >>> import npusim as npu
        >>> npu.from_codes(np.array([0x3C01], np.uint16), "half")
        Array([1.001], dtype=float16)
    """
    fmt = dtypes.dtype(dtype)
    check_x64(fmt, "codes")
    if packed:
        check_packable(fmt)
    bits = 8 if packed else fmt.bits
    if fmt.kind == "bool":
        bits = 1
    if fmt.kind == "complex" and fmt is not DT_COMPLEX32:
        raise InputError(
            message(
                f"codes of {fmt.short}",
                "formats of at most 64 bits with one code an element",
                "Build the array from its real and imaginary parts (jax.lax.complex).",
            )
        )
    array = codes if isinstance(codes, jax.Array | np.ndarray) else np.asarray(codes)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            message(
                f"codes of dtype {array.dtype} for {fmt.short}",
                "unsigned or signed integer arrays holding bit patterns",
                f"To encode values, call npusim.array(values, {fmt.short!r}).",
            )
        )
    kind = words.unsigned(bits)
    if not isinstance(array, Tracer):
        host = np.asarray(array)
        if host.size and (int(host.max()) >= 1 << bits or int(host.min()) < 0):
            low, high = int(host.min()), int(host.max())
            given = f"code {low}" if low == high else f"codes from {low} to {high}"
            remedy = f"Give the low {bits} bits of each code."
            if fmt.bits == 4 and not packed:
                remedy += " For bytes of two codes pass packed=True."
            raise InputError(
                message(f"{given} for {fmt.short}", f"0 to {(1 << bits) - 1} ({bits} bits)", remedy)
            )
        array = host.astype(kind)
    device_codes = jnp.asarray(array).astype(kind)
    if fmt.stored_as == "codes":
        return NpuArray(device_codes, fmt, packed)
    assert fmt.jax_dtype is not None or fmt is dtypes.DT_HF32
    return words.from_words(device_codes, fmt.jax_dtype or np.dtype(np.float32))


def to_codes(x: Any, packed: bool = False) -> Array:
    """Return the bit patterns of an array or NpuArray as unsigned integers.

    Shape: that of ``x``; the last axis halves if ``packed``.

    Special values: NaN payloads are kept.

    Raises:
        InputError: not an array of a known format, or ``packed`` where it cannot be.

    Example:
        >>> import npusim as npu
        >>> npu.to_codes(npu.array([1.0, -0.5], "fp4_e2m1"), packed=True)
        Array([146], dtype=uint8)
    """
    x, fmt = source(x)
    if fmt.kind == "complex" and fmt is not DT_COMPLEX32:
        raise InputError(
            message(
                f"codes of {fmt.short}",
                "formats with one code an element",
                "Take the codes of the real and imaginary parts (jnp.real, jnp.imag).",
            )
        )
    if isinstance(x, NpuArray) and fmt is DT_COMPLEX32:
        return x.codes
    (codes,) = parts(x, fmt)
    if packed:
        check_packable(fmt)
        return numerics.pack(codes)
    return codes


def array(values: Any, dtype: Any) -> Array | NpuArray:
    """Return ``values`` in a format, rounded to nearest even and saturated where needed.

    Python numbers and NumPy float64 round once, from their full precision.

    Shape: that of ``values``.

    Special values: inf becomes MAX and NaN becomes 0 in formats that saturate (all but FP32 and
    wider); cast with ``satmode="OFF"`` to keep them.

    Gradient: none.

    Raises:
        InputError: not numbers.
        X64RequiredError: a 64-bit format while x64 is off.

    Example:
        >>> import npusim as npu
        >>> npu.array([2.6, -1.1], "fp4_e2m1").decode()
        Array([ 3., -1.], dtype=float32)
    """
    fmt = dtypes.dtype(dtype)
    check_x64(fmt, "an array")
    if isinstance(values, Tracer):
        raise TracedValueError(
            message(
                "a traced value",
                "concrete numbers",
                f"Inside jit, call npusim.cast(x, {fmt.short!r}, 'RINT', 'ON', "
                "target=npusim.Target(api='numerics')).",
            )
        )
    if isinstance(values, NpuArray):
        values = np.asarray(values.decode())
    host = np.asarray(values)
    check_numeric(host.dtype)
    src = dtypes.dtype(host.dtype)
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):  # also while jit traces
        codes = _encode(parts(host, src), src=src, dst=fmt)
        host_codes = tuple(np.asarray(code) for code in codes)
    return store(tuple(jnp.asarray(code) for code in host_codes), fmt)


@functools.partial(jax.jit, static_argnames=("src", "dst"))
def _encode(codes: Parts, src: DataType, dst: DataType) -> Parts:
    return convert_parts(codes, src, dst, CastMode.CAST_RINT, True)
