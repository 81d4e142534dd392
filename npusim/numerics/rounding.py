"""The rounding rules, one function each.

A rule answers: what has to be added to the word before the bits under ``mask`` are cut off?
Arguments, shared by all: ``mask`` ones on the bits to be discarded (0 if none are), ``odd`` the
last kept bit (0 or 1), ``negative`` the sign (0 or 1); unsigned words of one width.

Source: table 1 of the Ascend C precision conversion page.
"""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

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
    """Apply the rule of ``mode``, a CastMode or a traced index out of `MODE_INDEX`."""
    if isinstance(mode, CastMode):
        return RULES[mode](mask, odd, negative)
    return _traced_addend(mode, mask, odd, negative)


def _traced_addend(mode: Any, mask: Array, odd: Array, negative: Array) -> Array:
    """All rules at once, chosen by words that are all ones or zero.

    Two families, nearest and directed, with half the operations of six rules and five selections.
    (A switch on the mode would break the fusion.) A test holds this to `RULES`.
    """
    word = mask.dtype.type

    def when(*modes: CastMode) -> Array:
        chosen = jnp.bool_(False)
        for candidate in modes:
            chosen = chosen | (mode == MODE_INDEX[candidate])
        return jnp.where(chosen, ~word(0), word(0))

    nearest = (mask >> 1) + ((odd | when(CastMode.CAST_ROUND)) & mask & word(1))
    up = jnp.where(negative != 0, when(CastMode.CAST_FLOOR), when(CastMode.CAST_CEIL))
    up = up | (when(CastMode.CAST_ODD) & (odd - word(1)))
    return (nearest & when(CastMode.CAST_RINT, CastMode.CAST_ROUND)) | (mask & up)
