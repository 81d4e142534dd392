"""Matrix products as the Cube makes them: operands rounded, accumulated, cast once."""

import contextlib
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from npusim import dtypes
from npusim._errors import ConversionError, InputError, message
from npusim.casting import NpuArray, cast, fake_cast, grad_cast
from npusim.casting.storage import source
from npusim.dtypes import DT_FP16, DT_FP32, DT_HF32, DT_INT32, DataType
from npusim.modes import LABORATORY, OverflowMode, Target
from npusim.ops.accumulate import Accumulate, Dims, check_accumulate, normal_dims, ordered_dot
from npusim.ops.cube_rows import CubeRow, check_math_type, cube_row
from npusim.promotion import check_conversion

ACLNN = Target(api="aclnn")

# Rounding to HF32 (assumed until measured): SetHF32TransMode 1 for matmul, 0 for conv.
_HF32_MODE = {"matmul": "ROUND", "conv": "RINT"}


@dataclasses.dataclass(frozen=True)
class CubePlan:
    """The static part of a Cube call: the row, the output's type, overflow."""

    row: CubeRow
    out: DataType
    saturate: bool

    @property
    def laboratory(self) -> Target:
        """Where the operands are rounded: HF32 differs between the chips."""
        return Target(self.row.soc, "numerics")


def plan_cube(
    op: str, lhs: DataType, rhs: DataType, math_type: int, out: Any, target: Target
) -> CubePlan:
    """Find the row, and check that its result may become the output."""
    row = cube_row(lhs, rhs, target.soc, math_type, op)
    wanted = row.output if out is None else dtypes.dtype(out)
    check_conversion(row.output, wanted)
    if wanted is DT_FP16 and math_type == 0 and DT_FP32 in (lhs, rhs):
        raise ConversionError(
            message(
                "output of type fp16 for an operand of type fp32 with cubeMathType 0 (KEEP_DTYPE)",
                "fp32; fp16 with cubeMathType 1, 2, 3",
                "Pass cube_math_type=2 (USE_FP16), or cast the result yourself (npusim.cast).",
            ),
            src=row.output,
            dst=wanted,
            allowed=(row.output,),
        )
    return CubePlan(row, wanted, target.overflow is OverflowMode.SATURATE)


def held(x: Any, plan: CubePlan, compute: DataType) -> Array:
    """An operand rounded to its compute type and held in float32 (int8 for integers)."""
    if isinstance(x, NpuArray):
        return x.decode()
    x = jnp.asarray(x)
    if compute is DT_HF32:
        mode = _HF32_MODE[plan.row.op]
        return fake_cast(widened(x), DT_HF32, mode, "OFF", target=plan.laboratory)
    if compute is DT_FP16 and x.dtype != jnp.float16:
        half = cast(x, DT_FP16, "RINT", plan.saturate, target=LABORATORY)
        assert isinstance(half, jax.Array)
        return half.astype(jnp.float32)
    if jnp.issubdtype(x.dtype, np.integer):
        return x.astype(jnp.int8)
    return widened(x)


def widened(x: Array) -> Array:
    """A float array in float32, exactly."""
    if x.dtype.itemsize > 1:
        return x.astype(jnp.float32)
    wide = cast(x, DT_FP32, target=LABORATORY)
    assert isinstance(wide, jax.Array)
    return wide


def finish(acc: Array, bias: Array | None, plan: CubePlan) -> Array:
    """Add the bias, and cast the accumulator to the output's type."""
    if bias is not None:
        acc = acc + bias
    if plan.row.hf32:  # the products of the derivative are HF32 products too
        mode = _HF32_MODE[plan.row.op]
        acc = grad_cast(acc, DT_HF32, mode, "OFF", target=plan.laboratory)
    steps = [plan.out]
    if plan.row.math_type == 2 and plan.row.lhs_compute is DT_FP16:
        steps = [DT_FP16, plan.out]  # USE_FP16: the kernel writes half
    for dst in steps:
        acc = _stored(acc, dst, plan.saturate)
    return acc


def _stored(x: Array, dst: DataType, saturate: bool) -> Array:
    out = cast(x, dst, "RINT", saturate, target=LABORATORY)
    assert isinstance(out, jax.Array)
    return out


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _contract(
    plan: CubePlan, dims: Any, accumulate: Accumulate, lhs: Any, rhs: Any, bias: Array | None
) -> Array:
    a, b = held(lhs, plan, plan.row.lhs_compute), held(rhs, plan, plan.row.rhs_compute)
    return finish(_products(plan, dims, accumulate, a, b), bias, plan)


def _products(plan: CubePlan, dims: Dims, accumulate: Accumulate, a: Array, b: Array) -> Array:
    if plan.row.accumulate is DT_INT32:  # exact modulo 2**32 in any order
        return lax.dot_general(a, b, dims, preferred_element_type=jnp.int32)
    return ordered_dot(a, b, dims, accumulate)


def check_bias(bias: Any, plan: CubePlan) -> Array | None:
    """The bias as it enters the accumulator: float32, or int32 for integer products."""
    if bias is None:
        return None
    array, own = source(bias)
    wide = plan.row.accumulate
    narrow = ("fp32", "fp16", "bf16") if wide is DT_FP32 else ("int32",)
    if own.short not in narrow:
        raise InputError(
            message(
                f"bias of type {own} for {plan.row.lhs} x {plan.row.rhs}",
                ", ".join(narrow),
                "Cast the bias first with npusim.cast.",
            )
        )
    return jnp.asarray(array).astype(wide.jax_dtype)


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
    target: Target = ACLNN,
    cube_math_type: int = 0,
    accumulate: Accumulate = "fast",
    bias: Any = None,
) -> Array:
    """Contract as the Cube does: a drop-in for `jax.lax.dot_general`, also in Flax layers.

    Operands are rounded to the compute type of their pair and of ``cube_math_type`` and held in
    float32; products are summed in float32 (int32 for integers) at the highest precision, whatever
    ``precision`` says; one cast makes the output.

    Shape: that of `jax.lax.dot_general`.

    Special values: an output beyond fp16 or bf16 becomes inf, or MAX where ``target.overflow`` is
    SATURATE; int32 sums wrap. Float32 subnormals follow the backend.

    Gradient: roundings are straight-through; the products of the derivative are float32 products of
    the rounded operands in the fast form, and with HF32 the cotangent is rounded to HF32 too (then
    reverse mode only).

    Args:
        lhs: array, or NpuArray of a type that the Cube takes.
        rhs: as ``lhs``.
        dimension_numbers: as for `jax.lax.dot_general`.
        precision: accepted and ignored.
        preferred_element_type: type of the output; by default fp16 for fp16 x fp16, bf16 for
            bf16 x bf16, fp32 for other floats, int32 for integers.
        out_sharding: accepted as None only.
        target: the chip and the overflow mode.
        cube_math_type: 0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32,
            4 USE_FP32_ADD (summed like 0).
        accumulate: ``fast``: XLA's order, close to but not exactly the Cube's; ``("blocked", k)``
            and ``sequential``: see `npusim.ops.ordered_dot`. The Cube's own order is undocumented.
        bias: added to the accumulator after the products (assumed).

    Raises:
        InputError: a pair of types that the chip's Cube does not take, or a sharding.
        ConversionError: an output type that the result does not become.
        UnknownNameError: an unknown ``accumulate`` or ``cube_math_type``.

    Source: hicann/ops-nn matmul/common/op_host/op_api; asc-devkit Mmad and HF32 pages.

    Example:
        >>> x = jnp.full((1, 3), 65504, jnp.float16)
        >>> dot_general(x, x.T, (((1,), (0,)), ((), ())), preferred_element_type="fp32")
        Array([[1.2872322e+10]], dtype=float32)
    """
    del precision
    if out_sharding is not None:
        raise InputError(
            message("out_sharding", "None", "Constrain the result with jax.lax instead.")
        )
    lhs, a = source(lhs)
    rhs, b = source(rhs)
    plan = plan_cube("matmul", a, b, cube_math_type, preferred_element_type, target)
    form = check_accumulate(accumulate)
    dims = normal_dims(dimension_numbers)
    return _contract(plan, dims, form, lhs, rhs, check_bias(bias, plan))


def matmul(
    x: Any,
    y: Any,
    bias: Any = None,
    *,
    dtype: Any = None,
    cube_math_type: int = 0,
    target: Target = ACLNN,
    accumulate: Accumulate = "fast",
) -> Array:
    """Multiply matrices as aclnnMatmul does; see `dot_general` for the numbers.

    The default ``cube_math_type`` is what torch_npu sends: its ``matmul.allow_hf32`` is False.

    Shape: that of `jax.numpy.matmul`: vectors, matrices and broadcast stacks of matrices.

    Special values: those of `dot_general`.

    Gradient: that of `dot_general`.

    Args:
        x: array or NpuArray.
        y: array or NpuArray.
        bias: broadcasts against the result; enters the accumulator as fp32 (int32).
        dtype: type of the output.
        cube_math_type: see `dot_general`; the product of two vectors ignores it.
        target: the chip and the overflow mode.
        accumulate: see `dot_general`.

    Raises:
        InputError: shapes that do not fit, or types that the chip's Cube does not take.
        ConversionError: an output type that the result does not become.
        UnknownNameError: an unknown ``accumulate`` or ``cube_math_type``.

    Source: hicann/ops-nn matmul/common/op_host/op_api; torch_npu npu_config.py for defaults.

    Example:
        >>> x = jnp.array([[1.0 + 2**-11, 2.0]])
        >>> matmul(x, jnp.array([[1.0], [0.0]]), cube_math_type=3, target=Target("950PR", "aclnn"))
        Array([[1.0009766]], dtype=float32)
    """
    x, a = source(x)
    y, b = source(y)
    check_math_type(cube_math_type)
    vectors = x.ndim == 1 and y.ndim == 1  # aclnnDot, which has no cubeMathType
    plan = plan_cube("matmul", a, b, 0 if vectors else cube_math_type, dtype, target)
    form = check_accumulate(accumulate)
    _check_shapes(tuple(x.shape), tuple(y.shape))
    return _matmul(plan, form, x, y, check_bias(bias, plan))


def batch_matmul(
    x: Any,
    y: Any,
    *,
    dtype: Any = None,
    cube_math_type: int = 0,
    target: Target = ACLNN,
    accumulate: Accumulate = "fast",
) -> Array:
    """Multiply stacks of matrices as aclnnBatchMatMul does: `matmul` for operands of rank 3.

    Shape: ``(b, m, k)`` and ``(b, k, n)`` give ``(b, m, n)``; a batch of 1 is repeated.

    Special values: those of `dot_general`.

    Gradient: that of `dot_general`.

    Raises:
        InputError: an operand of another rank; else as `matmul`.
        ConversionError: an output type that the result does not become.

    Source: as `matmul`.

    Example:
        >>> batch_matmul(jnp.ones((2, 1, 3)), jnp.ones((1, 3, 1))).ravel()
        Array([3., 3.], dtype=float32)
    """
    for operand in (x, y):
        if np.ndim(operand) != 3 and getattr(operand, "ndim", None) != 3:
            raise InputError(
                message(
                    f"an operand of shape {tuple(np.shape(operand))} for batch_matmul",
                    "rank 3",
                    "Add the batch axis, or use npusim.ops.matmul.",
                )
            )
    return matmul(
        x, y, dtype=dtype, cube_math_type=cube_math_type, target=target, accumulate=accumulate
    )


def _check_shapes(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    fits = bool(x and y) and x[-1] == y[-2 if len(y) > 1 else 0]
    if fits:
        with contextlib.suppress(ValueError):
            np.broadcast_shapes(x[:-2], y[:-2])
            return
    raise InputError(
        message(
            f"shapes {x} and {y} for matmul",
            "(..., m, k) with (..., k, n), (k,) with (..., k, n), (..., m, k) with (k,)",
            "Transpose or reshape an operand.",
        )
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _matmul(plan: CubePlan, accumulate: Accumulate, x: Any, y: Any, bias: Array | None) -> Array:
    a, b = held(x, plan, plan.row.lhs_compute), held(y, plan, plan.row.rhs_compute)
    row, column = a.ndim == 1, b.ndim == 1
    a, b = a[None] if row else a, b[:, None] if column else b
    if b.ndim == 2:
        dims = (((a.ndim - 1,), (0,)), ((), ()))
    else:
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = jnp.broadcast_to(a, (*stack, *a.shape[-2:]))
        b = jnp.broadcast_to(b, (*stack, *b.shape[-2:]))
        axes = tuple(range(len(stack)))
        dims = (((a.ndim - 1,), (b.ndim - 2,)), (axes, axes))
    acc = _products(plan, dims, accumulate, a, b)
    squeezed = tuple(i for i, gone in ((-2, row), (-1, column)) if gone)
    return finish(jnp.squeeze(acc, squeezed), bias, plan)
