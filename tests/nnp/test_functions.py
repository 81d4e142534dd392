"""Transcendental functions within one unit in the last place; composite operators."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from scipy import special

import npusim.numpy as nnp

REFERENCE = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": special.erf,
    "sigmoid": special.expit,
    "silu": lambda x: x * special.expit(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "expm1": np.expm1,
    "log1p": np.log1p,
}
BF16 = np.dtype(ml_dtypes.bfloat16)


def _ulps(got, want, bits, min_exponent, largest):
    """Distance in units in the last place, where the result is finite and normal in float32."""
    got = got.astype(np.float64)
    keep = np.isfinite(want) & (np.abs(want) < largest) & (np.abs(want) >= 2.0**-126)
    exponent = np.maximum(np.frexp(want[keep])[1] - 1, min_exponent)
    return np.abs(got[keep] - want[keep]) / np.ldexp(1.0, exponent - bits)


@pytest.mark.parametrize(
    ("kind", "bits", "lowest", "largest"),
    [
        (np.dtype(np.float16), 10, -14, 65504.0),
        (BF16, 7, -126, 3.3895e38),
        (np.dtype(np.float32), 23, -126, 3.4e38),
    ],
)
@pytest.mark.parametrize("name", REFERENCE)
def test_within_one_unit_in_the_last_place(name, kind, bits, lowest, largest):
    if kind.itemsize == 2:
        x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    else:
        rng = np.random.default_rng(3)
        x = np.concatenate([rng.standard_normal(20000), np.exp(rng.uniform(-60, 60, 20000))])
        x = x.astype(np.float32)
    with np.errstate(invalid="ignore"):  # NaN codes
        wide = x.astype(np.float64)
    keep = np.isfinite(wide) & ((np.abs(wide) >= 2.0**-126) | (wide == 0))
    if name in ("log", "rsqrt"):
        keep &= wide > 0
    if name == "log1p":
        keep &= wide > -1
    if name == "silu":  # exp(-x) overflows float32 below, as in the formula
        keep &= wide > -88
    x, wide = x[keep], wide[keep]
    with np.errstate(all="ignore"):
        want = REFERENCE[name](wide)
    got = np.asarray(getattr(nnp, name)(jnp.asarray(x)))
    assert got.dtype == kind
    assert _ulps(got, want, bits, lowest, largest).max() <= 1.0


def test_integers_give_float32():
    for name in ("sqrt", "log", "tanh", "sigmoid"):
        assert getattr(nnp, name)(jnp.array([1, 4], jnp.int32)).dtype == jnp.float32
    assert nnp.exp(jnp.array([True])).dtype == jnp.float32


def test_gelu_is_the_tanh_form():
    x = jnp.linspace(-4, 4, 101).astype(jnp.float16)
    wide = np.asarray(x, np.float64)
    want = wide / (1 + np.exp(-1.5957691 * (wide + 0.044715 * wide**3)))
    for soc in ("A2A3", "950PR"):
        got = np.asarray(nnp.gelu(x, target=soc), np.float64)
        np.testing.assert_allclose(got, want, rtol=2**-10, atol=2**-20)
    erf_form = np.asarray(jax.nn.gelu(x.astype(jnp.float32), approximate=False), np.float64)
    assert np.abs(got - erf_form).max() > 1e-4


def test_softmax_of_half_subtracts_in_half_on_a2a3():
    x = jnp.array([1000.0, 3.3], jnp.float16) / jnp.float16(128)
    wide = np.asarray(x, np.float64)
    half = np.float64(np.float16(wide[1] - wide[0]))
    exact = wide[1] - wide[0]
    for soc, shift in (("A2A3", half), ("950PR", exact)):
        want = np.exp(shift) / (1 + np.exp(shift))
        got = np.float64(nnp.softmax(x, target=soc)[1])
        assert abs(got - want) <= 2.0**-11 * want
    assert half != exact
    assert nnp.softmax(x, target="A2A3")[1] != nnp.softmax(x, target="950PR")[1]


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_softmax_and_norms_against_float64(kind):
    rng = np.random.default_rng(5)
    x = jnp.asarray(rng.standard_normal((4, 33)), jnp.float32).astype(kind)
    w, b = (jnp.asarray(rng.standard_normal(33), jnp.float32) for _ in range(2))
    wide = np.asarray(x, np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    soft = powers / powers.sum(-1, keepdims=True)
    centred = wide - wide.mean(-1, keepdims=True)
    layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    root = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    rtol = {2: 2**-8, 4: 2e-6}[jnp.dtype(kind).itemsize]
    for got, want in (
        (nnp.softmax(x), soft),
        (nnp.log_softmax(x), np.log(soft)),
        (nnp.layer_norm(x, w, b), layer * np.asarray(w) + np.asarray(b)),
        (nnp.rms_norm(x, w), root * np.asarray(w)),
    ):
        assert got.dtype == kind
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=rtol)
    assert nnp.softmax(x, dtype="fp32").dtype == jnp.float32
    assert nnp.layer_norm(x, dtype="fp16").dtype == jnp.float16


def test_mean_scales_first_on_a2a3():
    x = jnp.full(3, 65504.0, jnp.float16)
    third = np.float32(1) / np.float32(3)
    before = (np.float32(65504) * third * 3).astype(np.float16)
    assert nnp.mean(x, target="A2A3") == before
    assert nnp.mean(jnp.full(4, 3e38), target="A2A3") == 3e38  # the sum alone would overflow
    assert np.isinf(nnp.mean(jnp.full(4, 3e38), target="950PR"))
    assert np.isnan(nnp.mean(jnp.zeros((0,), jnp.float16)))
    assert nnp.sum(jnp.zeros((0,), jnp.float16)) == 0


def test_half_sums_accumulate_in_float32():
    x = jnp.full(5000, 1.0, jnp.float16)
    assert nnp.sum(x) == 5000
    assert nnp.sum(jnp.full(300, 1.0, jnp.bfloat16)) == 300
    assert nnp.mean(jnp.full(70000, 2.0, jnp.float16)) == 2
    assert nnp.sum(x, dtype="fp32").dtype == jnp.float32


def test_integer_sums():
    x = jnp.full(300, 100, jnp.int8)
    assert nnp.sum(x) == 30000
    assert nnp.sum(x).dtype == jnp.int32
    assert nnp.sum(jnp.array([True] * 5)).dtype == jnp.int32
    assert nnp.sum(jnp.array([2**31 - 1, 1], jnp.int32)) == -(2**31)
    assert nnp.cumsum(jnp.array([100, 100], jnp.int16), dtype="int16").tolist() == [100, 200]
    assert nnp.mean(jnp.array([1, 2], jnp.int8)).dtype == jnp.float32


def test_reductions_agree_with_numpy():
    rng = np.random.default_rng(7)
    x = rng.integers(-8, 8, (3, 4, 5)).astype(np.float32)
    for axis, keepdims in ((None, False), (1, True), ((0, 2), False), (-1, False)):
        for name in ("sum", "max", "min", "mean", "var"):
            got = getattr(nnp, name)(jnp.asarray(x), axis, keepdims=keepdims)
            want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
            np.testing.assert_allclose(np.asarray(got), want, rtol=3e-6, err_msg=name)
    assert nnp.var(jnp.asarray(x), ddof=1) == pytest.approx(x.var(ddof=1), rel=1e-6)
    np.testing.assert_array_equal(nnp.argmax(jnp.asarray(x), 2), x.argmax(2))
    np.testing.assert_array_equal(nnp.argmin(jnp.asarray(x)), x.argmin())
    np.testing.assert_array_equal(nnp.cumsum(jnp.asarray(x), 1), x.cumsum(1))


def test_power_and_remainder():
    x = jnp.array([2, -3, 7], jnp.int8)
    assert nnp.power(x, 3).tolist() == [8, -27, (343 + 128) % 256 - 128]
    assert nnp.remainder(jnp.array([-7, 7], jnp.int32), 3).tolist() == [2, 1]
    assert nnp.floor_divide(jnp.array([-7, 7], jnp.int32), 2).tolist() == [-4, 3]
    assert nnp.floor_divide(jnp.array([-7.0, 7.0], jnp.float16), 2).tolist() == [-4.0, 3.0]
    assert nnp.remainder(jnp.array([5.5], jnp.bfloat16), 2.0)[0] == 1.5
    assert nnp.power(jnp.array([3.0], jnp.float16), 0.5)[0] == jnp.float16(3**0.5)


def test_one_operand_operators():
    x = jnp.array([-128, -1, 0, 127], jnp.int8)
    assert nnp.negative(x).tolist() == [-128, 1, 0, -127]
    assert nnp.abs(x).tolist() == [-128, 1, 0, 127]
    assert nnp.bitwise_not(x).tolist() == [127, 0, -1, -128]
    assert nnp.logical_not(jnp.array([0.0, 1e-40, jnp.nan])).tolist() == [True, False, False]
    assert nnp.abs(jnp.array([3 + 4j])).dtype == jnp.float32
    assert nnp.round(jnp.array([0.5, 1.5, -2.5], jnp.bfloat16)).tolist() == [0, 2, -2]
    assert nnp.clip(jnp.array([1.0, 5.0], jnp.float16), max=2).tolist() == [1.0, 2.0]
    assert nnp.clip(jnp.array([1.0, 5.0], jnp.float16), 3).tolist() == [3.0, 5.0]


def test_operators_that_only_look_or_cut():
    x = jnp.array([1.5, -2.5, jnp.nan, jnp.inf, 0.0], jnp.float16)
    assert nnp.isnan(x).tolist() == [False, False, True, False, False]
    assert nnp.isinf(x).tolist() == [False, False, False, True, False]
    assert nnp.isfinite(x).tolist() == [True, True, False, False, True]
    assert nnp.floor(x)[:2].tolist() == [1, -3]
    assert nnp.ceil(x)[:2].tolist() == [2, -2]
    assert nnp.trunc(x)[:2].tolist() == [1, -2]
    assert nnp.sign(x)[:2].tolist() == [1, -1]
    assert nnp.relu(x)[:2].tolist() == [1.5, 0]
    assert nnp.square(x)[:2].tolist() == [2.25, 6.25]
    assert nnp.reciprocal(jnp.array([3, 4], jnp.int8)).tolist() == [np.float32(1 / 3), 0.25]
    assert nnp.any(x)
    assert not nnp.any(jnp.zeros(3))
    assert not nnp.all(x)
    assert nnp.all(jnp.ones((2, 2)), axis=0).tolist() == [True, True]
    assert nnp.floor(x).dtype == nnp.square(x).dtype == jnp.float16
