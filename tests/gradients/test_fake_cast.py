"""The straight-through rule of fake_cast: exact tangents and cotangents, to every order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import FormatParams, Target
from tests.helpers import host_words, same_arrays, same_words
from tests.numerics.names import ORACLE

FORMATS = (*ORACLE, "hf32")
HELD = tuple(n for n in FORMATS if n not in ("int32", "uint32", "int64", "uint64", "fp64"))
TRACED = tuple(n for n in HELD if n != "bool")
# Normal, ties of several formats, subnormals of float32 and half, beyond every range, specials.
POINTS = np.array(
    [0.0, -0.0, 1.0, 1.1, 2.5, -0.125, 448.0, 464.0, 1e5, -1e6, 3e38, 1e-40, -1e-45, 6e-8, 2e-39,
     np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip
POINT3 = np.float32(0.3)


def scaled(v, dtype, **arguments):
    return POINT3 * npu.fake_cast(v, dtype, **arguments)


def gradients(function, x):
    return jax.jit(jax.vmap(jax.grad(function)))(x)


@pytest.mark.parametrize("satmode", ["ON", "OFF"])
@pytest.mark.parametrize("dtype", HELD)
def test_gradient_of_0_3_times_the_cast_is_0_3(dtype, satmode):
    got = gradients(functools.partial(scaled, dtype=dtype, satmode=satmode), POINTS)
    same_words(
        POINTS.view(np.uint32),
        host_words(got),
        np.full(POINTS.shape, POINT3).view(np.uint32),
        dtype,
    )


def test_the_same_for_formats_as_data():
    params = [FormatParams.of(d, "FLOOR", s) for d in TRACED for s in ("ON", "OFF")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    per_format = jax.vmap(jax.grad(scaled), in_axes=(0, None))
    got = jax.jit(jax.vmap(per_format, in_axes=(None, 0)))(POINTS, stacked)
    assert got.shape == (len(params), POINTS.size)
    assert (np.asarray(got) == POINT3).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["fp8_e4m3", "hif8", "bf16", "fp32", "int8"])
def test_16_bit_carriers(dtype, kind):
    with np.errstate(over="ignore"):
        x = jnp.asarray(POINTS, kind)
    got = gradients(lambda v: (npu.fake_cast(v, dtype) * jnp.float32(0.25)).astype("float32"), x)
    assert got.dtype == kind
    assert (np.asarray(got.astype("float32")) == 0.25).all()


def test_float64_carriers():
    with jax.enable_x64(True):
        x = jnp.asarray(POINTS, "float64")
        for dtype in ("fp64", "fp32", "fp16", "hif8", "int32", "uint32"):
            got = gradients(lambda v, dtype=dtype: 0.3 * npu.fake_cast(v, dtype), x)
            assert got.dtype == jnp.float64
            assert (np.asarray(got) == 0.3).all(), dtype


# Format, satmode-independent bound that is still in range, the first points out of range.
BOUNDS = (
    ("fp8_e4m3", 464.0, 464.1, -464.0, -464.1),
    ("fp8_e5m2", 61439.0, 61440.0, -61439.0, -61440.0),
    ("fp16", 65519.0, 65520.0, -65519.0, -65520.0),
    ("hif8", 40000.0, 49152.0, -40000.0, -49152.0),
    ("fp4_e2m1", 6.0, 7.1, -6.0, -7.1),
    ("fp4_e1m2", 1.75, 1.9, -1.75, -1.9),
    ("int8", 127.0, 127.6, -128.0, -128.6),
    ("uint8", 255.0, 255.6, -0.4, -0.6),  # -0.4 becomes 0, which is in range
    ("int4", 7.0, 7.6, -8.0, -8.6),
    ("int16", 32767.0, 32767.6, -32768.0, -32768.6),
)


CLIPPED = jax.jit(
    jax.vmap(jax.grad(functools.partial(npu.fake_cast, ste="clip")), in_axes=(0, None))
)


@pytest.mark.parametrize("satmode", ["ON", "OFF"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b[0])
@pytest.mark.parametrize("traced", [False, True], ids=["static", "params"])
def test_clip_passes_the_bound_and_is_zero_beyond(bounds, satmode, traced):
    dtype, top, above, bottom, below = bounds
    x = np.array([top, above, bottom, below, np.inf, -np.inf, np.nan, 1.0, 1e-40, -0.0], np.float32)
    want = np.array([1, 0, 1, 0, 0, 0, 0, 1, 1, 1], np.float32)
    if traced:
        got = CLIPPED(x, FormatParams.of(dtype, "RINT", satmode))
    else:
        cast = functools.partial(npu.fake_cast, dtype=dtype, satmode=satmode, ste="clip")
        got = gradients(cast, x)
    same_words(x.view(np.uint32), host_words(got), want.view(np.uint32), f"{dtype} {satmode}")


@pytest.mark.parametrize("dtype", ["bf16", "hf32"])
def test_clip_of_formats_with_the_range_of_float32(dtype):
    x = np.array([3e38, -3e38, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    got = gradients(functools.partial(npu.fake_cast, dtype=dtype, ste="clip"), x)
    assert got.tolist() == [1, 1, 0, 0, 0, 1]
    traced = gradients(lambda v: npu.fake_cast(v, FormatParams.of(dtype), ste="clip"), x)
    assert traced.tolist() == got.tolist()


@pytest.mark.parametrize("ste", ["identity", "clip", "zero"])
def test_fp32_in_float32_is_no_cast_and_passes_every_tangent(ste):
    for dtype in ("fp32", FormatParams.of("fp32")):
        got = gradients(lambda v, d=dtype: POINT3 * npu.fake_cast(v, d, ste=ste), POINTS)
        assert (np.asarray(got) == POINT3).all()


@pytest.mark.parametrize("ste", ["clip", "zero"])
@pytest.mark.parametrize(("dtype", "kind"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_a_16_bit_format_in_its_own_type_is_no_cast_either(dtype, kind, ste):
    x = jnp.asarray([1.0, np.inf, -np.inf, np.nan], kind)
    for form in (dtype, FormatParams.of(dtype)):
        cast = lambda v, form=form: npu.fake_cast(v, form, ste=ste).astype("float32")  # noqa: E731
        assert (np.asarray(gradients(cast, x).astype("float32")) == 1).all()
        out = npu.fake_cast(x, form).astype("float32")
        assert out.tolist()[:3] == [1, np.inf, -np.inf]
        assert np.isnan(out[3])


def test_clip_follows_the_mode_at_the_bound():
    """Where overflow begins depends on the rounding: 65535 stays in half by TRUNC only."""
    x = np.array([65535.0], np.float32)
    for mode, want in (("TRUNC", 1), ("FLOOR", 1), ("RINT", 0), ("CEIL", 0), ("ROUND", 0)):
        cast = functools.partial(npu.fake_cast, dtype="fp16", mode=mode, ste="clip")
        assert gradients(cast, x).tolist() == [want], mode


def test_clip_under_a_chip():
    """aclnn goes through int32: what int8 cannot hold is out of range all the same."""
    target = Target("950PR", "aclnn")
    x = np.array([127.0, 128.0, -128.0, -129.0, np.nan], np.float32)
    cast = functools.partial(npu.fake_cast, dtype="int8", target=target, ste="clip")
    assert gradients(cast, x).tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "int8", "hif8"])
def test_zero_is_zero_everywhere(dtype):
    got = gradients(functools.partial(scaled, dtype=dtype, ste="zero"), POINTS)
    assert not host_words(got).any()
    params = FormatParams.of(dtype)
    got = gradients(lambda v: scaled(v, params, ste="zero"), POINTS)
    assert not host_words(got).any()


FORMS = {
    "static": lambda v: npu.fake_cast(v, "fp8_e4m3"),
    "params": lambda v: npu.fake_cast(v, FormatParams.of("fp8_e4m3")),
    "clip": lambda v: npu.fake_cast(v, "fp8_e4m3", ste="clip"),
    "chip": lambda v: npu.fake_cast(v, "fp8_e4m3", target=Target(api="ascendc"), mode="RINT"),
}


@pytest.mark.parametrize("form", FORMS)
def test_second_derivatives(form):
    """d2/dx2 of x**2 q(x) is 2 q + 4 x with dq/dx taken as 1; a raw kernel would give 2 q."""
    cast = FORMS[form]
    x = np.float32(1.1)
    q = np.float32(1.125)
    want = 2 * q + 2 * x + 2 * x
    f = lambda v: v * v * cast(v)  # noqa: E731
    seconds = (
        jax.hessian(f),
        jax.grad(jax.grad(f)),
        jax.jacfwd(jax.grad(f)),
        jax.jacrev(jax.jacfwd(f)),
        jax.jacfwd(jax.jacfwd(f)),
    )
    for got in jax.jit(lambda v: [second(v) for second in seconds])(x):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    third, of_the_cast = jax.jit(
        lambda v: (jax.grad(jax.grad(jax.grad(f)))(v), jax.grad(jax.grad(cast))(v))
    )(x)
    np.testing.assert_allclose(third, 6.0, rtol=1e-6)
    assert of_the_cast == 0


def test_hessian_of_a_vector():
    x = jnp.array([1.1, -2.3, 0.7])
    q = npu.fake_cast(x, "fp4_e2m1")
    hessian = jax.hessian(lambda v: jnp.sum(v**2 * npu.fake_cast(v, "fp4_e2m1")))(x)
    np.testing.assert_allclose(hessian, np.diag(2 * q + 4 * x), rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_jvp_and_vjp_agree(form):
    cast = FORMS[form]
    x = jnp.asarray(POINTS)
    tangent = jnp.linspace(-3, 3, x.size)
    out, forward = jax.jit(lambda a, t: jax.jvp(cast, (a,), (t,)))(x, tangent)
    again, pull = jax.vjp(cast, x)
    same_arrays(again, out, "primal")
    same_arrays(out, cast(x), "primal alone")
    (backward,) = pull(tangent)
    same_arrays(backward, forward, "the rule is diagonal")
    linear_out, linear = jax.linearize(cast, x)
    same_arrays(linear_out, out, "linearize")
    same_arrays(linear(tangent), forward, "linearized")


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "fp64"])
def test_what_the_carrier_cannot_hold_is_refused(dtype):
    with jax.enable_x64(True), pytest.raises(npu.CarrierError, match=r"npusim\.cast"):
        npu.fake_cast(jnp.ones(2, jnp.float32), dtype)


def test_integer_inputs_carry_none():
    x = jnp.array([1, 2, 300], jnp.int32)
    out, pull = jax.vjp(lambda v: npu.fake_cast(v, "int8"), x)
    assert out.tolist() == [1, 2, 127]
    (cotangent,) = pull(jnp.ones(3))
    assert cotangent.dtype == jax.dtypes.float0


def test_no_gradient_into_format_parameters():
    params = FormatParams.of("fp8_e4m3")
    _, pull = jax.vjp(lambda p: npu.fake_cast(jnp.float32(1.1), p), params)
    (cotangents,) = pull(jnp.float32(1))
    for leaf in jax.tree.leaves(cotangents):
        assert leaf.dtype == jax.dtypes.float0 or not np.asarray(leaf).any()


def body_scan(f):
    return lambda x: jax.lax.scan(lambda carry, v: (carry + f(v).sum(), None), 0.0, x)[0]


WRAPPED = {
    "jit": lambda f: jax.jit(lambda x: f(x).sum()),
    "vmap": lambda f: lambda x: jax.vmap(f)(x).sum(),
    "scan": body_scan,
    "remat": lambda f: lambda x: jax.checkpoint(f)(x).sum(),
    "remat in scan": lambda f: body_scan(jax.checkpoint(f)),
    "jit of vmap": lambda f: jax.jit(lambda x: jax.vmap(f)(x).sum()),
}


@pytest.mark.parametrize("how", WRAPPED)
@pytest.mark.parametrize("ste", ["identity", "clip"])
def test_gradients_through_transforms(how, ste):
    x = jnp.asarray(np.resize(POINTS, (6, 3)))
    f = lambda v: jnp.float32(0.3) * npu.fake_cast(v, "fp8_e5m2", ste=ste)  # noqa: E731
    with jax.disable_jit():
        want = jax.grad(lambda v: f(v).sum())(x)
    same_arrays(jax.jit(jax.grad(WRAPPED[how](f)))(x), want, f"grad of {how}")
