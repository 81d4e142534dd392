"""All 2**32 float32 words into one format: NPUSIM_F32_DST, by NPUSIM_F32_MODE.

The defaults are fp8_e4m3 and RINT.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import numerics
from npusim.dtypes import DT_FP32, dtype
from npusim.modes import CastMode
from tests.numerics.names import ORACLE
from tests.numerics.test_exhaustive import same_words
from tests.oracle import tables

CHUNK = 1 << 22


@pytest.mark.slow
def test_every_float_word():
    dst = dtype(os.environ.get("NPUSIM_F32_DST") or "fp8_e4m3")
    mode = os.environ.get("NPUSIM_F32_MODE") or "RINT"
    rule = CastMode(f"CAST_{mode}")
    run = jax.jit(lambda c: numerics.convert(c, DT_FP32, dst, rule, False))
    for start in range(0, 1 << 32, CHUNK):
        words = np.arange(start, start + CHUNK, dtype=np.uint64).astype(np.uint32)
        got = np.asarray(run(jnp.asarray(words)))
        want = tables.cast_codes(words, "f32", ORACLE[dst.short], mode, False)
        same_words(words, got, want, f"fp32 -> {dst} {mode}")
