"""The bits of every cast on the accelerator that JAX sees, against the oracle's tables."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import FormatParams, numerics
from npusim.dtypes import DT_HF32
from npusim.numerics.rounding import MODE_INDEX
from tests.casting import common
from tests.casting.common import LAB, array_of, ascendc_rows, words_of
from tests.helpers import same_words
from tests.numerics.names import NARROW, ORACLE, REAL, WIDE, width
from tests.oracle import probes, tables

BACKEND = jax.default_backend()
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(BACKEND == "cpu", reason="JAX sees no accelerator, only the CPU"),
]
SETTINGS = list(itertools.product(MODE_INDEX, (True, False)))
DESTINATIONS = [(row, None, ORACLE[row.short]) for row in REAL]
DESTINATIONS += [(DT_HF32, "950PR", "hf32_10"), (DT_HF32, "A2A3", "hf32_11")]
MOST = 60_000


def assert_conversions(codes, src, destinations):
    """Every mode and saturation of each destination, a compilation each."""
    name = ORACLE[src.short]
    with jax.enable_x64(True):
        on_device = jax.device_put(codes)
        for dst, soc, oracle_dst in destinations:
            run = jax.jit(
                lambda c, m, s, dst=dst, soc=soc: numerics.convert(c, src, dst, m, s, soc=soc)
            )
            for mode, saturate in SETTINGS:
                got = np.asarray(run(on_device, jnp.int32(MODE_INDEX[mode]), saturate))
                want = tables.cast_codes(codes, name, oracle_dst, mode.short, saturate)
                what = f"{src} -> {oracle_dst} {mode.short} {saturate} on {BACKEND}"
                same_words(codes, got, want, what)


@pytest.mark.parametrize("src", NARROW, ids=str)
def test_every_code_of_a_narrow_format(src):
    kind = np.uint8 if src.bits <= 8 else np.uint16
    assert_conversions(np.arange(1 << width(src)).astype(kind), src, DESTINATIONS)


@pytest.mark.parametrize("src", WIDE, ids=str)
def test_probes_of_a_wide_format(src):
    name = ORACLE[src.short]
    for destination in DESTINATIONS:
        words = probes.probe_words(name, destination[2])
        words = words[:: max(1, words.size // MOST)]
        codes = np.concatenate([words, probes.random_words(5, MOST, name)])
        assert_conversions(codes, src, [destination])


@pytest.mark.parametrize("src", ["f32", "f16"])
def test_hybrid(src):
    codes = np.arange(1 << 16, dtype=np.uint16)
    if src == "f32":
        codes = np.concatenate([probes.probe_words(src, "hif8"), probes.random_words(3, MOST)])
    for satmode in (True, False):
        got = npu.cast(array_of(codes, src), "hif8", "HYBRID", satmode, target=LAB)
        want = tables.cast_codes(codes, src, "hif8", "HYBRID", satmode)
        same_words(codes, words_of(got), want, f"{src} HYBRID on {BACKEND}")


def test_the_static_form_of_every_950_pair():
    """Through npu.cast, where the compiler could delete a pair of conversions."""
    target = common.TARGETS["950-memory"]
    for src, dst, modes, _, _ in ascendc_rows("950-memory"):
        if "c64" in (src, dst):
            continue
        codes = common.probe(src, dst)
        mode = modes[0] if modes else None
        want = common.ascendc(codes, src, dst, "RINT" if mode in (None, "NONE") else mode, True)
        with common.x64_for(src, dst):
            got = npu.cast(array_of(codes, src), common.SHORT[dst], mode, True, target=target)
            same_words(codes, words_of(got), want, f"{src} -> {dst} {mode} on {BACKEND}")


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8_e4m3", "hif8", "fp4_e2m1", "int8"])
@pytest.mark.parametrize("traced", [False, True], ids=["static", "params"])
def test_fake_cast_and_its_gradient(dtype, traced):
    codes = common.probe("f32", ORACLE[dtype])
    x = array_of(codes, "f32")
    fmt = FormatParams.of(dtype) if traced else dtype
    values = jax.jit(lambda v: npu.fake_cast(v, fmt))(x)
    back = npu.cast(values, dtype, "RINT", "OFF", target=LAB)
    want = tables.cast_codes(codes, "f32", ORACLE[dtype], "RINT", True)
    same_words(codes, words_of(back), want, f"fake_cast {dtype} on {BACKEND}")
    gradient = jax.jit(jax.vmap(jax.grad(lambda v: jnp.float32(0.3) * npu.fake_cast(v, fmt))))(x)
    assert (np.asarray(gradient) == np.float32(0.3)).all()
