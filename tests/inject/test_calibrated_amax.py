"""scale=amax with a given amax: a static range, as calibration leaves it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim._errors import InputError
from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, apply_cast

X = jnp.array([1.0, -8.0, 7.9375, 8.0, 12.0, -16.0, 0.0, 1e-30])


@pytest.mark.parametrize(
    ("dtype", "satmode", "expected"),
    [
        # MAX is 127 and stands for 8: a step is 8/127.
        ("int8", "ON", np.round(np.clip(np.array(X, np.float64) * 127 / 8, -128, 127)) * 8 / 127),
        # 12 is 190.5, rounded to 190, whose low byte is -66; -16 is -254: 2.
        ("int8", "OFF", np.array([16, -127, 126, 127, -66, 2, 0, 0]) * 8 / 127),
        ("fp16", "ON", np.array([1, -8, 7.9375, 8, 8, -8, 0, 0])),
        ("fp16", "OFF", np.array([1, -8, 7.9375, 8, np.inf, -np.inf, 0, 0])),
        ("fp8_e4m3", "OFF", np.array([1, -8, 8, 8, np.nan, np.nan, 0, 0])),
        ("bf16", "OFF", np.array([1, -8, 7.9375, 8, 12, -16, 0, 1e-30])),
    ],
)
def test_values_beyond_overflow_as_the_format_does(dtype, satmode, expected):
    spec = CastSpec(dtype, "RINT", satmode, scale="amax", amax=8)
    got = np.asarray(apply_cast(spec, X))
    np.testing.assert_allclose(got, expected, rtol=4e-3, atol=1e-6)
    params = FormatParams.of(dtype, "RINT", satmode)
    traced = jax.jit(lambda p: apply_cast(CastSpec(p, scale="amax", amax=8), X))(params)
    np.testing.assert_array_equal(np.asarray(traced).view(np.uint32), got.view(np.uint32))


def test_the_own_amax_given_is_the_measured_one():
    x = X[:4]
    for mode in ("RINT", "FLOOR", "CEIL", "ODD"):
        given = CastSpec("fp8_e4m3", mode, "OFF", scale="amax", amax=8)
        measured = dataclasses.replace(given, amax=None)
        np.testing.assert_array_equal(apply_cast(given, x), apply_cast(measured, x))


def test_clip_is_zero_beyond():
    spec = CastSpec("int8", "RINT", "ON", scale="amax", amax=8, ste="clip")
    grads = jax.grad(lambda x: 0.3 * apply_cast(spec, x).sum())(X)
    np.testing.assert_allclose(grads, 0.3 * np.array([1, 1, 1, 1, 0, 0, 1, 1]), rtol=1e-6)


def test_it_is_kept_in_the_plain_form_and_checked():
    spec = CastSpec("int8", scale="amax", amax=8)
    policy = Policy([Rule(input=spec)])
    assert policy.to_dict()["rules"][0]["input"] == {"dtype": "int8", "scale": "amax", "amax": 8.0}
    assert Policy.from_dict(policy.to_dict()).hash() == policy.hash()
    assert repr(spec) == "CastSpec(int8 scale=amax amax=8)"
    with pytest.raises(InputError) as caught:
        CastSpec("int8", amax=8)
    assert str(caught.value) == (
        "Given: amax=8 with scale='none'. Allowed: amax with scale='amax'. Set scale to 'amax', "
        "or remove amax."
    )
