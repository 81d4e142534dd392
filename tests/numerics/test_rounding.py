"""The rules on small words, against the text of the rounding table, and their traced form."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.modes import CastMode
from npusim.numerics.rounding import MODE_INDEX, RULES, addend

BITS = 4  # kept 2, discarded 2


def carries(mode, kept, discarded, width, negative):
    """Whether the kept part grows by one: the table of rounding modes, bit by bit."""
    first = discarded >> (width - 1) & 1
    rest = discarded & ((1 << (width - 1)) - 1)
    last = kept & 1
    match mode:
        case CastMode.CAST_RINT:
            return bool(first and (rest or last))
        case CastMode.CAST_ROUND:
            return bool(first)
        case CastMode.CAST_FLOOR:
            return bool(negative and discarded)
        case CastMode.CAST_CEIL:
            return bool(not negative and discarded)
        case CastMode.CAST_TRUNC:
            return False
        case CastMode.CAST_ODD:
            return bool(discarded and not last)
    raise AssertionError(mode)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64], ids=["32", "64"])
@pytest.mark.parametrize("mode", RULES, ids=lambda m: m.short)
def test_rule_and_traced_rule(mode, kind):
    cases = [
        (kept, discarded, width, negative)
        for width in (0, 1, 2, 3)
        for kept, discarded, negative in itertools.product(range(4), range(1 << width), (0, 1))
    ]
    kept, discarded, width, negative = (np.array(c, kind) for c in zip(*cases, strict=True))
    ulp = kind(1) << width
    with jax.enable_x64(True):
        static = np.asarray(addend(mode, *map(jnp.asarray, (ulp, kept & kind(1), negative))))
        index = jnp.int32(MODE_INDEX[mode])
        traced = np.asarray(
            jax.jit(addend)(index, *map(jnp.asarray, (ulp, kept & kind(1), negative)))
        )
    assert traced.dtype == static.dtype == kind
    np.testing.assert_array_equal(traced, static)
    got = (discarded + static) >> width
    want = [
        width > 0 and carries(mode, k, d, width, n)
        for k, d, width, n in (map(int, c) for c in cases)
    ]
    np.testing.assert_array_equal(got.astype(bool), want)
