"""What one cast did, counted by one reduction."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim.inject.apply import apply_cast
from npusim.inject.observer import Seen
from npusim.inject.spec import CastSpec
from npusim.modes import Target

INF = 0x7F80_0000
"""The magnitude word of infinity: that of the smallest element where there is none."""
_MAGNITUDE = 0x7FFF_FFFF


def measured(
    seen: Seen, names: tuple[str, ...], target: Target
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Return counts, largest and smallest magnitude word of one cast.

    Args:
        seen: the cast.
        names: what to count, without ``elements``; ``amax`` and ``amin`` are 0 and infinity where
            they are not among them.
        target: the chip whose rules the cast followed.
    """
    before, after = (lax.stop_gradient(jnp.asarray(x)) for x in (seen.before, seen.after))
    wide = np.float64 if jnp.float64 in (before.dtype, after.dtype) else np.float32
    bits, got = (_word(x.astype(wide)) for x in (before, after))
    unsigned = bits.dtype.type
    places = np.finfo(wide).nmant
    sign = unsigned(1) << unsigned(8 * np.dtype(wide).itemsize - 1)
    infinity = ~np.array(0, unsigned) << unsigned(places) & ~sign
    magnitude, result = bits & ~sign, got & ~sign
    nan, finite = magnitude > infinity, result < infinity
    zero = np.zeros((), unsigned)

    def saturated() -> jax.Array:
        return _beyond(seen.spec, before, target) & finite & ~nan

    conditions: dict[str, Callable[[], jax.Array]] = {
        "saturated": saturated,
        "overflowed": lambda: (result == infinity) & (magnitude < infinity),
        "nan_made": lambda: (result > infinity) & ~nan,
        "flushed": lambda: (result == zero) & (magnitude != zero) & ~nan,
        "inexact": lambda: (
            (bits != got) & ~((magnitude | result) == zero) & ~(nan & (result > infinity))
        ),
        "negative": lambda: (bits >= sign) & (magnitude != zero) & ~nan & _is_unsigned(seen.spec),
    }
    word = magnitude if wide is np.float32 else _word(before.astype(np.float32)) & _MAGNITUDE
    word = word.astype(jnp.uint32)
    ends: dict[str, Callable[[], jax.Array]] = {
        "amax": lambda: word,
        "amin": lambda: jnp.where((word == 0) | (word > INF), jnp.uint32(INF), word),
    }
    joins = {"amax": (lax.max, np.uint32(0)), "amin": (lax.min, np.uint32(INF))}
    wanted = [name for name in (*conditions, *ends) if name in names]
    operands = [
        conditions[name]().astype(jnp.uint32) if name in conditions else ends[name]()
        for name in wanted
    ]
    how = [joins.get(name, (lax.add, np.uint32(0))) for name in wanted]

    def combine(a: Any, b: Any) -> tuple[Any, ...]:
        return tuple(join(x, y) for (join, _), x, y in zip(how, a, b, strict=True))

    starts = tuple(start for _, start in how)
    found = lax.reduce(tuple(operands), starts, combine, tuple(range(before.ndim)))
    by_name = dict(zip(wanted, found, strict=True))
    # Traced like the others, so that a mapped axis is there for all of them.
    zeros = found[0] ^ found[0]
    amax, amin = (by_name.get(name, zeros | joins[name][1]) for name in ("amax", "amin"))
    elements = zeros | np.uint32(before.size % 2**32)
    return [elements, *(by_name[name] for name in names if name in conditions)], amax, amin


def _word(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.uint64 if x.dtype == jnp.float64 else jnp.uint32)


def _beyond(spec: CastSpec, x: jax.Array, target: Target) -> jax.Array:
    """Where an element leaves the format's range, or is infinite or NaN.

    The gradient rule "clip" is zero exactly there, scale and intermediate format included.
    """
    clip = dataclasses.replace(spec, ste="clip")
    _, passes = jax.jvp(lambda v: apply_cast(clip, v, target=target), (x,), (jnp.ones_like(x),))
    return lax.stop_gradient(passes == 0)


def _is_unsigned(spec: CastSpec) -> Any:
    """Whether the format has no negative values."""
    if spec.traced:
        return (spec.dtype.sign == 0) | (spec.dtype.max_negative == 0)
    return np.bool_(spec.dtype.min >= 0)
