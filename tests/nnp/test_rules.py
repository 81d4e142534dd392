"""Which types meet, what is refused and how, scalars, outputs, 64 bits, and JAX kept out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
import npusim.numpy as nnp
from npusim._errors import ConversionError, InputError, PromotionError, X64RequiredError
from npusim.numpy import env as internals
from npusim.ops import operator_row

F16 = jnp.array([1.5, -2.0, 0.25], jnp.float16)
I8 = jnp.array([1, -2, 127], jnp.int8)


def test_operands_meet_by_the_tables():
    assert nnp.add(F16, I8).dtype == jnp.float16
    assert nnp.multiply(F16, jnp.ones(3, jnp.bfloat16)).dtype == jnp.float32
    assert nnp.maximum(I8, jnp.ones(3, jnp.uint8)).dtype == jnp.int16
    assert nnp.where(jnp.array([True, False, True]), I8, F16).tolist() == [1.0, -2.0, 127.0]
    assert nnp.add(F16, jnp.array([True] * 3)).tolist() == [2.5, -1.0, 1.25]


def test_rank_0_counts_as_a_scalar_in_some_operators_of_950():
    zero = jnp.float32(0.0)
    assert not zero.weak_type
    assert nnp.maximum(F16, zero).dtype == jnp.float16
    assert nnp.maximum(F16, zero, target="A2A3").dtype == jnp.float32
    assert nnp.add(F16, zero).dtype == jnp.float32


def test_rules_choose_the_table():
    c32 = npu.cast(F16, "complex32", target=npu.Target("950PR", "aclnn"))
    bf16 = jnp.ones(3, jnp.bfloat16)
    assert nnp.add(bf16, c32, rules="implementation").dtype == jnp.complex64
    with pytest.raises(npu.UnsupportedCastError, match="bf16 -> complex32"):
        nnp.add(bf16, c32)  # derives complex32, which aclnnCast does not make of bf16


def test_operand_casts_follow_the_target():
    big = jnp.array([70000], jnp.int32)
    one = jnp.ones(1, jnp.float16)
    assert np.isinf(nnp.add(big, one)[0])
    saturating = npu.Target("A2A3", "aclnn", overflow="SATURATE")
    assert nnp.add(big, one, target=saturating)[0] == 65504
    assert nnp.add(big, one, target=npu.Target("950PR", "numerics"))[0] == 65504


def test_a_python_number_counts_by_category():
    assert nnp.add(F16, 1).dtype == jnp.float16
    assert nnp.add(I8, 300).tolist() == [45, 42, -85]  # the low byte of 300
    assert nnp.add(I8, 1.5).dtype == jnp.float32
    assert nnp.add(F16, 1j).dtype == jnp.complex64
    assert nnp.equal(I8, 127).tolist() == [False, False, True]
    assert nnp.divide(I8, 2).tolist() == [0.5, -1.0, 63.5]
    assert nnp.where(jnp.array([True, False, True]), F16, 0.0).dtype == jnp.float16


def test_numbers_alone_become_what_jax_makes_them():
    assert nnp.add(1, 2).dtype == jnp.int32
    assert nnp.sqrt(4.0) == 2
    assert not nnp.add(1, 2.5).weak_type


def test_a_scalar_that_half_does_not_hold_widens_the_product():
    x = np.arange(1, 100).astype(np.float16)
    wide = (x.astype(np.float32) * np.float32(1.001)).astype(np.float16)
    narrow = x * np.float16(1.001)
    assert (wide != narrow).any()
    np.testing.assert_array_equal(np.asarray(nnp.multiply(x, 1.001)), wide)
    np.testing.assert_array_equal(np.asarray(nnp.multiply(x, 1.001, target="A2A3")), narrow)
    got = nnp.multiply(x, 1.001, dtype="fp32")
    np.testing.assert_array_equal(np.asarray(got), x.astype(np.float32) * np.float32(1.001))


def test_muls_of_bf16_on_a2a3_computes_in_float32():
    x = jnp.array([3.0], jnp.bfloat16)
    got = nnp.multiply(x, 1.01, target="A2A3")
    assert got.dtype == jnp.bfloat16
    assert got[0] == jnp.bfloat16(np.float32(3) * np.float32(1.01))


def test_declared_width_counts_on_a2a3():
    assert nnp.add(I8, 1.5, target="A2A3").dtype == jnp.float32  # the output torch_npu makes
    with pytest.raises(X64RequiredError):
        nnp.add(F16, 1j, target="A2A3")  # complex128 inside


@pytest.mark.parametrize(
    ("value", "want"), [(65519.0, 65504.0), (65520.0, np.inf), (1e-8, 0.0), (2049 / 2048, 1.0)]
)
def test_scalars_are_rounded_once(value, want):
    assert nnp.maximum(jnp.array([-1.0], jnp.float16), value)[0] == np.float16(want)


def test_scalars_round_from_their_full_precision():
    tie = 1 + 2.0**-8 + 2.0**-40  # float32 would make it a tie, and the tie 1
    assert nnp.maximum(jnp.array([0.0], jnp.bfloat16), tie)[0] == 1 + 2.0**-7
    saturating = npu.Target("A2A3", "aclnn", overflow="SATURATE")
    assert nnp.maximum(jnp.array([0.0], jnp.float16), 1e9, target=saturating)[0] == 65504


def test_outputs_convert_or_are_refused():
    assert nnp.add(F16, F16, dtype="bf16").dtype == jnp.bfloat16
    assert nnp.add(I8, I8, dtype="fp16").dtype == jnp.float16
    with pytest.raises(ConversionError, match=r"Given: output of type int8 .*Allowed: fp32, fp16"):
        nnp.add(F16, F16, dtype="int8")
    assert nnp.multiply(F16, F16, dtype="int8").dtype == jnp.int8  # 950 checks no output
    with pytest.raises(ConversionError):
        nnp.multiply(F16, F16, dtype="int8", target="A2A3")
    assert nnp.multiply(F16, 2, dtype="int8", target="A2A3").dtype == jnp.int8
    i32 = jnp.array([7], jnp.int32)
    assert nnp.divide(i32, i32, dtype="int32", target="A2A3")[0] == 1
    with pytest.raises(ConversionError):
        nnp.divide(i32, i32, dtype="int32")
    with pytest.raises(ConversionError, match="Allowed: fp16"):
        nnp.gelu(F16, dtype="fp32")
    assert nnp.equal(F16, F16, dtype="fp32").tolist() == [1.0, 1.0, 1.0]


def test_a_type_that_the_operator_does_not_take():
    with pytest.raises(InputError) as caught:
        nnp.gelu(I8)
    assert str(caught.value) == (
        "Given: operands of type int8 for gelu on 950PR. Allowed: fp16, bf16, fp32. "
        "Cast the operands first with npusim.cast."
    )
    u64 = np.ones(1, np.uint64)
    with jax.enable_x64(True), pytest.raises(InputError, match="950PR takes it"):
        nnp.equal(u64, u64, target="A2A3")
    e4m3 = jnp.ones(2, jnp.float8_e4m3fn)
    for call in (lambda: nnp.add(e4m3, e4m3), lambda: nnp.floor_divide(1j, jnp.ones(1))):
        with pytest.raises(InputError, match="Allowed: "):
            call()
    c32 = npu.cast(F16, "complex32", target=npu.Target("950PR", "aclnn"))
    with pytest.raises(InputError, match="950PR takes it"):
        nnp.add(c32, c32, target="A2A3")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: nnp.add(F16, jnp.ones(3, jnp.uint16)), "uint16 with uint16"),
        (lambda: nnp.power(I8, -1), "integers from 0 to 127"),
        (lambda: nnp.power(I8, 128), "integers from 0 to 127"),
        (lambda: nnp.where(F16, F16, F16), "bool, uint8"),
        (lambda: nnp.round(F16, 2), "decimals=0"),
        (lambda: nnp.layer_norm(F16, F16, jnp.ones(3)), "both fp32, or both fp16"),
        (lambda: nnp.maximum(jnp.array([1.0]), 1j), "fp32, fp16"),
        (lambda: nnp.einsum("ij,jk", F16, F16), "letters and"),
        (lambda: nnp.bind("910A"), "A2A3"),
        (lambda: nnp.bind(rules="fr"), "documented, implementation, zh"),
        (lambda: nnp.convolve, "jax.numpy.convolve"),
        (lambda: nnp.add([1.0], F16), "a jax.Array"),
    ],
)
def test_errors_say_what_is_allowed(call, text):
    with pytest.raises((npu.NpusimError, AttributeError), match=r"Given: .*Allowed: ") as caught:
        call()
    assert text in str(caught.value)


def test_64_bits_need_x64():
    for wide in (np.ones(3), np.float64(1.0), np.arange(3), np.int64(1)):
        for call in (
            lambda w: nnp.add(w, F16),
            nnp.sqrt,
            nnp.sum,
            nnp.asarray,
            nnp.reshape,
            nnp.softmax,
        ):
            with pytest.raises(X64RequiredError, match="jax_enable_x64"):
                call(wide)
    for call in (lambda: nnp.zeros(3, dtype="fp64"), lambda: nnp.add(F16, F16, dtype="fp64")):
        with pytest.raises(X64RequiredError):
            call()


def test_64_bits_with_x64():
    with jax.enable_x64(True):
        x = jnp.array([2.0**-1060, 1.0])
        assert nnp.multiply(x, np.float64(2.0)).dtype == jnp.float64
        assert nnp.add(np.array([2**63 - 1]), 1).tolist() == [-(2**63)]
        assert nnp.sum(jnp.array([True, True])).dtype == jnp.int64
        assert nnp.add(jnp.array([True]), 2).dtype == jnp.int64
        assert nnp.sqrt(jnp.array([16], jnp.int64)).dtype == jnp.float32
        assert nnp.add(jnp.float16(1), jnp.ones(2)).dtype == jnp.float64
        assert nnp.add(F16, 1j, target="A2A3").dtype == jnp.complex64
        assert nnp.exp(jnp.array([0.5], jnp.float32)).dtype == jnp.float32


def test_jax_never_decides_a_type_inside():
    row = operator_row("add", "950PR", "fp32")
    mixed = lambda x, y: x + y.astype(jnp.int8)  # noqa: E731
    with pytest.raises(ValueError, match="dtype promotion"):
        internals.run(row, internals.env("950PR", "documented"), mixed, [F16, F16])


def test_code_outside_is_untouched():
    with jax.numpy_dtype_promotion("standard"):
        nnp.add(F16, I8)
        assert (jnp.ones(1, jnp.int8) + jnp.ones(1, jnp.float32)).dtype == jnp.float32


def test_bind():
    a2, ninefifty = nnp.bind("A2A3"), nnp.bind()
    assert a2 == nnp.bind(npu.Target("A2", "aclnn"))
    assert hash(a2) == hash(nnp.bind("A2A3"))
    assert a2 != ninefifty
    assert "A2A3 aclnn" in repr(a2)
    assert set(nnp.__all__) == set(dir(a2))
    assert np.isinf(ninefifty.mean(jnp.full(4, 3e38)))
    assert a2.mean(jnp.full(4, 3e38)) == 3e38
    assert a2.reshape(F16, (3, 1)).shape == (3, 1)
    with pytest.raises(AttributeError, match="immutable"):
        a2.target = npu.Target()


def test_every_public_function_says_what_it_does():
    for name in nnp.__all__:
        text = getattr(nnp, name).__doc__
        assert text, name
        assert "Raises:" in text or name in ("Bound",), name


def test_moving_operators_keep_codes():
    hif8 = npu.array([1.0, 2.0], "hif8")
    both = nnp.concatenate([hif8, hif8])
    assert both.decode().tolist() == [1.0, 2.0, 1.0, 2.0]
    assert nnp.stack([hif8, hif8]).shape == (2, 2)
    assert nnp.reshape(hif8, (2, 1)).shape == (2, 1)
    assert nnp.stack([F16, jnp.ones(3)]).dtype == jnp.float32
    assert nnp.concatenate([I8, I8], dtype="fp16").dtype == jnp.float16
    c32 = npu.cast(F16, "complex32", target=npu.Target("950PR", "aclnn"))
    picked = nnp.where(jnp.array([True, False, False]), c32, nnp.add(c32, c32))
    assert picked.decode().tolist() == [1.5, -4.0, 0.5]
    assert nnp.astype(c32, "fp16").tolist() == F16.tolist()
    assert nnp.astype(jnp.array([300.7]), "int8")[0] == 44
    with pytest.raises(PromotionError):
        nnp.concatenate([hif8, F16])


def test_making_arrays():
    assert nnp.zeros((2,), dtype="half").dtype == jnp.float16
    assert nnp.ones((2,), dtype="hif8").decode().tolist() == [1.0, 1.0]
    assert nnp.full((2,), 3, dtype=jnp.int8).tolist() == [3, 3]
    assert nnp.arange(4, dtype="bf16").dtype == jnp.bfloat16
    assert nnp.zeros_like(F16).dtype == jnp.float16
    assert nnp.array([1.1], "fp16")[0] == np.float16(1.1)
    assert nnp.asarray(F16, "fp8_e4m3").dtype == jnp.float8_e4m3fn
    assert nnp.asarray([1, 2]).dtype == jnp.int32
