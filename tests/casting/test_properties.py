"""What must hold for any values at all: drawn arrays, one compiled function a format."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npusim as npu

FLOATS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "hif8", "fp4_e2m1", "fp4_e1m2", "hf32")
FORMATS = (*FLOATS, "int4", "int8", "uint8", "int16")
MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
SIZE = 64

# Words, so that subnormals and every exponent are as likely as ordinary numbers.
arrays = hnp.arrays(np.uint32, SIZE, elements=st.integers(0, 2**32 - 1), unique=True)
near_one = hnp.arrays(np.uint32, SIZE, elements=st.integers(0x3000_0000, 0x4F00_0000))
drawn = st.one_of(arrays, near_one, near_one.map(lambda w: w | np.uint32(0x8000_0000)))
check = functools.partial(hypothesis.settings, max_examples=12)


@functools.cache
def all_modes(fmt, sat):
    """Every mode at once, compiled once a format."""
    return jax.jit(lambda x: [npu.fake_cast(x, fmt, mode, sat) for mode in MODES])


def run(words, fmt, sat="ON"):
    x = words.view(np.float32)
    out = [np.asarray(y) for y in all_modes(fmt, sat)(jnp.asarray(x))]
    return x, dict(zip(MODES, out, strict=True))


def wide(x):
    """As float64, in NumPy, which keeps subnormals."""
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize("fmt", FORMATS)
@hypothesis.given(words=drawn)
@check()
def test_order_and_bracket(fmt, words):
    x, out = run(words, fmt)
    finite = np.isfinite(x)
    order = np.argsort(wide(x)[finite], kind="stable")
    for mode, y in out.items():
        assert np.all(np.diff(wide(y)[finite][order]) >= 0), f"{mode} is not monotone"
    inside = finite & (np.abs(wide(x)) <= float(npu.dtype(fmt).max))
    inside &= wide(x) >= float(npu.dtype(fmt).min)
    low, high = wide(out["FLOOR"])[inside], wide(out["CEIL"])[inside]
    value = wide(x)[inside]
    assert np.all(low <= value)
    assert np.all(value <= high)
    for mode, y in out.items():  # faithful: one of the two neighbours
        got = wide(y)[inside]
        assert np.all((got == low) | (got == high)), f"{mode} leaves the bracket"
    toward_zero = np.where(value < 0, high, low)
    assert np.array_equal(wide(out["TRUNC"])[inside], toward_zero)
    for mode in ("RINT", "ROUND"):  # nearest
        off = np.abs(wide(out[mode])[inside] - value)
        assert np.all(off <= np.minimum(value - low, high - value)), f"{mode} is not nearest"


@pytest.mark.parametrize("fmt", FORMATS)
@hypothesis.given(words=drawn)
@check()
def test_idempotent_and_indifferent_to_saturation_inside(fmt, words):
    x, on = run(words, fmt)
    _, off = run(words, fmt, "OFF")
    kept = {}
    for mode in MODES:
        _, again = run(on[mode].view(np.uint32), fmt)
        for second in MODES:
            np.testing.assert_array_equal(again[second].view(np.uint32), on[mode].view(np.uint32))
        inside = np.isfinite(x) & (np.abs(wide(x)) <= float(npu.dtype(fmt).max))
        inside &= wide(x) >= float(npu.dtype(fmt).min)
        same = on[mode].view(np.uint32) == off[mode].view(np.uint32)
        assert np.all(same[inside]), mode
        kept[mode] = inside
    assert all(np.array_equal(kept["RINT"], k) for k in kept.values())


@pytest.mark.parametrize("fmt", ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "hif8"])
@hypothesis.given(words=drawn)
@check()
def test_mirror(fmt, words):
    """Negating the input negates the result, with FLOOR and CEIL exchanged."""
    x, out = run(words, fmt)
    _, mirrored = run((words ^ np.uint32(0x8000_0000)), fmt)
    other = {"FLOOR": "CEIL", "CEIL": "FLOOR"}
    for mode in MODES:
        want = -wide(out[mode])
        np.testing.assert_array_equal(wide(mirrored[other.get(mode, mode)]), want)
    assert x.shape == (SIZE,)
