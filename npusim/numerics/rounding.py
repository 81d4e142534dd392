"""The rounding rules, one function each.

A rule answers: what has to be added to the word before the bits under ``mask`` are cut off?
Arguments, shared by all: ``mask`` ones on the bits to be discarded (0 if none are), ``odd`` the
last kept bit (0 or 1), ``negative`` the sign (0 or 1); unsigned words of one width.

Source: table 1 of the Ascend C precision conversion page.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim.modes import CastMode

Rule = Callable[[Array, Array, Array], Array]


def rint(mask: Array, odd: Array, negative: Array) -> Array:
    """To nearest, a tie to the even last bit."""
    del negative
    return (mask >> 1) + (odd & mask)


def floor(mask: Array, odd: Array, negative: Array) -> Array:
    """Towards minus infinity: a negative magnitude grows if anything is lost."""
    del odd
    return mask & (~negative + 1)


def ceil(mask: Array, odd: Array, negative: Array) -> Array:
    """Towards plus infinity: a positive magnitude grows if anything is lost."""
    del odd
    return mask & (negative - 1)


def round_away(mask: Array, odd: Array, negative: Array) -> Array:
    """To nearest, a tie away from zero."""
    del odd, negative
    return (mask >> 1) + (mask & 1)


def trunc(mask: Array, odd: Array, negative: Array) -> Array:
    """Towards zero."""
    del odd, negative
    return mask & 0


def to_odd(mask: Array, odd: Array, negative: Array) -> Array:
    """Truncate, and set the last kept bit if anything was lost (von Neumann)."""
    del negative
    return mask & (odd - 1)


RULES: dict[CastMode, Rule] = {
    CastMode.CAST_RINT: rint,
    CastMode.CAST_FLOOR: floor,
    CastMode.CAST_CEIL: ceil,
    CastMode.CAST_ROUND: round_away,
    CastMode.CAST_TRUNC: trunc,
    CastMode.CAST_ODD: to_odd,
}
assert RULES.keys() == set(CastMode) - {CastMode.CAST_NONE, CastMode.CAST_HYBRID}

# The index a traced mode carries: the position of its rule in RULES.
MODE_INDEX: dict[CastMode, int] = {mode: index for index, mode in enumerate(RULES)}

Mode = CastMode | Array | np.int32

DIRECTED = (CastMode.CAST_FLOOR, CastMode.CAST_CEIL)  # the rules that look at the sign


def addend(mode: Mode, mask: Any, odd: Any, negative: Any) -> Any:
    """Apply the rule of ``mode``, a CastMode or a traced index out of `MODE_INDEX`.

    A traced mode is chosen by `where`: a switch would break the fusion.
    """
    if isinstance(mode, CastMode):
        return RULES[mode](mask, odd, negative)
    out = RULES[CastMode.CAST_TRUNC](mask, odd, negative)
    for candidate, rule in RULES.items():
        if candidate is not CastMode.CAST_TRUNC:
            out = jnp.where(mode == MODE_INDEX[candidate], rule(mask, odd, negative), out)
    return out
