"""Exact where it is promised: 8-bit pairs, and 16-bit floats against Fraction arithmetic."""

import itertools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import npusim as npu
import npusim.numpy as nnp
from tests.helpers import host_words, same_words
from tests.nnp.exact import code_of, special_codes
from tests.oracle.formats import FORMATS

PAIRS = 1500
FLOATS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
SOCS = ("A2A3", "950PR")


def _every_pair(kind):
    codes = np.arange(256, dtype=np.uint8).view(kind)
    return np.repeat(codes, 256), np.tile(codes, 256)


def _wrapped(values, kind):
    bits = np.dtype(kind).itemsize * 8
    low = values & ((1 << bits) - 1)
    if np.dtype(kind).kind == "i":
        low = low - ((low >> (bits - 1)) << bits)
    return low.astype(kind)


INTEGER = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("op", INTEGER)
def test_every_pair_of_one_8_bit_type(op, kind, soc):
    x, y = _every_pair(kind)
    got = np.asarray(getattr(nnp, op)(jnp.asarray(x), jnp.asarray(y), target=soc))
    want = _wrapped(INTEGER[op](x.astype(np.int64), y.astype(np.int64)), kind)
    assert got.dtype == kind
    same_words(x, got, want, f"{op} of {np.dtype(kind)} on {soc}")


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_every_pair_of_mixed_8_bit_types(op, soc):
    x, y = _every_pair(np.int8)
    y = y.view(np.uint8)
    got = np.asarray(getattr(nnp, op)(x, y, target=soc))
    want = _wrapped(INTEGER[op](x.astype(np.int64), y.astype(np.int64)), np.int16)
    assert got.dtype == np.int16
    same_words(x, got, want, f"{op} of int8 and uint8 on {soc}")


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("op", COMPARED)
def test_every_comparison_of_8_bits(op, kind, soc):
    x, y = _every_pair(kind)
    got = np.asarray(getattr(nnp, op)(x, y, target=soc))
    np.testing.assert_array_equal(got, getattr(np, op)(x, y))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_every_quotient_of_8_bits_is_a_float32(kind, soc):
    x, y = _every_pair(kind)
    got = np.asarray(nnp.divide(x, y, target=soc))
    with np.errstate(all="ignore"):
        want = x.astype(np.float32) / y.astype(np.float32)
    same_words(x, got.view(np.uint32), want.view(np.uint32), "quotient", nan_from=0x7F800001)


def test_every_pair_of_bools():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for soc in SOCS:
        for op, want in (
            ("add", x | y),
            ("subtract", x ^ y),
            ("multiply", x & y),
            ("maximum", x | y),
            ("minimum", x & y),
            ("logical_xor", x ^ y),
            ("less", ~x & y),
        ):
            got = getattr(nnp, op)(x, y, target=soc)
            assert got.dtype == jnp.bool_, op
            np.testing.assert_array_equal(np.asarray(got), want, err_msg=f"{op} on {soc}")


def _codes(fmt, count):
    rng = np.random.default_rng(sum(fmt.encode()))
    special = list(itertools.product(special_codes(fmt), repeat=2))
    drawn = rng.integers(0, 1 << 16, (count, 2)).tolist()
    # Pairs of nearby exponents: sums that cancel, quotients near one.
    near = rng.integers(0, 1 << 16, count)
    other = (near + rng.integers(-(1 << 11), 1 << 11, count)) % (1 << 16)
    pairs = np.array([*special, *drawn, *zip(near, other, strict=True)], np.uint16)
    return pairs[:, 0], pairs[:, 1]


def _check(op, fmt, operands, target):
    saturate = target.overflow is npu.OverflowMode.SATURATE
    arrays = [jnp.asarray(c.view(FLOATS[fmt])) for c in operands]
    got = host_words(getattr(nnp, op)(*arrays, target=target))
    results = [code_of(op, fmt, saturate, *pair) for pair in zip(*operands, strict=True)]
    want = np.array([code for code, _ in results], np.uint16)
    normal = ~np.array([tiny for _, tiny in results])
    if op in ("maximum", "minimum"):  # the sign of a zero follows the backend
        zero = np.uint16(FORMATS[fmt].sign_bit)
        got, want = (np.where(w == zero, np.uint16(0), w) for w in (got, want))
    same_words(
        operands[0][normal],
        got[normal],
        want[normal],
        f"{op} of {fmt} on {target}",
        nan_from=FORMATS[fmt].inf_code + 1,
    )


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("fmt", FLOATS)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_16_bit_floats_are_rounded_once(op, fmt, soc):
    _check(op, fmt, _codes(fmt, PAIRS), npu.Target(soc, "aclnn"))


@pytest.mark.parametrize("fmt", FLOATS)
def test_every_16_bit_square_root(fmt):
    codes = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    _check("sqrt", fmt, (codes,), npu.Target("950PR", "aclnn"))


@pytest.mark.parametrize("fmt", FLOATS)
@pytest.mark.parametrize("op", ["add", "multiply", "divide"])
def test_saturating_device(op, fmt):
    _check(op, fmt, _codes(fmt, 100), npu.Target("A2A3", "aclnn", overflow="SATURATE"))


def test_mixed_precision_computes_in_float32():
    x = jnp.array([2049.0], jnp.float32)
    got = nnp.add(jnp.array([1.0], jnp.float16), x)
    assert got.dtype == jnp.float32
    assert got[0] == 2050.0
    assert nnp.add(jnp.float16(1.0), jnp.bfloat16(1.0)).dtype == jnp.float32


def test_complex32_rounds_each_part_once():
    rng = np.random.default_rng(1)
    real, imag = (rng.standard_normal((2, 400)).astype(np.float16) for _ in range(2))
    a, b = (
        npu.cast(
            r + 1j * i.astype(np.complex64), "complex32", target=npu.Target("950PR", "numerics")
        )
        for r, i in zip(real, imag, strict=True)
    )
    p, q, r, s = (v.astype(np.float64) for v in (real[0], imag[0], real[1], imag[1]))
    for op, want in (
        ("add", (p + r, q + s)),
        ("subtract", (p - r, q - s)),
        ("multiply", ((p * r - q * s).astype(np.float32), (p * s + q * r).astype(np.float32))),
    ):
        got = getattr(nnp, op)(a, b)
        assert got.dtype is npu.DT_COMPLEX32
        halves = got.decode()
        np.testing.assert_array_equal(np.asarray(halves.real), want[0].astype(np.float16))
        np.testing.assert_array_equal(np.asarray(halves.imag), want[1].astype(np.float16))
