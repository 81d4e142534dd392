"""Casts of complex types act on both parts, and agree with the cast of the part alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import Target
from tests.casting import common
from tests.casting.common import COMPLEX_PARTS, LAB, SHORT, TARGETS, words_of
from tests.helpers import same_words
from tests.oracle import tables

NAME = {short: name for name, short in SHORT.items()}
MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
REAL = ("f32", "f16", "bf16", "f64", "s8", "s64", "u32", "e4m3fn", "hif8", "e2m1", "bool")
pytestmark = pytest.mark.usefixtures("strict_promotion")


def part_codes(name, dst):
    """Codes of the real and of the imaginary part: the same ones, in other places."""
    codes = common.probe(COMPLEX_PARTS[name], COMPLEX_PARTS.get(dst, dst))
    return codes, np.roll(codes, 7)


def complex_array(real, imag, name):
    if name == "c32":
        codes = real.astype(np.uint32) | (imag.astype(np.uint32) << np.uint32(16))
        return npu.from_codes(codes, "complex32")
    kind = {"c64": np.float32, "c128": np.float64}[name]
    return jax.lax.complex(jnp.asarray(real.view(kind)), jnp.asarray(imag.view(kind)))


def parts_of(x):
    """Codes of the parts of a result; of a real one, itself."""
    if isinstance(x, npu.NpuArray) and x.dtype is npu.DT_COMPLEX32:
        codes = np.asarray(x.codes)
        return codes.astype(np.uint16), (codes >> np.uint32(16)).astype(np.uint16)
    if jnp.issubdtype(x.dtype if not isinstance(x, npu.NpuArray) else np.uint8, np.complexfloating):
        return words_of(jnp.real(x)), words_of(jnp.imag(x))
    return (words_of(x),)


def check(name, dst, target, want_of, **arguments):
    real, imag = part_codes(name, dst)
    with jax.enable_x64(True), jax.disable_jit():
        x = complex_array(real, imag, name)
        got = parts_of(npu.cast(x, SHORT[dst], target=target, **arguments))
    for given, codes in zip((real, imag), got, strict=False):
        same_words(given, codes, want_of(given), f"{name} -> {dst} {arguments} {target}")
    assert len(got) == 1 + (dst in COMPLEX_PARTS)


def laboratory(name, dst, mode, on):
    src, dst = COMPLEX_PARTS[name], COMPLEX_PARTS.get(dst, dst)
    return lambda codes: tables.cast_codes(codes, src, dst, mode, on)


@pytest.mark.parametrize("name", COMPLEX_PARTS)
def test_between_complex_types_in_the_laboratory(name):
    settings = [(mode, index % 2 == 0) for index, mode in enumerate(("RINT", *MODES))]
    for dst, (mode, on) in itertools.product(COMPLEX_PARTS, settings):
        if dst != name:
            want = laboratory(name, dst, mode, on)
            check(name, dst, LAB, want, mode=mode, satmode=on)


@pytest.mark.parametrize("name", COMPLEX_PARTS)
def test_to_a_real_type_the_real_part_is_taken(name):
    for dst, on in itertools.product(REAL[:-1], (True, False)):
        want = laboratory(name, dst, "ROUND", on)
        check(name, dst, LAB, want, mode="ROUND", satmode=on)


@pytest.mark.parametrize("name", COMPLEX_PARTS)
def test_to_bool_either_part_counts(name):
    zero, minus_zero = 0, {"c32": 1 << 15, "c64": 1 << 31, "c128": 1 << 63}[name]
    kind = tables.container(COMPLEX_PARTS[name])
    pairs = itertools.product((zero, minus_zero, 1, minus_zero | 1), repeat=2)
    real, imag = np.array(list(pairs), kind).T
    with jax.enable_x64(True):
        got = npu.cast(complex_array(real.copy(), imag.copy(), name), "bool", target=LAB)
    is_set = [
        r not in (zero, minus_zero) or i not in (zero, minus_zero)
        for r, i in zip(real, imag, strict=True)
    ]
    assert got.tolist() == is_set


@pytest.mark.parametrize("name", COMPLEX_PARTS)
def test_from_a_real_type_the_imaginary_part_is_plus_zero(name):
    for src in REAL:
        codes = common.probe(src, COMPLEX_PARTS[name])
        with jax.enable_x64(True), jax.disable_jit():
            x = common.array_of(codes, src)
            real, imag = parts_of(npu.cast(x, SHORT[name], "FLOOR", False, target=LAB))
        want = tables.cast_codes(codes, src, COMPLEX_PARTS[name], "FLOOR", False)
        same_words(codes, real, want, f"{src} -> {name}")
        assert not imag.any()
        assert imag.dtype == real.dtype


def test_ascendc_pairs():
    """complex32 to and from complex64, and complex64 rounded to integral parts."""
    target = TARGETS["950-memory"]
    for src, dst, modes, _, _ in common.ascendc_rows("950-memory"):
        if "c64" not in (src, dst):
            continue
        for mode, on in itertools.product(modes, (True, False)):
            rule = "RINT" if mode == "NONE" else mode
            if src == dst:
                want = lambda codes, rule=rule: common.integral(codes, rule)  # noqa: E731
            else:
                want = laboratory(src, dst, rule, on)
            check(src, dst, target, want, mode=mode, satmode=on)


@pytest.mark.parametrize("overflow", ["INF_NAN", "SATURATE"])
@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_aclnn_pairs(soc, overflow):
    target = Target(soc, "aclnn", overflow)
    on = overflow == "SATURATE"
    seen = 0
    for row in npu.supported_casts(target):
        src, dst = NAME[str(row.src)], NAME[str(row.dst)]
        if src in COMPLEX_PARTS and dst != "bool":
            check(src, dst, target, laboratory(src, dst, "RINT", on))
            seen += 1
        elif dst in COMPLEX_PARTS:
            codes = common.probe(src, COMPLEX_PARTS[dst])
            with jax.enable_x64(True), jax.disable_jit():
                real, imag = parts_of(
                    npu.cast(common.array_of(codes, src), SHORT[dst], target=target)
                )
            same_words(codes, real, laboratory_real(src, dst, on)(codes), f"{src} -> {dst}")
            assert not imag.any()
            seen += 1
    assert seen > 20


def laboratory_real(src, dst, on):
    return lambda codes: tables.cast_codes(codes, src, COMPLEX_PARTS[dst], "RINT", on)


def test_fake_cast_acts_on_both_parts():
    x = jax.lax.complex(jnp.array([1.1, 500.0]), jnp.array([-1.1, -0.3]))
    got = npu.fake_cast(x, "fp8_e4m3")
    assert got.dtype == jnp.complex64
    want = npu.fake_cast(jnp.real(x), "fp8_e4m3"), npu.fake_cast(jnp.imag(x), "fp8_e4m3")
    assert (words_of(jnp.real(got)) == words_of(want[0])).all()
    assert (words_of(jnp.imag(got)) == words_of(want[1])).all()
