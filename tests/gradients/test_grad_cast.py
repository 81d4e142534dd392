"""grad_cast: identity forward, a rounded cotangent backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import FormatParams, Target
from tests.gradients.test_fake_cast import HELD, POINTS, TRACED
from tests.helpers import host_words, same_arrays, same_words

COTANGENTS = np.concatenate([POINTS, np.float32([1.1, 0.3, 500, -70000, 2**-9, 3 * 2.0**-10])])


def pull(function, x, cotangent):
    out, vjp = jax.vjp(function, x)
    return out, vjp(cotangent)[0]


@pytest.mark.parametrize("satmode", ["ON", "OFF"])
@pytest.mark.parametrize("dtype", HELD)
def test_the_cotangent_is_the_fake_cast_of_it(dtype, satmode):
    x = jnp.zeros(COTANGENTS.shape) + 5
    run = jax.jit(lambda x, c: pull(lambda v: npu.grad_cast(v, dtype, "CEIL", satmode), x, c))
    out, got = run(x, COTANGENTS)
    want = npu.fake_cast(COTANGENTS, dtype, "CEIL", satmode)
    same_arrays(out, x, "forward")
    same_words(COTANGENTS.view(np.uint32), host_words(got), host_words(want), dtype)


def test_the_input_passes_bit_for_bit():
    words = np.array([0x7FC0_1234, 0x8000_0000, 1, 0xFF80_0001], np.uint32)
    got = jax.jit(lambda v: npu.grad_cast(v, "fp8_e4m3"))(jnp.asarray(words.view(np.float32)))
    same_words(words, host_words(got), words, "forward")


def test_formats_as_data():
    x = jnp.zeros(COTANGENTS.shape)
    run = jax.jit(lambda c, p: pull(lambda v: npu.grad_cast(v, p), x, c)[1])
    for dtype in TRACED:
        got = run(COTANGENTS, FormatParams.of(dtype, "FLOOR", "OFF"))
        want = npu.fake_cast(COTANGENTS, FormatParams.of(dtype, "FLOOR", "OFF"))
        same_words(COTANGENTS.view(np.uint32), host_words(got), host_words(want), dtype)


def test_second_derivatives_are_straight_through():
    """With g = x**3 behind grad_cast: the gradient rounds 3x**2, its derivative is 6x."""
    f = lambda v: npu.grad_cast(v, "fp8_e4m3") ** 3  # noqa: E731
    x = jnp.float32(1.1)
    assert jax.grad(f)(x) == npu.fake_cast(3 * x * x, "fp8_e4m3")
    np.testing.assert_allclose(jax.grad(jax.grad(f))(x), npu.fake_cast(6 * x, "fp8_e4m3"))
    params = FormatParams.of("fp8_e4m3")
    g = lambda v: npu.grad_cast(v, params) ** 3  # noqa: E731
    np.testing.assert_allclose(jax.grad(jax.grad(g))(x), npu.fake_cast(6 * x, "fp8_e4m3"))


def test_grad_of_grad_with_a_cast_in_front():
    f = lambda v: npu.fake_cast(npu.grad_cast(v, "bf16"), "fp8_e5m2") ** 2  # noqa: E731
    x = jnp.float32(1.3)
    q = npu.fake_cast(x, "fp8_e5m2")
    assert jax.grad(f)(x) == npu.fake_cast(2 * q, "bf16")
    assert jax.grad(jax.grad(f))(x) == 2


def scan_sum(f):
    return lambda x: jax.lax.scan(lambda c, v: (c + f(v).sum(), None), 0.0, x)[0]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: jax.jit(lambda x: f(x).sum()),
        lambda f: lambda x: jax.vmap(f)(x).sum(),
        scan_sum,
        lambda f: lambda x: jax.checkpoint(f)(x).sum(),
        lambda f: scan_sum(jax.checkpoint(f)),
    ],
    ids=["jit", "vmap", "scan", "remat", "remat in scan"],
)
def test_through_transforms(wrap):
    x = jnp.linspace(-3, 3, 12).reshape(4, 3)
    f = lambda v: 1.1 * npu.grad_cast(v, "fp4_e2m1")  # noqa: E731
    want = jnp.ones_like(x)
    same_arrays(jax.jit(jax.grad(wrap(f)))(x), want, "gradient under jit")


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_16_bit_arrays(kind):
    x = jnp.zeros(3, kind)
    cotangent = jnp.asarray([1.1, 500.0, -0.3], kind)
    _, got = pull(lambda v: npu.grad_cast(v, "fp8_e4m3"), x, cotangent)
    same_arrays(got, npu.fake_cast(cotangent, "fp8_e4m3"), kind)
    with pytest.raises(npu.CarrierError, match="float32"):
        npu.grad_cast(x, FormatParams.of("fp8_e4m3"))


def test_a_half_cotangent_cannot_be_bfloat16():
    with pytest.raises(npu.CarrierError, match="Convert the array to float32 first"):
        npu.grad_cast(jnp.zeros(3, jnp.float16), "bf16")


def test_complex_arrays():
    x = jnp.array([1 + 1j])
    _, got = pull(lambda v: npu.grad_cast(v, "fp8_e4m3"), x, jnp.array([1.1 - 500j]))
    assert got.tolist() == [1.125 - 448j]


def test_what_has_no_cotangent_is_refused():
    for x in (jnp.arange(3), npu.array([1.0], "hif8")):
        with pytest.raises(npu.InputError, match="Only floats have cotangents"):
            npu.grad_cast(x, "fp16")
    with pytest.raises(npu.InputError, match="FormatParams alone"):
        npu.grad_cast(jnp.ones(2), FormatParams.of("fp16"), "RINT")
    with pytest.raises(npu.UnsupportedCastError):
        npu.grad_cast(jnp.ones(2), "fp4_e2m1", target=Target("A2A3", "ascendc"))
