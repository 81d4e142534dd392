"""What the casts of a function did, counted exactly, as values beside its result."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npusim._errors import InputError, UnknownNameError, message, nearest
from npusim.inject import _compat, mesh
from npusim.inject.measure import INF, measured
from npusim.inject.observer import Seen
from npusim.inject.plan import Site
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
ENDS = ("amax", "amin")
NAMES = (*COUNTS, *ENDS)
OVERFLOW = ("saturated", "overflowed", "nan_made")
"""What ``overflow`` stands for among the names of statistics."""

Chosen = bool | str | Sequence[str]
"""True for all statistics, or the names of some."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tallied:
    """The record of a site: a row for each of its casts.

    Attributes:
        low: counts modulo 2**32, ``uint32[casts, names]`` in the order of `COUNTS`.
        high: what has been carried over from them.
        amax: word of the largest magnitude, ``uint32[casts]``.
        amin: word of the smallest magnitude that is not zero.
        differs: inside shard_map, for each manual mesh axis 1 if the values differ over it,
            ``uint32[casts, axes]``.
    """

    low: jax.Array
    high: jax.Array
    amax: jax.Array
    amin: jax.Array
    differs: jax.Array


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The observer that makes them.

    Attributes:
        target: the chip whose rules the casts follow.
        names: what is counted, in the order of `NAMES`.
    """

    target: Target = LABORATORY
    names: tuple[str, ...] = NAMES

    @classmethod
    def of(cls, chosen: Chosen, target: Target = LABORATORY) -> "Statistics":
        """Return the observer of the statistics with these names.

        Example:
            >>> Statistics.of(("amax", "overflow")).names
            ('elements', 'saturated', 'overflowed', 'nan_made', 'amax')
        """
        if chosen is True:
            return cls(target)
        given = (chosen,) if isinstance(chosen, str) else chosen
        allowed = ("overflow", *NAMES[1:])
        if not isinstance(given, tuple | list) or not given:
            raise InputError(
                message(
                    f"stats={chosen!r}",
                    f"True, False, or names among {', '.join(allowed)}",
                    "Pass for example ('overflow', 'flushed', 'amax').",
                )
            )
        for name in given:
            if name not in allowed:
                raise UnknownNameError(
                    message(
                        f"stats {name!r}",
                        ", ".join(allowed),
                        f"{nearest(str(name), allowed)}Pass some of these names.",
                    )
                )
        wanted = {"elements", *given, *(OVERFLOW if "overflow" in given else ())}
        return cls(target, tuple(name for name in NAMES if name in wanted))

    @property
    def _counts(self) -> int:
        return sum(name in COUNTS for name in self.names)

    def empty(self, site: Site) -> Tallied:
        """The record of a site that did not run."""
        rows = len(slots_of(site))
        zero = jnp.zeros((rows, self._counts), jnp.uint32)
        amax = jnp.zeros(rows, jnp.uint32)
        differs = mesh.marks(frozenset(), rows)
        return Tallied(zero, zero, amax, jnp.full(rows, INF, jnp.uint32), differs)

    def record(self, site: Site, seen: Sequence[Seen]) -> Tallied:
        """The record of one execution; a recomputed one has been counted before."""
        out = self.empty(site)
        if site.recomputed:
            return out
        names = [name for name, _ in slots_of(site)]
        for one in seen:
            slot = one.slot if isinstance(one.slot, str) else f"{site.roles[one.slot]} {one.slot}"
            row = names.index(slot)
            counts, amax, amin = measured(one, self.names, self.target)
            new = Tallied(
                jnp.zeros_like(out.low).at[row].set(jnp.stack(counts)),
                jnp.zeros_like(out.high),
                jnp.zeros_like(out.amax).at[row].set(amax),
                jnp.full_like(out.amin, INF).at[row].set(amin),
                jnp.zeros_like(out.differs).at[row].set(mesh.marks(one.differs, 1)[0]),
            )
            out = self.join(out, new)
        return out

    def join(self, a: Tallied, b: Tallied) -> Tallied:
        """The record of two executions."""
        low = a.low + b.low
        high = a.high + b.high + (low < a.low).astype(jnp.uint32)
        amax, amin = jnp.maximum(a.amax, b.amax), jnp.minimum(a.amin, b.amin)
        return Tallied(low, high, amax, amin, a.differs | b.differs)


def over_mesh(records: list[Tallied]) -> list[Tallied]:
    """Return the records of all devices together; outside of shard_map those that were given.

    Every device has to take part, and gets the same.
    """
    axes = _compat.manual_axes()
    if not axes or not records:
        return records
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *records)
    low, high = together.low, together.high
    tops = jnp.column_stack([together.amax, ~together.amin, together.differs])
    for number, axis in enumerate(axes):
        low, high, tops = mesh.over_axis(low, high, tops, tops[:, 2 + number], axis)
    together = Tallied(low, high, tops[:, 0], ~tops[:, 1], tops[:, 2:])
    ends = np.cumsum([len(record.amax) for record in records])[:-1]
    leaves = zip(*(jnp.split(leaf, ends) for leaf in jax.tree.leaves(together)), strict=True)
    return [Tallied(*parts) for parts in leaves]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["sites", "names"]
)
@dataclasses.dataclass(frozen=True)
class Stats:
    """What every cast of a function did: a pytree of arrays whose structure carries the sites.

    Attributes:
        sites: the sites that are cast.
        values: the record of each.
        names: what was counted.
    """

    sites: tuple[Site, ...]
    values: list[Tallied]
    names: tuple[str, ...] = NAMES

    @property
    def overflow(self) -> jax.Array:
        """Whether any cast saturated, overflowed to infinity or made a NaN: a traced bool.

        Raises:
            InputError: this was not among the statistics asked for.
        """
        if not set(OVERFLOW) <= set(self.names):
            raise InputError(
                message(
                    f"the overflow flag of statistics of {', '.join(self.names)}",
                    f"statistics with {', '.join(OVERFLOW)}",
                    "Name overflow among stats.",
                )
            )
        columns = np.array([self.names.index(name) for name in OVERFLOW])
        up = jnp.asarray(False)
        for record in self.values:
            up = up | jnp.any((record.low | record.high)[..., columns] != 0)
        return up

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each cast: where it stands, counts as int, amax and amin as float.

        Under vmap the counts of all examples are added. It reads the values, so it runs outside of
        jit. ``amin`` is the smallest magnitude that is not zero, inf where there is none; ``amax``
        is NaN where an element was.
        """
        rows = []
        names = [name for name in self.names if name in COUNTS]
        for site, record in zip(self.sites, self.values, strict=True):
            slots = slots_of(site)
            if not slots:
                continue
            low, high = (
                np.asarray(part).reshape(-1, len(slots), len(names)).astype(object)
                for part in (record.low, record.high)
            )
            counts = (low + (high * 2**32)).sum(0)
            amax = _values(record.amax, len(slots)).max(0).view(np.float32)
            amin = _values(record.amin, len(slots)).min(0).view(np.float32)
            for row, (slot, cast) in enumerate(slots):
                place = {"path": site.path, "op": site.op, "direction": site.direction}
                numbers = dict(zip(names, map(int, counts[row]), strict=True))
                ends = {"amax": float(amax[row]), "amin": float(amin[row])}
                ends = {name: ends[name] for name in ENDS if name in self.names}
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
