"""The rounding rules, one function each.

A rule answers: what has to be added to the word before everything below its last kept bit is cut
off? Arguments, shared by all, unsigned words of one width: ``ulp`` the weight of that bit (1 if
nothing is cut off), ``odd`` zero if the bit is not set, ``negative`` zero if the sign is not.

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


def rint(ulp: Array, odd: Array, negative: Array) -> Array:
    """To nearest, a tie to the even last bit."""
    del negative
    return jnp.where(odd == 0, ulp - 1, ulp) >> 1


def floor(ulp: Array, odd: Array, negative: Array) -> Array:
    """Towards minus infinity: a negative magnitude grows if anything is lost."""
    del odd
    return jnp.where(negative != 0, ulp - 1, 0)


def ceil(ulp: Array, odd: Array, negative: Array) -> Array:
    """Towards plus infinity: a positive magnitude grows if anything is lost."""
    del odd
    return jnp.where(negative == 0, ulp - 1, 0)


def round_away(ulp: Array, odd: Array, negative: Array) -> Array:
    """To nearest, a tie away from zero."""
    del odd, negative
    return ulp >> 1


def trunc(ulp: Array, odd: Array, negative: Array) -> Array:
    """Towards zero."""
    del odd, negative
    return ulp & 0


def to_odd(ulp: Array, odd: Array, negative: Array) -> Array:
    """Truncate, and set the last kept bit if anything was lost (von Neumann)."""
    del negative
    return jnp.where(odd == 0, ulp - 1, 0)


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


def addend(mode: Mode, ulp: Any, odd: Any, negative: Any) -> Any:
    """Apply the rule of ``mode``, a CastMode or a traced index out of `MODE_INDEX`."""
    if isinstance(mode, CastMode):
        return RULES[mode](ulp, odd, negative)
    return _traced_addend(mode, ulp, odd, negative)


def _traced_addend(mode: Any, ulp: Array, odd: Array, negative: Array) -> Array:
    """All rules at once, chosen by scalars; a test holds this to `RULES`.

    Every rule is ``ulp`` or ``ulp - 1`` or 0, by a bit that is the last kept one, the sign, or no
    bit at all; the nearest rules halve that. (A switch on the mode would break the fusion.)
    """
    word = ulp.dtype.type
    index = jnp.asarray(mode).astype(word)

    def among(*modes: CastMode) -> Array:
        listed = word(sum(1 << MODE_INDEX[one] for one in modes))
        return (listed >> index) & word(1)

    def ones(bit: Array) -> Array:
        return ~bit + word(1)

    parity = among(CastMode.CAST_RINT, CastMode.CAST_ODD)
    nearest = among(CastMode.CAST_RINT, CastMode.CAST_ROUND)
    bit = (odd & ones(parity)) | (negative & ones(among(*DIRECTED)))
    where_set = among(CastMode.CAST_FLOOR, CastMode.CAST_ROUND, CastMode.CAST_TRUNC) != 0
    return jnp.where((bit != 0) == where_set, ulp - word(1), ulp & ones(nearest)) >> nearest
