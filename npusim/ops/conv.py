"""Convolution as the Cube makes it."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from npusim._errors import InputError, message
from npusim.casting.storage import source
from npusim.modes import Target
from npusim.ops.accumulate import HIGHEST, Accumulate, check_accumulate, normal_dims, ordered_dot
from npusim.ops.cube import ACLNN, CubePlan, check_bias, finish, held, plan_cube


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    bias: Any = None,
    target: Target = ACLNN,
    cube_math_type: int = 3,
    accumulate: Accumulate = "fast",
) -> Array:
    """Convolve as aclnnConvolution does: a drop-in for `jax.lax.conv_general_dilated`.

    The numbers are those of `npusim.ops.dot_general`, but that float32 operands run as HF32 by
    default (torch_npu's ``conv.allow_hf32`` is True) and are rounded to it with ties to even.

    Shape: that of `jax.lax.conv_general_dilated`; ``bias`` has one element a feature.

    Special values: those of `npusim.ops.dot_general`.

    Gradient: as `npusim.ops.dot_general`; with HF32, which is the default, reverse mode only.

    Args:
        lhs: input.
        rhs: weight.
        window_strides: as for `jax.lax.conv_general_dilated`.
        padding: likewise.
        lhs_dilation: likewise.
        rhs_dilation: likewise.
        dimension_numbers: likewise.
        feature_group_count: likewise.
        batch_group_count: likewise.
        precision: accepted and ignored: it is always the highest.
        preferred_element_type: type of the output.
        bias: enters the accumulator as fp32.
        target: the chip and the overflow mode.
        cube_math_type: as for `npusim.ops.dot_general`; pass 0 for true float32.
        accumulate: as there; the ordered forms count the kernel's positions first, its input
            features last (assumed).

    Raises:
        InputError: a pair of types that the operator does not take, or an ordered sum with batch
            groups.
        ConversionError: an output type that the result does not become.
        UnknownNameError: an unknown ``accumulate`` or ``cube_math_type``.

    Source: hicann/ops-nn conv; asc-devkit HF32 page; torch_npu npu_config.py for defaults.

    Example:
        >>> x = jnp.full((1, 1, 3), 1 + 2**-11)
        >>> conv(x, jnp.ones((1, 1, 3)), (1,), "VALID")
        Array([[[3.]]], dtype=float32)
    """
    del precision
    lhs, a = source(lhs)
    rhs, b = source(rhs)
    plan = plan_cube("conv", a, b, cube_math_type, preferred_element_type, target)
    form = check_accumulate(accumulate)
    if form != "fast" and batch_group_count != 1:
        raise InputError(
            message(
                f"accumulate={form!r} with batch_group_count={batch_group_count}",
                "accumulate='fast', or batch_group_count=1",
                "Leave accumulate out.",
            )
        )
    rank = len(lhs.shape) - 2
    strides = tuple(int(s) for s in window_strides)
    left = tuple(int(d) for d in lhs_dilation or (1,) * rank)
    right = tuple(int(d) for d in rhs_dilation or (1,) * rank)
    dims = lax.conv_dimension_numbers(tuple(lhs.shape), tuple(rhs.shape), dimension_numbers)
    size = [(lhs.shape[i] - 1) * d + 1 for i, d in zip(dims.lhs_spec[2:], left, strict=True)]
    window = [(rhs.shape[i] - 1) * d + 1 for i, d in zip(dims.rhs_spec[2:], right, strict=True)]
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(size, window, strides, padding)
    pads = tuple((int(low), int(high)) for low, high in padding)
    geometry = (strides, pads, left, right)
    groups = (feature_group_count, batch_group_count)
    return _conv(plan, form, geometry, groups, dims, lhs, rhs, check_bias(bias, plan))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _conv(
    plan: CubePlan,
    accumulate: Accumulate,
    geometry: Any,
    groups: tuple[int, int],
    dims: lax.ConvDimensionNumbers,
    lhs: Any,
    rhs: Any,
    bias: Array | None,
) -> Array:
    a, b = held(lhs, plan, plan.row.lhs_compute), held(rhs, plan, plan.row.rhs_compute)
    if accumulate == "fast":
        strides, pads, left, right = geometry
        acc = lax.conv_general_dilated(
            a,
            b,
            strides,
            pads,
            left,
            right,
            dims,
            feature_group_count=groups[0],
            batch_group_count=groups[1],
            precision=HIGHEST,
            preferred_element_type=jnp.float32,
        )
    else:
        acc = _ordered(a, b, geometry, groups[0], dims, accumulate)
    if bias is not None:
        feature = dims.out_spec[1]
        bias = jnp.expand_dims(bias, [i for i in range(acc.ndim) if i != feature])
    return finish(acc, bias, plan)


def _ordered(
    lhs: Array,
    rhs: Array,
    geometry: Any,
    groups: int,
    dims: lax.ConvDimensionNumbers,
    accumulate: Accumulate,
) -> Array:
    strides, pads, left, right = geometry
    x = lhs.transpose(dims.lhs_spec)
    w = rhs.transpose(dims.rhs_spec)
    inner = [(low, high, d - 1) for (low, high), d in zip(pads, left, strict=True)]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *inner])
    kernel = w.shape[2:]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, right, strict=True)]
    out = [
        max((n - span) // s + 1, 0) for n, span, s in zip(x.shape[2:], spans, strides, strict=True)
    ]
    patches: list[Array] = []
    for position in itertools.product(*(range(k) for k in kernel)):
        begin = [p * d for p, d in zip(position, right, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, out, strides, strict=True)]
        start, stop = (0, 0, *begin), (*x.shape[:2], *end)
        patches.append(lax.slice(x, start, stop, (1, 1, *strides)))
    batch, features = x.shape[:2]
    taken = jnp.stack(patches, 1).reshape(batch, len(patches), groups, features // groups, -1)
    weights = w.reshape(groups, w.shape[0] // groups, features // groups, math.prod(kernel))
    # contracted: positions, then input features; batched: groups
    contraction = normal_dims((((1, 3), (3, 2)), ((2,), (0,))))
    acc = ordered_dot(taken, weights, contraction, accumulate)  # (group, batch, place, feature)
    acc = jnp.moveaxis(acc, 2, -1).swapaxes(0, 1)  # (batch, group, feature, place)
    acc = acc.reshape(batch, w.shape[0], *out)
    inverse = sorted(range(acc.ndim), key=lambda i: dims.out_spec[i])
    return acc.transpose(inverse)
