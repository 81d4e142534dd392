"""npu.cast: straight-through between floats, no gradient for integers and NpuArrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import Target
from tests.helpers import same_arrays

LAB = Target(api="numerics")
FLOATS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "hf32")
POINTS = np.float32([0, -0.0, 1.1, 500, 1e9, 1e-40, np.inf, np.nan])


@pytest.mark.parametrize("dtype", FLOATS)
def test_between_float_types_it_is_straight_through(dtype):
    cast = lambda v: npu.cast(v, dtype, target=LAB)  # noqa: E731
    out, pull = jax.vjp(cast, jnp.asarray(POINTS))
    (got,) = pull(jnp.full(out.shape, 0.5, out.dtype))
    assert got.dtype == jnp.float32
    assert (np.asarray(got) == 0.5).all()
    _, tangent = jax.jvp(cast, (jnp.asarray(POINTS),), (jnp.full(POINTS.shape, 0.5),))
    assert tangent.dtype == out.dtype
    assert (np.asarray(tangent.astype("float32")) == 0.5).all()


@pytest.mark.parametrize("target", [Target("950PR", "pypto"), Target("950PR", "aclnn")], ids=str)
def test_the_entry_points_as_well(target):
    cast = lambda v: npu.cast(v, "fp16", target=target).astype("float32").sum()  # noqa: E731
    got = jax.jit(jax.grad(cast))(jnp.asarray(POINTS))
    assert (np.asarray(got) == 1).all()


def test_second_derivatives():
    f = lambda v: v * v * npu.cast(v, "bf16", target=LAB).astype("float32")  # noqa: E731
    q = jnp.float32(1.1).astype("bfloat16").astype("float32")
    np.testing.assert_allclose(jax.hessian(f)(1.1), 2 * q + 4.4, rtol=1e-2)
    assert jax.hessian(f)(1.1) != 2 * q


def test_to_float64_and_back():
    with jax.enable_x64(True):
        for src, dst in (("float32", "fp64"), ("float64", "bf16"), ("float64", "fp32")):
            cast = lambda v, dst=dst: npu.cast(v, dst, target=LAB).astype("float32").sum()  # noqa: E731
            got = jax.grad(cast)(jnp.asarray(POINTS, src))
            assert got.dtype == src
            assert (np.asarray(got) == 1).all()


def test_complex_types():
    cast = lambda v: jnp.real(npu.cast(v, "complex64", target=LAB)).sum()  # noqa: E731
    got = jax.grad(cast)(jnp.array([1 + 2j]))
    assert got.tolist() == [1]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "bool"])
def test_integer_results_carry_none(dtype):
    out, pull = jax.vjp(lambda v: npu.cast(v, dtype, target=LAB), jnp.asarray(POINTS))
    (got,) = pull(np.zeros(out.shape, jax.dtypes.float0))
    assert not np.asarray(got).any()
    mixed = jax.grad(lambda v: (v * npu.cast(v, dtype, target=LAB).astype("float32")).sum())
    same_arrays(mixed(jnp.float32([2.0])), jnp.float32([2.0 if dtype != "bool" else 1.0]), dtype)


@pytest.mark.parametrize("dtype", ["hif8", "fp4_e2m1", "int4", "fp8_e8m0"])
def test_codes_carry_none(dtype):
    decoded = lambda v: npu.cast(v, dtype, target=LAB).decode().astype("float32").sum()  # noqa: E731
    got = jax.grad(decoded)(jnp.asarray(POINTS))
    assert not np.asarray(got).any()
