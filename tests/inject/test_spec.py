"""CastSpec: what it accepts, and what `apply_cast` does with it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim.dtypes as dt
from npusim import _errors as errors
from npusim.casting import FormatParams, fake_cast
from npusim.inject import CastSpec, apply_cast
from npusim.inject.apply import cast_cotangent
from npusim.inject.spec import as_spec
from npusim.modes import CastMode, SaturationMode

MODES = ["RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD"]
NARROW = ["fp16", "fp8_e4m3", "fp8_e5m2", "hif8", "fp4_e2m1", "fp4_e1m2", "int8", "int4", "int16"]
WIDE = ["bf16", "hf32"]
RNG = np.random.default_rng(3)


def words(x):
    return np.asarray(x, np.float32).view(np.uint32)


def test_fields_are_normalised():
    spec = CastSpec("half", "rint", True, via="bf16")
    assert spec.dtype is dt.DT_FP16
    assert spec.mode is CastMode.CAST_RINT
    assert spec.satmode is SaturationMode.ON
    assert spec.via is dt.DT_BF16
    assert spec == CastSpec(dt.DT_FP16, CastMode.CAST_RINT, "on", via=jnp.bfloat16)
    assert hash(spec) == hash(dataclasses.replace(spec))
    assert str(spec) == "bf16->fp16 RINT sat=ON"
    assert CastSpec("hif8", scale="amax", amax_to=15).to_dict() == {
        "dtype": "hif8",
        "scale": "amax",
        "amax_to": 15.0,
    }
    assert as_spec("bf16") == as_spec({"dtype": "bf16"}) == CastSpec("bf16")


def test_messages():
    def text(kind, *args, **kwargs):
        with pytest.raises(kind) as caught:
            CastSpec(*args, **kwargs)
        return str(caught.value)

    assert text(errors.UnknownNameError, "fp8", scale="amx").startswith("Given: data type 'fp8'")
    assert text(errors.UnknownNameError, "fp16", scale="amx") == (
        "Given: scale 'amx'. Allowed: none, amax, a positive number. Did you mean 'amax'? "
        "Pass one of these."
    )
    assert text(errors.UnknownNameError, "fp16", ste="clp") == (
        "Given: ste 'clp'. Allowed: identity, clip, zero. Did you mean 'clip'? "
        "Pass one of these names."
    )
    assert text(errors.InputError, "fp16", scale=-2.0) == (
        "Given: scale=-2.0. Allowed: a positive normal float32 number. Pass such a number."
    )
    assert text(errors.InputError, "hif8", amax_to=15) == (
        "Given: amax_to=15 with scale='none'. Allowed: amax_to with scale='amax'. "
        "Set scale to 'amax', or remove amax_to."
    )
    assert text(errors.CarrierError, "int32") == (
        "Given: int32 in a CastSpec. Allowed: formats whose values a float32 holds exactly. "
        "npusim.cast converts to the type itself."
    )
    assert "FormatParams alone" in text(errors.InputError, FormatParams.of("fp16"), "RINT")
    for name in ("fp64", "complex64", "uint32", "int64"):
        assert "npusim.cast" in text(errors.CarrierError, name)
    with pytest.raises(errors.InputError, match="Convert it"):
        apply_cast(CastSpec("fp16"), jnp.arange(3))


def test_the_carriers_own_format_is_no_cast():
    x = jnp.float32(1.1)
    assert apply_cast(CastSpec("fp32", "FLOOR", "OFF", scale="amax"), x) is x
    half = jnp.float16(1.1)
    assert apply_cast(CastSpec("fp32"), half) is half
    assert apply_cast(CastSpec("fp16"), half) is half
    assert not CastSpec("bf16", scale="amax").casts(jnp.bfloat16)
    assert CastSpec("fp16", scale="amax").casts(jnp.float16)
    assert CastSpec("bf16").casts(jnp.float16)
    assert not CastSpec("bf16").casts(jnp.int8)


@jax.jit
def scaled_by_amax(params, x):
    return apply_cast(CastSpec(params, scale="amax"), x)


@jax.jit
def plainly(params, x):
    return fake_cast(x, params)


@pytest.mark.parametrize("number", range(len(NARROW)))
def test_amax_lands_on_max_in_every_mode(number):
    dtype = NARROW[number]
    x = np.concatenate([RNG.standard_normal(500), [-9.1, 9.1]]).astype(np.float32)
    top = np.float32(float(dt.dtype(dtype).max))
    amax = np.float32(9.1)
    scaled = x * (top / amax)
    scaled[-2:] = [-top, top]
    scaled = np.clip(scaled, -top, top)
    for mode in MODES:
        for satmode in ("ON", "OFF"):
            params = FormatParams.of(dtype, mode, satmode)
            want = np.asarray(plainly(params, scaled)) * (amax / top)
            got = scaled_by_amax(params, x)
            np.testing.assert_array_equal(words(got), words(want))
            assert float(got[-1]) == float(top * (amax / top))
    # The static form compiles for each format and mode; one of them for each format will do.
    mode = MODES[number % len(MODES)]
    static = jax.jit(lambda x: apply_cast(CastSpec(dtype, mode, "ON", scale="amax"), x))(x)
    traced = scaled_by_amax(FormatParams.of(dtype, mode, "ON"), x)
    np.testing.assert_array_equal(words(static), words(traced))


@pytest.mark.parametrize("dtype", [*NARROW, *WIDE])
@pytest.mark.parametrize("data", [[0.0, -0.0], [1.0, np.inf], [1.3, np.nan, -2.0]])
def test_scale_is_1_where_there_is_no_amax(dtype, data):
    x = jnp.array([*data, *[data[0]] * 3][:3], jnp.float32)
    params = FormatParams.of(dtype, "RINT", "OFF")
    want = plainly(params, x)
    np.testing.assert_array_equal(words(scaled_by_amax(params, x)), words(want))


@pytest.mark.parametrize("dtype", WIDE)
def test_scale_is_1_where_the_format_has_the_range_of_float32(dtype):
    x = np.concatenate([RNG.standard_normal(100), [1e-40, 1e-45]]).astype(np.float32)
    want = words(fake_cast(x, dtype, "CEIL"))
    for given in (CastSpec(dtype, "CEIL", scale="amax"), CastSpec(dtype, "CEIL")):
        np.testing.assert_array_equal(words(apply_cast(given, x)), want)
    traced = CastSpec(FormatParams.of(dtype, "CEIL"), scale="amax")
    np.testing.assert_array_equal(words(apply_cast(traced, x)), want)


def test_a_directed_mode_sees_the_tiniest_value():
    x = jnp.array([1.0, 1e-45, -1e-45])
    up = apply_cast(CastSpec("fp4_e2m1", "CEIL", scale="amax"), x)
    np.testing.assert_array_equal(up, np.float32([1.0, 0.5 / 6, -0.0]))
    down = apply_cast(CastSpec("fp4_e2m1", "FLOOR", scale="amax"), x)
    np.testing.assert_array_equal(down, np.float32([1.0, 0.0, -0.5 / 6]))


def test_amax_to():
    x = jnp.array([30.0, 7.3, -1.0])
    got = apply_cast(CastSpec("hif8", "ROUND", scale="amax", amax_to=15), x)
    want = np.asarray(fake_cast(np.float32([15.0, 3.65, -0.5]), "hif8", "ROUND")) * 2
    np.testing.assert_array_equal(got, want)
    traced = CastSpec(FormatParams.of("hif8", "ROUND"), scale="amax", amax_to=15)
    np.testing.assert_array_equal(apply_cast(traced, x), want)


@pytest.mark.parametrize("scale", [4.0, 0.1, 3.0])
def test_a_number_divides_and_multiplies(scale):
    x = RNG.standard_normal(300).astype(np.float32)
    step = np.float32(scale)
    want = np.asarray(fake_cast(x / step, "int8", "RINT", "ON")) * step
    got = jax.jit(lambda x: apply_cast(CastSpec("int8", scale=scale), x))(x)
    np.testing.assert_array_equal(words(got), words(want))


def test_via_is_a_chain():
    x = jnp.array([2.4999, 2049.0])
    assert apply_cast(CastSpec("int8", "RINT", "ON"), x).tolist() == [2.0, 127.0]
    # 2.4999 is 2.5 in half precision, which ROUND takes to 3.
    assert apply_cast(CastSpec("int8", "ROUND", via="fp16"), x).tolist() == [3.0, 127.0]


def test_traced_identity_keeps_every_bit():
    x = jnp.array([1e-45, -0.0, 3.3, np.inf])
    spec = CastSpec(FormatParams.of("fp32", "FLOOR"), scale="amax")
    np.testing.assert_array_equal(words(jax.jit(lambda x: apply_cast(spec, x))(x)), words(x))


@pytest.mark.parametrize("scale", ["none", "amax", 3.0, 4.0])
@pytest.mark.parametrize("traced", [False, True])
def test_the_derivative_is_exactly_1(scale, traced):
    fmt = FormatParams.of("fp8_e4m3") if traced else "fp8_e4m3"
    spec = CastSpec(fmt, scale=scale)
    x = jnp.array([0.3, -7.0, 1e-3, 2.0])
    weights = jnp.array([0.3, 1.7, -2.0, 1e-5])

    def loss(x):
        return jnp.sum(weights * apply_cast(spec, x))

    np.testing.assert_array_equal(jax.jit(jax.grad(loss))(x), weights)
    np.testing.assert_array_equal(jax.grad(loss)(x), weights)
    assert jax.jvp(loss, (x,), (jnp.ones(4),))[1] == weights.sum()

    def cubic(x):
        return jnp.sum(apply_cast(spec, x) ** 3)

    # Straight-through: the second derivative is 6 q, as if q were x.
    quantised = apply_cast(spec, x)
    np.testing.assert_allclose(jax.hessian(cubic)(x).diagonal(), 6 * quantised, rtol=1e-6)
    second = jax.grad(lambda x: jnp.sum(jax.grad(cubic)(x)))(x)
    np.testing.assert_allclose(second, 6 * quantised, rtol=1e-6)


def test_ste_clip_and_zero():
    x = jnp.array([1.0, 130.0, 127.0, -129.0, 254.0, np.inf, np.nan])

    def slope(spec):
        return jax.jit(jax.grad(lambda x: jnp.sum(0.3 * apply_cast(spec, x))))(x)

    third = np.float32(0.3)
    np.testing.assert_array_equal(
        slope(CastSpec("int8", ste="clip")), [third, 0, third, 0, 0, 0, 0]
    )
    np.testing.assert_array_equal(
        slope(CastSpec("int8", ste="clip", scale=2.0)), [third] * 5 + [0, 0]
    )
    traced = CastSpec(FormatParams.of("int8"), ste="clip", scale=2.0)
    np.testing.assert_array_equal(slope(traced), [third] * 5 + [0, 0])
    np.testing.assert_array_equal(slope(CastSpec("int8", ste="zero", scale=2.0)), np.zeros(7))


def test_cotangents_are_cast_and_the_value_is_not():
    spec = CastSpec("fp4_e2m1", scale="amax")
    weights = jnp.array([6.0, 1.1, -0.3])

    def loss(x, fmt=None):
        used = spec if fmt is None else CastSpec(fmt, scale="amax")
        return jnp.sum(weights * cast_cotangent(used, x))

    x = jnp.array([0.1, 0.2, 0.3])
    assert float(loss(x)) == float(jnp.sum(weights * x))
    want = [6.0, 1.0, -0.5]
    np.testing.assert_array_equal(jax.grad(loss)(x), want)
    traced = jax.jit(jax.grad(loss))(x, FormatParams.of("fp4_e2m1"))
    np.testing.assert_array_equal(traced, want)
    square = jax.grad(lambda x: jnp.sum(cast_cotangent(CastSpec("fp16"), x) ** 2))
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(square(x)))(x), [2.0, 2.0, 2.0])


def test_empty_and_scalar_arrays():
    spec = CastSpec("int8", scale="amax")
    assert apply_cast(spec, jnp.zeros((0, 3))).shape == (0, 3)
    assert float(apply_cast(spec, jnp.float32(3.3))) == np.float32(127) * (
        np.float32(3.3) / np.float32(127)
    )
