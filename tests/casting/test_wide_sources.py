"""Sources of 64 bits: one rounding to every destination, subnormal results included."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from tests.casting import common
from tests.casting.common import LAB, SHORT, array_of, words_of
from tests.helpers import same_words
from tests.numerics.names import ORACLE
from tests.oracle import tables
from tests.oracle.casts import cast as exact_cast
from tests.oracle.formats import FORMATS, FloatFormat, encode
from tests.oracle.ladder import ladder

MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
SETTINGS = [(mode, index % 2 == 0) for index, mode in enumerate(("RINT", *MODES))]
DESTINATIONS = tuple(name for name in ORACLE.values() if name != "f64")


@pytest.mark.parametrize("src", ["f64", "s64", "u64"])
def test_every_destination_in_one_rounding(src, strict_promotion):
    for dst in DESTINATIONS:
        if dst == src:
            continue
        codes = common.probe(src, dst)
        for mode, on in SETTINGS:
            with jax.enable_x64(True), jax.disable_jit():
                got = npu.cast(array_of(codes, src), SHORT[dst], mode, on, target=LAB)
                got = words_of(got)
            want = tables.cast_codes(codes, src, dst, mode, on)
            same_words(codes, got, want, f"{src} -> {dst} {mode} {on}")


def double_rounding_traps(dst):
    """Float64 values next to a middle of ``dst`` that float32 would round onto the middle."""
    fmt = FORMATS[dst]
    values = []
    for exponent in range(fmt.min_exponent - fmt.mantissa_bits - 1, fmt.min_exponent + 3):
        unit = Fraction(2) ** exponent
        for odd in (1, 3, 5, 7):
            middle = odd * unit / 2
            for nudge in (-1, 1):
                values.append(middle + nudge * unit * Fraction(1, 1 << 45))
    return [float(v) for v in values]


@pytest.mark.parametrize("dst", ["bf16", "f16", "e5m2", "e4m3fn", "f32"])
def test_float64_to_subnormal_results(dst):
    values = double_rounding_traps(dst)
    x = np.array([*values, *(-v for v in values)])
    for mode in MODES:
        with jax.enable_x64(True):
            got = words_of(npu.cast(jnp.asarray(x), SHORT[dst], mode, target=LAB))
        want = [exact_cast(int(c), "f64", dst, mode, True) for c in x.view(np.uint64)]
        want = np.array(want, got.dtype)
        same_words(x.view(np.uint64), got, want, f"f64 -> {dst} {mode}")
    assert isinstance(FORMATS[dst], FloatFormat)


@pytest.mark.parametrize("mode", MODES)
def test_hif8_in_every_mode(mode):
    """The laboratory's modes, ties between binades included; parity is that of the code."""
    codes = np.concatenate([common.probe("f32", "hif8"), tie_words()])
    with jax.disable_jit():
        got = words_of(npu.cast(array_of(codes, "f32"), "hif8", mode, False, target=LAB))
    want = tables.cast_codes(codes, "f32", "hif8", mode, False)
    same_words(codes, got, want, f"f32 -> hif8 {mode}")


def tie_words():
    """Float32 words of the middles between HiFloat8 neighbours, both signs."""
    middles = ladder("hif8").mid.astype(np.float32)
    return np.concatenate([middles, -middles]).view(np.uint32)


def test_float64_subnormals_are_kept():
    codes = np.array([1, 0x000F_FFFF_FFFF_FFFF, 1 << 63 | 1, 0, 1 << 63], np.uint64)
    with jax.enable_x64(True):
        x = array_of(codes, "f64")
        for mode in MODES:
            got = words_of(npu.cast(x, "fp32", mode, target=LAB))
            want = tables.cast_codes(codes, "f64", "f32", mode, True)
            same_words(codes, got, want, mode)
        down = words_of(npu.cast(x, "bool", target=LAB))
    assert down.tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("dst", ["f32", "f16", "bf16", "e4m3fn", "e5m2", "hif8", "e2m1", "e1m2"])
def test_array_rounds_once_from_float64(dst):
    """Python numbers and NumPy float64, with x64 off: nothing goes through float32 first."""
    codes = common.probe("f64", dst)
    values = codes.view(np.float64)
    assert not jax.config.jax_enable_x64
    got = words_of(npu.array(values, SHORT[dst]))
    want = tables.cast_codes(codes, "f64", dst, "RINT", True)
    same_words(codes, got, want, f"array to {dst}")
    listed = words_of(npu.array(values.tolist(), SHORT[dst]))
    same_words(codes, listed, want, f"array of a list to {dst}")


def test_array_just_above_a_middle():
    """1 + 2**-8 is the middle of two bfloat16 numbers; float32 loses the 2**-40 above it."""
    value = 1 + 2.0**-8 + 2.0**-40
    assert float(npu.array(value, "bf16")) == 1 + 2.0**-7
    assert float(npu.array(np.float32(value), "bf16")) == 1.0
    assert encode(Fraction(1), "bf16") == 0x3F80


def test_integers_round_once_as_well():
    value = (1 << 32) + (1 << 24) + 1  # float32 would make it a tie of bfloat16
    got = npu.array(np.array([value, -value]), "bf16")
    assert got.tolist() == [2.0**32 + 2.0**25, -(2.0**32) - 2.0**25]


@pytest.mark.parametrize("dtype", ["fp64", "int64", "uint64", "complex128"])
def test_64_bit_types_need_x64(dtype):
    kind = npu.dtype(dtype).jax_dtype
    with pytest.raises(npu.X64RequiredError, match="jax_enable_x64"):
        npu.array([1.0], dtype)
    with pytest.raises(npu.X64RequiredError, match="jax_enable_x64"):
        npu.cast(jnp.ones(2), dtype, target=LAB)
    with pytest.raises(npu.X64RequiredError, match="an input"):
        npu.cast(np.ones(2, kind), "fp32", target=LAB)
    with pytest.raises(npu.X64RequiredError, match="an input"):
        npu.fake_cast(np.ones(2, kind), "fp8_e4m3")
    with jax.enable_x64(True):
        assert npu.array([1.0], dtype).dtype == kind
        assert npu.cast(np.ones(2, kind), "fp32", target=LAB).tolist() == [1, 1]
