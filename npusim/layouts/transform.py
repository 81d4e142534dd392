"""`trans_data`: the same elements in another data format."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from npusim._errors import InputError, X64RequiredError, message
from npusim.dtypes import DataType
from npusim.dtypes import dtype as data_type
from npusim.layouts.formats import DataFormat, data_format
from npusim.layouts.places import as_shape
from npusim.layouts.plan import Plan, plan

if TYPE_CHECKING:
    import jax


def _store(made: Plan, x: "jax.Array") -> "jax.Array":
    import jax.numpy as jnp

    x = jnp.transpose(x, made.order)
    missing = [(0, n - size) for n, size in zip(made.padded, x.shape, strict=True)]
    x = jnp.pad(x, missing) if any(after for _, after in missing) else x
    return x.reshape(made.parts).transpose(made.places).reshape(made.storage)


def _restore(made: Plan, x: "jax.Array") -> "jax.Array":
    x = x.reshape(tuple(made.parts[place] for place in made.places))
    x = x.transpose(tuple(made.places.index(part) for part in range(len(made.parts))))
    x = x.reshape(made.padded)[tuple(slice(made.shape[axis]) for axis in made.order)]
    return x.transpose(tuple(made.order.index(axis) for axis in range(len(made.shape))))


@functools.cache
def _moves():
    """The two directions, made on first use so that importing this module does not import JAX."""
    import jax
    import jax.numpy as jnp

    def run(made: Plan, forward: bool, x: jax.Array) -> jax.Array:
        return _store(made, x) if forward else _restore(made, x)

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
    def move(made: Plan, forward: bool, x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return run(made, forward, x)
        # Moved as integers: XLA on CPU pads bfloat16 and float8 through float32 and so quiets
        # signalling NaNs, and float8_e8m0fnu has no zero to pad with.
        bits = jnp.uint4 if x.dtype.itemsize == 1 and jnp.finfo(x.dtype).bits == 4 else None
        bits = bits or jnp.dtype(f"uint{8 * x.dtype.itemsize}")
        words = jax.lax.bitcast_convert_type(x, bits)
        return jax.lax.bitcast_convert_type(run(made, forward, words), x.dtype)

    @move.defjvp
    def _(made: Plan, forward: bool, primals: Any, tangents: Any):
        return move(made, forward, *primals), run(made, forward, *tangents)

    # One compilation a plan, also outside jit, instead of one for each step.
    return jax.jit(move, static_argnums=(0, 1))


def _check_x64(row: DataType) -> None:
    import jax

    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    if row.needs_x64 and not x64:
        raise X64RequiredError(
            message(
                f"an array of {row} while jax_enable_x64 is off",
                "types of up to 32 bits",
                "Switch jax_enable_x64 on, or cast the array to a narrower type yourself.",
            )
        )


def trans_data(
    x: Any,
    src: DataFormat | str,
    dst: DataFormat | str,
    *,
    shape: Sequence[int] | None = None,
    c0: int | None = None,
) -> Any:
    """Return the elements of ``x`` in another data format, padded with zeros where it has tiles.

    Args:
        x: array in format ``src``; a NumPy array becomes a jax.Array, an NpuArray stays one.
        src: its format.
        dst: the format to return.
        shape: from a private format, the public shape to cut the padding down to; without it the
            padding stays, where the stored shape tells the public one at all.
        c0: width of a tile; by default that of the data type (`default_c0`), and from a private
            format the size of the last axis.

    Shape: by the formats; `storage_shape` tells it.

    Special values: bits are moved, never computed with, so NaN payloads and -0 stay. Padding is
    all-zero bits, which in FP8E8M0 means 2^-127.

    Gradient: exact in both modes; the cotangent of padding is dropped.

    Raises:
        InputError: an impossible conversion (the text says what is possible), a wrong rank, a shape
            that does not fit.
        X64RequiredError: a 64-bit NumPy array while JAX runs without 64-bit types.
        UnknownNameError: an unknown format.

    Source: hicann/ge transfer_shape_utils.cc and base/formats/format_transfers.

    Example:
        >>> import numpy as np
        >>> x = np.arange(6, dtype=np.float16).reshape(1, 3, 1, 2)
        >>> y = trans_data(x, "NCHW", "NC1HWC0", c0=2)
        >>> y.shape, y.tolist()
        ((1, 2, 1, 2, 2), [[[[[0.0, 2.0], [1.0, 3.0]]], [[[4.0, 0.0], [5.0, 0.0]]]]])
        >>> trans_data(y, "NC1HWC0", "NCHW", shape=(1, 3, 1, 2)).tolist() == x.tolist()
        True
    """
    src, dst = data_format(src), data_format(dst)
    public = None if shape is None else as_shape(shape)
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        raise InputError(
            message(
                f"x of type {type(x).__name__}",
                "a jax.Array, a NumPy array, an NpuArray",
                "Make an array of it, so that it has a data type.",
            )
        )
    row = data_type(x.dtype)
    # An NpuArray: its codes move, one to an element.
    coded = x.unpack() if hasattr(x, "codes") else None
    made, forward = plan(src, dst, tuple(x.shape), public, row, c0)
    _check_x64(row)
    if coded is None:
        return _moves()(made, forward, x)
    codes = _moves()(made, forward, coded.codes)
    moved = dataclasses.replace(coded, codes=codes)
    return moved.pack() if x.packed else moved
