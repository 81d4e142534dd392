"""The static forms give the bits the traced forms gave under test_exhaustive.py: the oracle's."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import numerics
from npusim.dtypes import DT_FP16, DT_FP32, DT_HF32, DT_INT16, DT_INT32
from npusim.numerics.rounding import RULES
from tests.numerics.names import ORACLE, REAL
from tests.numerics.test_exhaustive import same_words
from tests.oracle import probes, tables

DESTINATIONS = [(row, None, ORACLE[row.short]) for row in REAL if row is not DT_FP32]
DESTINATIONS += [(DT_HF32, "950PR", "hf32_10"), (DT_HF32, "A2A3", "hf32_11")]
SETTINGS = list(itertools.product(RULES, (True, False)))


def all_settings(codes, src, dst, soc):
    """Every mode and saturation in one compilation."""
    return [numerics.convert(codes, src, dst, *setting, soc=soc) for setting in SETTINGS]


@pytest.mark.parametrize(
    ("dst", "soc", "oracle_dst"), DESTINATIONS, ids=[d[2] for d in DESTINATIONS]
)
def test_float_words(dst, soc, oracle_dst):
    words = probes.probe_words("f32", oracle_dst)
    words = np.concatenate(
        [words[:: max(1, words.size // 20_000)], probes.random_words(11, 20_000)]
    )
    with jax.enable_x64(True):
        got = jax.jit(all_settings, static_argnums=(1, 2, 3))(jnp.asarray(words), DT_FP32, dst, soc)
    for (mode, saturate), one in zip(SETTINGS, got, strict=True):
        want = tables.cast_codes(words, "f32", oracle_dst, mode.short, saturate)
        same_words(words, np.asarray(one), want, f"fp32 -> {oracle_dst} {mode.short} {saturate}")


@pytest.mark.parametrize("src", [DT_FP16, DT_INT16, DT_INT32], ids=str)
@pytest.mark.parametrize("dst", ["bf16", "fp8_e4m3", "hif8", "int8", "fp32"])
def test_other_sources(src, dst):
    row = next(r for r in REAL if r.short == dst)
    name = ORACLE[src.short]
    codes = (
        probes.random_words(5, 40_000, name)
        if src is DT_INT32
        else np.arange(1 << 16, dtype=np.uint16)
    )
    got = jax.jit(all_settings, static_argnums=(1, 2, 3))(jnp.asarray(codes), src, row, None)
    for (mode, saturate), one in zip(SETTINGS, got, strict=True):
        want = tables.cast_codes(codes, name, ORACLE[dst], mode.short, saturate)
        same_words(codes, np.asarray(one), want, f"{src} -> {dst} {mode.short} {saturate}")
