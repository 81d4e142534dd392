"""Products and quotients that keep subnormals, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.inject import scaling

RNG = np.random.default_rng(7)
EDGES = np.array(
    [0.0, -0.0, 1e-45, -1e-40, 1.1754942e-38, 1.1754944e-38, 1.0, -3.4028235e38, np.inf, -np.inf],
    np.float32,
)


def words(x):
    return np.asarray(x, np.float32).view(np.uint32)


@pytest.fixture(scope="module")
def values():
    drawn = RNG.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    return np.concatenate([drawn[~np.isnan(drawn)], EDGES])


@pytest.mark.parametrize("exponent", [-300, -150, -30, -1, 0, 1, 40, 140, 280])
def test_shift_is_ldexp_with_one_rounding(values, exponent):
    with np.errstate(over="ignore", under="ignore"):
        want = np.ldexp(values, exponent)
    for function in (scaling.shift, jax.jit(scaling.shift)):
        np.testing.assert_array_equal(words(function(values, exponent)), words(want))


@pytest.mark.parametrize("divisor", [3.0, 0.1, 448.0, 7e10, 0.25, 2.0**100])
def test_divided_is_ieee_division(values, divisor):
    with np.errstate(over="ignore", under="ignore"):
        want = (values.astype(np.float64) / float(np.float32(divisor))).astype(np.float32)
    got = np.asarray(jax.jit(lambda x: scaling.divided(x, divisor))(values))
    mapped = jax.jit(jax.vmap(lambda x: scaling.divided(x, divisor)))(values[:, None])
    np.testing.assert_array_equal(words(mapped)[:, 0], words(got))
    normal = np.abs(want) >= 2.0**-126
    np.testing.assert_array_equal(words(got[normal]), words(want[normal]))
    # A subnormal quotient is rounded twice, so it may be one step off, never flushed.
    low = ~normal
    assert np.abs(words(got[low]).astype(np.int64) - words(want[low]).astype(np.int64)).max() <= 1


@pytest.mark.parametrize("factor", [3.0, 448.0, 0.25, 2.0**-20])
def test_multiplied(values, factor):
    with np.errstate(over="ignore", under="ignore"):
        want = (values.astype(np.float64) * factor).astype(np.float32)
    got = np.asarray(jax.jit(lambda x: scaling.multiplied(x, factor))(values))
    normal = np.abs(want) >= 2.0**-126
    np.testing.assert_array_equal(words(got[normal]), words(want[normal]))
    low = ~normal
    assert np.abs(words(got[low]).astype(np.int64) - words(want[low]).astype(np.int64)).max() <= 1


@pytest.mark.parametrize("top", [448.0, 65504.0, 6.0, 1.75, 127.0, 57344.0, 32768.0])
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_to_range_and_back_are_the_plain_products(top, size):
    x = (RNG.standard_normal(3000) * size).astype(np.float32)
    amax = np.abs(x).max()
    scaled = x * (np.float32(top) / amax)
    scaled[np.abs(x) == amax] = np.sign(x[np.abs(x) == amax]) * top

    @jax.jit
    def both(x):
        words_of = scaling.largest(x), scaling.word(jnp.float32(top))
        there = scaling.to_range(x, *words_of)
        return there, scaling.from_range(there, *words_of)

    there, back = both(x)
    np.testing.assert_array_equal(words(there), words(np.clip(scaled, -top, top)))
    np.testing.assert_array_equal(words(back), words(np.asarray(there) * (amax / np.float32(top))))
    mapped = jax.jit(jax.vmap(both))(np.stack([x, x[::-1]]))
    np.testing.assert_array_equal(words(mapped[1][0]), words(back))


def test_a_tensor_of_subnormals_has_its_scale():
    x = np.array([2.0**-140, -(2.0**-149), 0.0, 2.0**-141], np.float32)
    amax = scaling.largest(x)
    assert int(amax) == 2**9
    there = scaling.to_range(x, amax, scaling.word(jnp.float32(256.0)))
    np.testing.assert_array_equal(there, [256.0, -0.5, 0.0, 128.0])
    back = scaling.from_range(there, amax, scaling.word(jnp.float32(256.0)))
    np.testing.assert_array_equal(words(back), words(x))


def test_the_largest_float_comes_back_finite():
    top = np.finfo(np.float32).max
    x = np.array([top, -top / 3], np.float32)
    amax = scaling.largest(x)
    for limit in (448.0, 127.0, 65504.0):
        bound = scaling.word(jnp.float32(limit))
        there = scaling.to_range(x, amax, bound)
        assert float(there[0]) == limit
        assert np.isfinite(np.asarray(scaling.from_range(there, amax, bound))).all()


def test_nothing_but_zero_becomes_zero():
    x = np.array([1.0, 1e-45, -1e-38, 0.0, -0.0], np.float32)
    there = np.asarray(scaling.to_range(x, scaling.largest(x), scaling.word(jnp.float32(1.75))))
    assert (words(there) & 0x7FFF_FFFF > 0).tolist() == [True, True, True, False, False]
    assert np.signbit(there).tolist() == [False, False, True, False, True]


@pytest.mark.parametrize(("special", "word"), [(np.inf, 0x7F80_0000), (np.nan, 0x7FC0_0000)])
def test_a_special_value_is_the_largest_and_unusable(special, word):
    amax = scaling.largest(np.array([1.0, special], np.float32))
    assert int(amax) == word
    assert not bool(scaling.usable(amax))
