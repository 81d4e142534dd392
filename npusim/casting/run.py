"""Running the steps of a resolved cast on codes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import numerics
from npusim.casting.resolve import Step
from npusim.casting.storage import Parts, convert_parts
from npusim.dtypes import DT_FP16, DT_FP32, DT_INT32
from npusim.modes import CastMode
from npusim.numerics import words
from npusim.numerics.integers import round_integral
from npusim.numerics.words import F32, NAN32


def run_steps(codes: Parts, steps: tuple[Step, ...], soc: str, deqscale: Array | None) -> Parts:
    """Apply the steps of a resolved cast, one after the other."""
    for step in steps:
        if step.kind == "integral":
            codes = tuple(integral(code, step.mode) for code in codes)
        elif step.kind == "deq":
            assert deqscale is not None
            codes = (deq(codes[0], deqscale, step.saturate),)
        else:
            codes = convert_parts(
                codes,
                step.src,
                step.dst,
                step.mode,
                step.saturate,
                soc=soc,
                through_bits=step.through_bits,
                inf_wraps=step.inf_wraps,
            )
    return codes


def integral(word: Array, mode: CastMode) -> Array:
    """Float32 words rounded to integral float32 words; a zero result is +0, inf and NaN stay.

    Source: Ascend C Cast page, float to float; a -0 result becomes +0 on A2/A3 (boundary page).
    """
    magnitude = word & F32.magnitude
    rounded = jnp.where(magnitude < F32.inf, round_integral(word, mode), magnitude)
    out = jnp.where(rounded == 0, np.uint32(0), rounded | (word & F32.sign))
    return jnp.where(magnitude > F32.inf, NAN32, out)


def deq(codes: Array, scale: Array, saturate: bool) -> Array:
    """Half codes of int32 codes times a half scale.

    Three roundings to nearest even: the integer to float32, the product to float32, the result to
    half. The vendor's two powers of two in between are exact and left out. The product of two
    normal float32 numbers cannot be subnormal here: the scale is a half.

    Source: hicann asc-devkit, vector conversion of the 950 (the A2/A3 instruction is taken alike).
    """
    word = numerics.convert(codes, DT_INT32, DT_FP32, CastMode.CAST_RINT, False)
    value = words.from_words(word, np.dtype(np.float32))
    product = value * scale.astype(jnp.float32)
    return numerics.convert(words.as_words(product), DT_FP32, DT_FP16, CastMode.CAST_RINT, saturate)


@functools.partial(jax.jit, static_argnames=("steps", "soc"))
def run_compiled(
    codes: Parts, steps: tuple[Step, ...], soc: str, deqscale: Array | None = None
) -> Parts:
    """`run_steps`, compiled: one fused loop a call."""
    return run_steps(codes, steps, soc, deqscale)
