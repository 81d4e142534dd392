"""A cast one step at a time: the codes between the steps, and what `explain` says of each."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from npusim.casting.resolve import ResolvedCast, Step
from npusim.casting.run import run_compiled
from npusim.casting.storage import parts
from npusim.cli.explain import Dissection, dissect
from npusim.dtypes import DT_FP16, DT_FP32, DT_INT32, DataType
from npusim.modes import CastMode

Explained = list[tuple[str, list[Dissection]]]
"""For one input: a label (the part of a complex number) and its steps."""


def trace(array: Any, resolved: ResolvedCast, deqscale: float) -> list[Explained]:
    """Explain every element of an array on its way through a resolved cast."""
    src = resolved.src
    columns = list(parts(array, src))
    labels = [" (real part)", " (imaginary part)"] if len(columns) == 2 else [""]
    if resolved.dst.kind not in ("complex", "bool"):
        columns, labels = columns[:1], labels[:1]  # a real destination takes the real part
    count = int(columns[0].size)
    out: list[Explained] = [[] for _ in range(count)]
    for column, label in zip(columns, labels, strict=True):
        chains = _chain(column, resolved, deqscale)
        for index in range(count):
            out[index].append((label, [step[index] for step in chains]))
    return out


def _chain(column: Any, resolved: ResolvedCast, deqscale: float) -> list[list[Dissection]]:
    soc = str(resolved.target.soc)
    found: list[list[Dissection]] = []
    for step in resolved.steps:
        if step.kind == "deq":
            column, more = _deq(column, step, deqscale, soc)
            found += more
            continue
        step = dataclasses.replace(step, src=step.src.part, dst=step.dst.part)
        column, more = _run(column, step, soc)
        found.append(more)
    return found


def _run(column: Any, step: Step, soc: str) -> tuple[Any, list[Dissection]]:
    (after,) = run_compiled((column,), (step,), soc)
    before = [int(code) for code in np.asarray(column)]
    return after, dissect(before, [int(code) for code in np.asarray(after)], step, soc)


def _deq(column: Any, step: Step, deqscale: float, soc: str) -> tuple[Any, list[list[Dissection]]]:
    """INT32 -> FP16 times a half scale: three roundings, the middle one a float32 product."""
    word, first = _run(column, _plain(DT_INT32, DT_FP32, False), soc)
    (scale,) = run_compiled(
        (jnp.asarray(np.float32(deqscale)).view(np.uint32).reshape(1),),
        (_plain(DT_FP32, DT_FP16, False),),
        soc,
    )
    half = np.asarray(scale).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore"):
        product = np.asarray(word).view(np.float32) * half
    after, last = _run(
        jnp.asarray(product.view(np.uint32)), _plain(DT_FP32, DT_FP16, step.saturate), soc
    )
    text = f"{half[0]:.9g}"
    last = [
        dataclasses.replace(d, step=f"{d.step}, of the product with the scale {text}") for d in last
    ]
    return after, [first, last]


def _plain(src: DataType, dst: DataType, saturate: bool) -> Step:
    return Step(src=src, dst=dst, mode=CastMode.CAST_RINT, saturate=saturate)
