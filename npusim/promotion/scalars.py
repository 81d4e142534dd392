"""Tensor with scalar: the 950 category rule and the per-operator rules of A2/A3."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from npusim._errors import InputError, message
from npusim.dtypes import (
    DT_BF16,
    DT_BOOL,
    DT_COMPLEX128,
    DT_DOUBLE,
    DT_FP16,
    DT_FP32,
    DT_INT64,
    DataType,
)
from npusim.dtypes import dtype as data_type
from npusim.modes import SoC, Target
from npusim.promotion import tables

# What torch_npu declares when it makes an aclScalar of a Python number (Ascend op-plugin,
# op_api_common.h): the widest type of the category.
_DECLARED = {"bool": DT_BOOL, "int": DT_INT64, "float": DT_DOUBLE, "complex": DT_COMPLEX128}


def declared(kind: str) -> DataType:
    """Return the type that a Python scalar of category ``kind`` is declared with."""
    return _DECLARED[kind]


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A scalar with a declared type, as aclCreateScalar makes one.

    Attributes:
        value: the number, or None where it is not known (a traced value).
        dtype: the declared type; by default what torch_npu declares for a Python number: bool,
            int64, fp64 or complex128.

    Raises:
        InputError: a value that is no number and no dtype given, or an integer beyond 64 bits.

    Example:
        >>> Scalar(1.5).dtype, Scalar(1.5, "half").dtype
        (npusim.DT_DOUBLE, npusim.DT_FP16)
    """

    value: bool | int | float | complex | None
    dtype: DataType

    def __init__(self, value: bool | int | float | complex | None, dtype: Any = None):
        if dtype is not None:
            row = data_type(dtype)
        elif isinstance(value, bool | int | float | complex):
            row = _DECLARED[type(value).__name__]
        else:
            raise InputError(
                message(
                    f"scalar {value!r} without a dtype",
                    "a bool, int, float or complex",
                    "Pass a Python number, or name the dtype.",
                )
            )
        if row.kind == "int" and isinstance(value, int) and not row.min <= value <= row.max:
            raise InputError(
                message(
                    f"scalar {value} of type {row}",
                    f"{row.min} to {row.max}",
                    "Pass a value that its type holds, or a float.",
                )
            )
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "dtype", row)


def scalar_widens(value: bool | int | float, to: Any) -> bool:
    """Return whether a scalar makes 950's Add, Sub and Mul of a 16-bit float tensor run in fp32.

    The operator rounds the scalar to the tensor's type and compares with its fp32 value: a
    difference above 2^-23, absolute, widens. So small scalars (below 1e-7) never do. It tests
    alpha of Add and Sub in the same way.

    Special values: infinities and NaN do not widen; a finite value that overflows ``to`` does.

    Raises:
        InputError: ``to`` is neither fp16 nor bf16.

    Source: hicann/ops-math math/add/op_api/aclnn_add.cpp (IsFloatEqual).

    Example:
        >>> scalar_widens(1.001, "fp16"), scalar_widens(1.5, "fp16"), scalar_widens(1e-7, "fp16")
        (True, False, False)
    """
    row = data_type(to)
    if row not in (DT_FP16, DT_BF16):
        raise InputError(message(f"type {row}", "fp16, bf16", "Only these two widen to fp32."))
    narrow = np.float16 if row is DT_FP16 else ml_dtypes.bfloat16
    with np.errstate(all="ignore"):
        exact = np.float32(value)
        rounded = exact.astype(narrow).astype(np.float32)
        return bool(np.abs(rounded - exact) > np.finfo(np.float32).eps)


def combine(
    tensor: DataType,
    scalar: Scalar,
    op: tables.Operator | None,
    target: Target,
    out: DataType | None,
) -> DataType | None:
    """Return the type of a tensor with a scalar, None where there is none."""
    row = tables.scalars().get((tensor, scalar.dtype))
    if row is None:
        return None
    if target.soc is SoC.A2A3:
        if op is None:
            return row["op_950"]
        return row[op.scalar_a2a3_out_fp32 if out is DT_FP32 else op.scalar_a2a3]
    result = row[op.scalar_950 if op else "op_950"]
    checked = op is None or op.value_check
    if checked and result in (DT_FP16, DT_BF16) and isinstance(scalar.value, int | float):
        return DT_FP32 if scalar_widens(scalar.value, result) else result
    return result


def rank0(tensor: DataType, other: DataType) -> DataType | None:
    """Return what a ranked tensor gives with a rank-0 one in 950's mixed-rank operators."""
    row = tables.scalars().get((tensor, other))
    return None if row is None else row["rank0_950"]
