"""What kernels of operators share: widening, storing, an exact division, close functions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from npusim.casting import NpuArray, cast
from npusim.dtypes import DT_FP32, DataType
from npusim.modes import LABORATORY
from npusim.numerics import words


def widen(x: Array | NpuArray, dtype: DataType) -> Array:
    """An operand in the type that its operator computes in; exact but for integers in floats."""
    if not isinstance(x, NpuArray):
        if x.dtype == dtype.jax_dtype:
            return x
        if dtype is DT_FP32 and x.dtype in (jnp.float16, jnp.bfloat16):
            return x.astype(jnp.float32)
    out = cast(x, dtype, "RINT", "OFF", target=LABORATORY)
    assert isinstance(out, jax.Array)
    return out


def stored(x: Array, dtype: DataType, saturate: bool) -> Array | NpuArray:
    """A computed value in the type of the result.

    Floats round once, to nearest even; integers keep their low bits, floats with a fraction lose it
    first; a bool asks for unequal to 0.

    Gradient: straight-through between floats.
    """
    if x.dtype == dtype.jax_dtype:
        return x
    to_int = dtype.kind == "int"
    mode = "TRUNC" if to_int and jnp.issubdtype(x.dtype, np.floating) else "RINT"
    satmode = saturate and not to_int
    return cast(x, dtype, mode, satmode, target=LABORATORY)


@jax.custom_jvp
def divide(x: Array, y: Array) -> Array:
    """Return ``x / y``, each quotient rounded once.

    XLA turns a division by a constant or by a broadcast array into a product with its reciprocal,
    which rounds twice. Here the divisor is made to depend on every element of ``x`` (by a bit that
    is always 0), so that it is neither, also when vmap broadcasts it later.

    Shape: the operands broadcast.

    Special values: those of IEEE division; subnormals follow the backend.

    Gradient: that of the quotient.

    Source: IEEE 754.

    Example:
        >>> float(divide(jnp.float32(5.0), jnp.float32(3.0))).hex()
        '0x1.aaaaaa0000000p+0'
    """
    if jnp.issubdtype(x.dtype, np.complexfloating):
        return lax.div(*jnp.broadcast_arrays(x, y))
    x, y = jnp.broadcast_arrays(x, y)
    bits = words.as_words(x)
    last = bits.dtype.type(bits.dtype.itemsize * 8 - 1)
    zero = (bits >> last) >> bits.dtype.type(1)
    return lax.div(x, words.from_words(words.as_words(y) | zero, y.dtype))


@divide.defjvp
def _divide_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]):
    (x, y), (dx, dy) = primals, tangents
    quotient = divide(x, y)
    return quotient, (dx - quotient * dy) / y


def close(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Evaluate a real function of float32 in float64 and round once.

    XLA's own float32 functions are off by up to 5 units in the last place (erf, tanh). The switch
    to 64-bit types is local: both ends are float32, so callers need not have them on.

    Gradient: of ``function``, in float32.
    """

    @jax.custom_jvp
    @functools.wraps(function)
    def rounded(x: Array) -> Array:
        with jax.enable_x64(True):
            wide = function(lax.convert_element_type(x, np.float64))
            return lax.convert_element_type(wide, np.float32)

    @rounded.defjvp
    def _jvp(primals: tuple[Array], tangents: tuple[Array]):
        return rounded(*primals), jax.jvp(function, primals, tangents)[1]

    return rounded
