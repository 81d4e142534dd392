"""Inside shard_map: over which mesh axes values differ, and counts summed over them.

A value that every device along an axis holds alike is one value and counts once. JAX's types say
over which axes a value may differ; a value that was only declared to differ (``pvary``, which JAX
puts in front of an operation whose operands differ over different axes) is followed back.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim.inject import _compat

Axes = frozenset[str]
Spread = dict[Any, Axes]
"""The axes over which each variable of a jaxpr differs."""

_NONE: Axes = frozenset()
_DECLARED = ("pvary",)
# Their result differs between devices whose operands are alike.
_MAKE_DIFFERENT = ("axis_index", "all_to_all", "pgather", "ppermute", "reduce_scatter")


def spreads(jaxpr: Any) -> Spread:
    """Return the manual mesh axes over which each variable of a jaxpr differs.

    Empty outside of shard_map. With ``check_vma=False`` JAX does not know, and every variable is
    taken to differ over every axis.
    """
    axes = frozenset(_compat.manual_axes())
    if not axes:
        return {}
    eqns = jaxpr.eqns
    if not _compat.tracks_axes():
        made = (var for eqn in eqns for var in eqn.outvars)
        return dict.fromkeys((*jaxpr.constvars, *jaxpr.invars, *made), axes)
    known: Spread = {
        var: _compat.differs_over(var.aval) for var in (*jaxpr.constvars, *jaxpr.invars)
    }
    for eqn in eqns:
        read = [atom for atom in eqn.invars if not _compat.is_literal(atom)]
        declared: Axes = _NONE.union(*(_compat.differs_over(atom.aval) for atom in read))
        really: Axes = _NONE.union(*(known[atom] for atom in read))
        name = _compat.name_of(eqn)
        for var in eqn.outvars:
            own = _compat.differs_over(var.aval)
            makes = name in _MAKE_DIFFERENT or (name not in _DECLARED and not own <= declared)
            known[var] = own if makes or _compat.bodies(eqn) else own & really
    return known


def over_axis(low: Any, high: Any, tops: Any, differs: Any, axis: str) -> tuple[Any, Any, Any]:
    """Return counts and maxima of all devices along one manual mesh axis.

    Args:
        low: counts modulo 2**32, ``uint32[rows, counts]``.
        high: what was carried over from them.
        tops: ``uint32[rows, ...]``, of which the largest is wanted.
        differs: ``uint32[rows]``, 1 where the counted values differ over the axis: these counts are
            added; of the others, the same on each device that counted, the largest is taken.
        axis: name of the axis.
    """
    half, carry = np.uint32(0xFFFF), np.uint32(16)
    lower, upper, higher = lax.psum((low & half, low >> carry, high), axis)
    upper = upper + (lower >> carry)
    added = (lower & half) | (upper << carry), higher + (upper >> carry)
    largest, tops = lax.pmax((high, tops), axis)
    own = lax.pmax(jnp.where(high == largest, low, np.uint32(0)), axis)
    add = lax.pmax(differs, axis)[..., None] != 0
    return jnp.where(add, added[0], own), jnp.where(add, added[1], largest), tops


def marks(axes: Axes, rows: int) -> jax.Array:
    """Return ``uint32[rows, manual axes]``, 1 for the axes that are in ``axes``."""
    names = _compat.manual_axes()
    return jnp.broadcast_to(jnp.array([n in axes for n in names], jnp.uint32), (rows, len(names)))
