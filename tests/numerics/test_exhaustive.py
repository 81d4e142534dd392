"""Every code of every format of at most 16 bits, into every format, by every mode.

Mode and saturation are traced here, so that a pair compiles once; that the static forms give the
same bits is test_static.py.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import numerics
from npusim.dtypes import DT_HF32
from npusim.modes import CastMode
from npusim.numerics.rounding import MODE_INDEX
from tests.numerics.names import NARROW, ORACLE, REAL, WIDE, width
from tests.oracle import probes, tables

SETTINGS = list(itertools.product(MODE_INDEX, (True, False)))
DESTINATIONS = [(row, None, ORACLE[row.short]) for row in REAL]
DESTINATIONS += [(DT_HF32, "950PR", "hf32_10"), (DT_HF32, "A2A3", "hf32_11")]


def check(codes, src, oracle_src, destinations=DESTINATIONS):
    with jax.enable_x64(True):
        device_codes = jnp.asarray(codes)
        for dst, soc, oracle_dst in destinations:

            @functools.partial(jax.jit, static_argnums=())
            def run(c, mode, saturate, dst=dst, soc=soc):
                return numerics.convert(c, src, dst, mode, saturate, soc=soc)

            for mode, saturate in SETTINGS:
                got = np.asarray(run(device_codes, jnp.int32(MODE_INDEX[mode]), saturate))
                want = tables.cast_codes(codes, oracle_src, oracle_dst, mode.short, saturate)
                same_words(codes, got, want, f"{src} -> {oracle_dst} {mode.short} {saturate}")


def same_words(codes, got, want, what):
    assert got.dtype == want.dtype, (what, got.dtype, want.dtype)
    bad = np.flatnonzero(got != want)
    lines = [f"{codes[i]:#x}: got {got[i]:#x}, want {want[i]:#x}" for i in bad[:20]]
    assert not bad.size, f"{what}: {bad.size} of {codes.size} differ\n" + "\n".join(lines)


@pytest.mark.parametrize("src", NARROW, ids=str)
def test_every_code_of_a_narrow_format(src):
    codes = np.arange(1 << width(src), dtype=np.uint64).astype(
        np.uint8 if src.bits <= 8 else np.uint16
    )
    check(codes, src, ORACLE[src.short])


@pytest.mark.parametrize("src", WIDE, ids=str)
def test_probes_of_a_wide_format(src):
    name = ORACLE[src.short]
    for dst, soc, oracle_dst in DESTINATIONS:
        words = probes.probe_words(name, oracle_dst)
        stride = max(1, words.size // 40_000)
        chosen = np.concatenate([words[::stride], probes.random_words(7, 4096, name)])
        check(chosen, src, name, [(dst, soc, oracle_dst)])


@pytest.mark.parametrize("src", ["fp32", "fp16"])
def test_hybrid(src):
    row = next(r for r in REAL if r.short == src)
    hif8 = next(r for r in REAL if r.short == "hif8")
    if src == "fp16":
        codes = np.arange(1 << 16, dtype=np.uint16)
    else:
        codes = np.concatenate(
            [probes.probe_words("f32", "hif8"), probes.random_words(3, 100_000, "f32")]
        )
    for saturate in (True, False):
        got = np.asarray(
            jax.jit(lambda c: numerics.convert(c, row, hif8, CastMode.CAST_HYBRID, saturate))(codes)  # noqa: B023
        )
        want = tables.cast_codes(codes, ORACLE[src], "hif8", "HYBRID", saturate)
        same_words(codes, got, want, f"{src} HYBRID {saturate}")
