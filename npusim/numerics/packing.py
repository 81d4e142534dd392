"""Two 4-bit codes to a byte, element 0 in the low nibble."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim._errors import InputError, message


def pack(codes: Array) -> Array:
    """Pack 4-bit codes along the last axis.

    Shape: ``(..., 2n)`` to ``(..., n)``, uint8.

    Raises:
        InputError: the last axis is odd or missing.

    Source: vendor test generators (int4 and both FP4): element 2k in bits 3..0.

    Example:
        >>> pack(jnp.array([1, 2], jnp.uint8))
        Array([33], dtype=uint8)
    """
    if codes.ndim == 0 or codes.shape[-1] % 2:
        axis = codes.ndim - 1
        size = codes.shape[-1] if codes.ndim else "none"
        raise InputError(
            message(
                f"shape {tuple(codes.shape)} to pack two to a byte (axis {axis} has length {size})",
                "an even length of the last axis",
                "Pad the last axis by one element (jnp.pad), or pass packed=False.",
            )
        )
    pairs = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << np.uint8(4))


def unpack(packed: Array) -> Array:
    """Undo `pack`: ``(..., n)`` bytes to ``(..., 2n)`` codes.

    Example:
        >>> unpack(jnp.array([33], jnp.uint8))
        Array([1, 2], dtype=uint8)
    """
    pairs = jnp.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1)
