"""What the casts of a function did, counted exactly, as values beside its result."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim.inject.apply import apply_cast
from npusim.inject.observer import Seen
from npusim.inject.plan import Site
from npusim.inject.spec import CastSpec
from npusim.modes import LABORATORY, Target

COUNTS = (
    "elements",
    "saturated",
    "overflowed",
    "nan_made",
    "flushed",
    "inexact",
    "negative",
)
_UP = ("saturated", "overflowed", "nan_made")
_INF = 0x7F80_0000
_MAGNITUDE = 0x7FFF_FFFF


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tallied:
    """The record of a site: a row for each of its casts.

    Attributes:
        low: counts modulo 2**32, ``uint32[casts, 7]`` in the order of `COUNTS`.
        high: what has been carried over from them.
        amax: word of the largest magnitude, ``uint32[casts]``.
        amin: word of the smallest magnitude that is not zero.
    """

    low: jax.Array
    high: jax.Array
    amax: jax.Array
    amin: jax.Array


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The observer that makes them."""

    target: Target = LABORATORY

    def empty(self, site: Site) -> Tallied:
        """The record of a site that did not run."""
        rows = len(slots_of(site))
        zero = jnp.zeros((rows, len(COUNTS)), jnp.uint32)
        amax = jnp.zeros(rows, jnp.uint32)
        return Tallied(zero, zero, amax, jnp.full(rows, _INF, jnp.uint32))

    def record(self, site: Site, seen: Sequence[Seen]) -> Tallied:
        """The record of one execution; a recomputed one has been counted before."""
        out = self.empty(site)
        if site.recomputed:
            return out
        names = [name for name, _ in slots_of(site)]
        for one in seen:
            slot = one.slot if isinstance(one.slot, str) else f"{site.roles[one.slot]} {one.slot}"
            row = names.index(slot)
            counts, amax, amin = _measured(one, self.target)
            new = Tallied(
                jnp.zeros_like(out.low).at[row].set(counts),
                jnp.zeros_like(out.high),
                jnp.zeros_like(out.amax).at[row].set(amax),
                jnp.full_like(out.amin, _INF).at[row].set(amin),
            )
            out = self.join(out, new)
        return out

    def join(self, a: Tallied, b: Tallied) -> Tallied:
        """The record of two executions."""
        low = a.low + b.low
        high = a.high + b.high + (low < a.low).astype(jnp.uint32)
        return Tallied(low, high, jnp.maximum(a.amax, b.amax), jnp.minimum(a.amin, b.amin))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["sites"])
@dataclasses.dataclass(frozen=True)
class Stats:
    """What every cast of a function did: a pytree of arrays whose structure carries the sites.

    Attributes:
        sites: the sites that are cast.
        values: the record of each.
    """

    sites: tuple[Site, ...]
    values: list[Tallied]

    @property
    def overflow(self) -> jax.Array:
        """Whether any cast saturated, overflowed to infinity or made a NaN: a traced bool."""
        columns = np.array([COUNTS.index(name) for name in _UP])
        up = jnp.asarray(False)
        for record in self.values:
            up = up | jnp.any((record.low | record.high)[..., columns] != 0)
        return up

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each cast: where it stands, its counts as int, amax and amin as float.

        Under vmap the counts of all examples are added. It reads the values, so it runs outside of
        jit. ``amin`` is the smallest magnitude that is not zero, inf where there is none; ``amax``
        is NaN where an element was.
        """
        rows = []
        for site, record in zip(self.sites, self.values, strict=True):
            slots = slots_of(site)
            if not slots:
                continue
            low, high = (
                np.asarray(part).reshape(-1, len(slots), len(COUNTS)).astype(object)
                for part in (record.low, record.high)
            )
            counts = (low + (high * 2**32)).sum(0)
            amax = _values(record.amax, len(slots)).max(0).view(np.float32)
            amin = _values(record.amin, len(slots)).min(0).view(np.float32)
            for row, (slot, cast) in enumerate(slots):
                place = {"path": site.path, "op": site.op, "direction": site.direction}
                numbers = dict(zip(COUNTS, map(int, counts[row]), strict=True))
                ends = {"amax": float(amax[row]), "amin": float(amin[row])}
                rows.append({**place, "slot": slot, "cast": cast, **numbers, **ends})
        return rows

    def __str__(self) -> str:
        rows = self.table()
        if not rows:
            return "no casts"
        names = list(rows[0])
        lines = [names, *([_shown(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def slots_of(site: Site) -> list[tuple[str, str]]:
    """Return the casts of a site that happen where it stands: (slot, cast).

    The cotangent that comes back under ``grad(simulate(f))`` is cast in the backward pass, which
    the forward one does not see.
    """
    return [(slot, cast) for slot, cast in site.casts if slot not in ("grad", "accumulate")]


def _values(words: Any, rows: int) -> np.ndarray:
    return np.asarray(words, np.uint32).reshape(-1, rows)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _measured(seen: Seen, target: Target) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The counts, the largest and the smallest magnitude of one cast, by one reduction."""
    before, after = (lax.stop_gradient(jnp.asarray(x)) for x in (seen.before, seen.after))
    size = before.size
    beyond = _beyond(seen.spec, before, target)
    wide = np.float64 if jnp.float64 in (before.dtype, after.dtype) else np.float32
    bits, got = (_word(x.astype(wide)) for x in (before, after))
    unsigned = bits.dtype.type
    places = np.finfo(wide).nmant
    sign = unsigned(1) << unsigned(8 * np.dtype(wide).itemsize - 1)
    infinity = ~np.array(0, unsigned) << unsigned(places) & ~sign
    magnitude, result = bits & ~sign, got & ~sign
    nan, finite = magnitude > infinity, result < infinity
    zero = np.zeros((), unsigned)
    negative = (bits >= sign) & (magnitude != zero) & ~nan & _is_unsigned(seen.spec)
    conditions = [
        beyond & finite & ~nan,
        (result == infinity) & (magnitude < infinity),
        (result > infinity) & ~nan,
        (result == zero) & (magnitude != zero) & ~nan,
        (bits != got) & ~((magnitude | result) == zero) & ~(nan & (result > infinity)),
        negative,
    ]
    word = magnitude if wide is np.float32 else _word(before.astype(np.float32)) & _MAGNITUDE
    word = word.astype(jnp.uint32)
    flags = [condition.astype(jnp.uint32) for condition in conditions]
    smallest = jnp.where((word == 0) | (word > _INF), jnp.uint32(_INF), word)
    operands = (*flags, word, smallest)
    starts = (*[np.uint32(0)] * (len(flags) + 1), np.uint32(_INF))

    def combine(a: Any, b: Any) -> Any:
        added = [x + y for x, y in zip(a[:-2], b[:-2], strict=True)]
        return (*added, lax.max(a[-2], b[-2]), lax.min(a[-1], b[-1]))

    *counts, amax, amin = lax.reduce(operands, starts, combine, tuple(range(before.ndim)))
    # Traced like the others, so that a mapped axis is there for all of them.
    elements = jnp.full_like(counts[0], size % 2**32)
    return jnp.stack([elements, *counts]), amax, amin


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
