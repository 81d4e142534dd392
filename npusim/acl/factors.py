"""aclnnMul and aclnnDiv, against tensors and scalars, in place too.

Source of every rule here: hicann/ops-math math/mul/op_api/aclnn_mul.cpp,
math/div/op_api/aclnn_div.cpp and math/real_div/op_api/realdiv.cpp.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from npusim import numpy as nnp
from npusim.acl import checks
from npusim.acl.checks import TARGET
from npusim.acl.companions import aclScalar, rounded
from npusim.acl.executor import aclOpExecutor, second_call
from npusim.acl.status import alive, reported
from npusim.acl.tensor import aclTensor
from npusim.casting import cast
from npusim.dtypes import DT_BF16, DT_DOUBLE, DT_FP16, DT_FP32, DataType
from npusim.modes import SoC, Target
from npusim.ops import check_output, operator_row
from npusim.promotion import check_conversion, result_type


def _plan(
    call: str,
    dtype: DataType,
    result: DataType,
    tensors: dict[str, aclTensor],
    out: aclTensor,
    target: Target,
    body: Callable[..., Any],
) -> tuple[int, aclOpExecutor]:
    """The executor of a checked call: cast, ``body``, cast."""
    sources = [(tensor.dtype, dtype) for tensor in tensors.values()]
    checks.check_casts(target, *sources, (result, out.dtype))

    def compute(**values: Any) -> Any:
        brought = [cast(x, dtype, target=target) for x in values.values()]
        return cast(body(*brought), out.dtype, target=target)

    empty = any(tensor.view.count == 0 for tensor in tensors.values())
    return 0, aclOpExecutor(call, tensors, out, None if empty else compute, str(dtype))


def _held(number: aclScalar, dtype: DataType) -> Any:
    return jnp.asarray(number.to(dtype), dtype.jax_dtype)


def _product(
    call: str, self: Any, other: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        x, y, z = checks.tensors_of(("self", self), ("other", other), ("out", out))
        types = checks.listed("multiply", at)
        checks.check_listed(call, at, types, self=x, other=y, out=z)
        derived = result_type(x.dtype, y.dtype, rules=rules)
        check_output(operator_row("multiply", at.soc, derived), z.dtype, rules)
        checks.check_rank(call, self=x, other=y)
        checks.check_shape(call, "out", z, checks.broadcast_shape(call, self=x, other=y))
        checks.check_public(call, self=x, other=y, out=z)
        checks.check_writable(call, "out", z)

        def body(a: Any, b: Any) -> Any:
            return nnp.multiply(a, b, target=at)

        return _plan(call, derived, derived, {"self": x, "other": y}, z, at, body)


def _product_with_scalar(
    call: str, self: Any, other: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        (x,) = checks.tensors_of(("self", self))
        number = alive(other, aclScalar, "other")
        (z,) = checks.tensors_of(("out", out))
        types = checks.listed("multiply", at)
        checks.check_listed(call, at, types, self=x, out=z)
        derived = result_type(x.dtype, number.scalar, rules=rules, op="mul", target=at, out=z.dtype)
        check_output(operator_row("multiply", at.soc, derived), z.dtype, rules, scalar=True)
        checks.check_shape(call, "out", z, x.shape)
        checks.check_rank(call, self=x)
        checks.check_public(call, self=x, out=z)
        checks.check_writable(call, "out", z)
        dtype = result = derived
        if _has_float_kernel(x.dtype, number.dtype, at):
            # Muls: a 16-bit tensor times a float32 number, rounded to the tensor's type.
            dtype, result = DT_FP32, x.dtype

        def body(a: Any) -> Any:
            out = nnp.multiply(a, _held(number, dtype), target=at)
            return cast(out, result, target=at)

        return _plan(call, dtype, result, {"self": x}, z, at, body)


def _has_float_kernel(tensor: DataType, scalar: DataType, target: Target) -> bool:
    if target.soc is SoC.A2A3:
        return tensor is DT_BF16 and scalar is DT_DOUBLE
    return tensor in (DT_FP16, DT_BF16) and scalar.kind == "float"


def _quotient(
    call: str, self: Any, other: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        z, y, x = checks.tensors_of(("out", out), ("other", other), ("self", self))
        checks.check_rank(call, self=x, other=y)
        checks.check_shape(call, "out", z, checks.broadcast_shape(call, self=x, other=y))
        checks.check_listed(call, at, checks.listed("divide", at), other=y, self=x)
        derived = result_type(x.dtype, y.dtype, rules=rules)
        row = operator_row("divide", at.soc, derived)
        check_output(row, z.dtype, rules)
        checks.check_public(call, self=x, other=y, out=z)
        checks.check_writable(call, "out", z)
        dtype = DT_FP32 if derived.kind in ("int", "bool") else derived

        def body(a: Any, b: Any) -> Any:
            return nnp.divide(a, b, target=at)

        return _plan(call, dtype, dtype, {"self": x, "other": y}, z, at, body)


def _quotient_by_scalar(
    call: str, self: Any, other: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        (x,) = checks.tensors_of(("self", self))
        number = alive(other, aclScalar, "other")
        (z,) = checks.tensors_of(("out", out))
        checks.check_public(call, self=x, out=z)
        checks.check_listed(call, at, checks.listed("divide", at), other=number, self=x)
        checks.check_rank(call, self=x)
        checks.check_shape(call, "out", z, x.shape)
        derived = result_type(x.dtype, number.scalar, rules=rules, op="div", target=at)
        if at.soc is SoC.A2A3:
            check_conversion(x.dtype, z.dtype, rules)
        else:
            check_output(operator_row("divide", at.soc, derived), z.dtype, rules, scalar=True)
        checks.check_writable(call, "out", z)
        dtype = _divided_in(x.dtype, number.dtype, derived, at)
        inverse = _by_inverse(x, number.dtype, at)

        def body(a: Any) -> Any:
            if inverse:
                reciprocal = jnp.asarray(_reciprocal(number), jnp.float32)
                return nnp.multiply(a, reciprocal, target=at)
            return nnp.divide(a, _held(number, dtype), target=at)

        return _plan(call, dtype, dtype, {"self": x}, z, at, body)


def _divided_in(tensor: DataType, scalar: DataType, derived: DataType, target: Target) -> DataType:
    """What Divs computes in; integers in float32, 16-bit floats on 950 too."""
    if derived.kind in ("int", "bool"):
        return DT_FP32
    narrow = derived in (DT_FP16, DT_BF16)
    if narrow and (target.soc is not SoC.A2A3 or _mixed(tensor, scalar)):
        return DT_FP32
    return derived


def _mixed(tensor: DataType, scalar: DataType) -> bool:
    """The pairs that A2/A3 divides in one kernel of two types, whose result is float32."""
    pairs = {
        DT_FP16: (DT_FP32, DT_BF16),
        DT_FP32: (DT_FP16, DT_BF16),
        DT_BF16: (DT_FP32, DT_DOUBLE, DT_FP16),
    }
    return scalar in pairs.get(tensor, ())


def _by_inverse(x: aclTensor, scalar: DataType, target: Target) -> bool:
    """Whether 950 multiplies by the reciprocal instead of dividing."""
    if target.soc is SoC.A2A3 or x.dtype not in (DT_FP16, DT_BF16, DT_FP32):
        return False
    if scalar is DT_DOUBLE:
        return x.view.contiguous
    return scalar in (DT_FP16, DT_BF16, DT_FP32)


def _reciprocal(number: aclScalar) -> float:
    """1 / number, divided in float64 and rounded once to float32."""
    value = number.to(DT_DOUBLE)
    inverse = math.copysign(math.inf, value) if value == 0 else 1.0 / value
    return rounded(inverse, DT_FP32)


def aclnnMulGetWorkspaceSize(
    self: aclTensor,
    other: aclTensor,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self * other``.

    Args:
        self: tensor.
        other: tensor that broadcasts with ``self``.
        out: tensor of the broadcast shape. On A2/A3 its type is one that the result converts to;
            950 casts to any type that the interface lists.
        target: chip and overflow mode; a chip's name will do.
        rules: derivation and conversion tables: documented, implementation or zh.

    Returns:
        The workspace's size, which is 0 as npusim needs none, and the executor for aclnnMul.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed; 161002, in this order: a type that
            is not listed, no derived type (PromotionError), an output of a type that does not
            convert (ConversionError), rank above 8, shapes, a private format, an output whose
            elements overlap; 561103: a failure inside.

    Source: hicann/ops-math math/mul/op_api/aclnn_mul.cpp.

    Example:
        >>> x, out = (aclTensor.from_jax(jnp.array([2.5], t)) for t in ("float16", "int8"))
        >>> size, executor = aclnnMulGetWorkspaceSize(x, x, out)
        >>> aclnnMul(None, size, executor, None), out.to_jax().tolist()
        (0, [6])
    """
    return _product("aclnnMul", self, other, out, target, rules)


def aclnnDivGetWorkspaceSize(
    self: aclTensor,
    other: aclTensor,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self / other``, the real quotient: integers divide in fp32.

    On A2/A3 integers may have an integer output, to which the quotient is cast; on 950 not.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed, ``out`` being looked at first;
            161002, in this order: rank above 8, shapes, a type that is not listed, no derived type
            (PromotionError), an output of a type that does not convert (ConversionError), a
            private format, an output whose elements overlap; 561103: a failure inside.

    Source: hicann/ops-math math/div/op_api/aclnn_div.cpp and math/real_div/op_api/realdiv.cpp.

    Example:
        >>> x, y = (aclTensor.from_jax(jnp.array([n], jnp.int8)) for n in (7, 2))
        >>> out = aclTensor.from_jax(jnp.zeros(1, jnp.float16))
        >>> aclnnDiv(None, *aclnnDivGetWorkspaceSize(x, y, out), None), out.to_jax().tolist()
        (0, [3.5])
    """
    return _quotient("aclnnDiv", self, other, out, target, rules)


def aclnnMulsGetWorkspaceSize(
    self: aclTensor,
    other: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self * other`` with a scalar.

    fp16 and bf16 tensors with a float scalar on 950, bf16 with an fp64 one on A2/A3, are multiplied
    by the scalar in fp32 and rounded to the tensor's type before any cast to the output.

    Raises:
        AclnnError: as aclnnMulGetWorkspaceSize; ``out`` has the shape of ``self``.

    Source: hicann/ops-math math/mul/op_api/aclnn_mul.cpp.
    """
    return _product_with_scalar("aclnnMuls", self, other, out, target, rules)


def aclnnDivsGetWorkspaceSize(
    self: aclTensor,
    other: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self / other`` with a scalar.

    On 950 an fp16, bf16 or fp32 tensor is multiplied in fp32 by the reciprocal of a float scalar
    (of an fp64 one only if the tensor has no gaps), so the quotient is not correctly rounded.

    Raises:
        AclnnError: as aclnnDivGetWorkspaceSize, but the format is looked at first and the shape
            after the types; ``out`` has the shape of ``self``.

    Source: hicann/ops-math math/div/op_api/aclnn_div.cpp.
    """
    return _quotient_by_scalar("aclnnDivs", self, other, out, target, rules)


def aclnnInplaceMulGetWorkspaceSize(
    selfRef: aclTensor,
    other: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``selfRef *= other``; see aclnnMulGetWorkspaceSize.

    Raises:
        AclnnError: as aclnnMulGetWorkspaceSize.

    Source: hicann/ops-math math/mul/op_api/aclnn_mul.cpp.
    """
    return _product("aclnnInplaceMul", selfRef, other, selfRef, target, rules)


def aclnnInplaceDivGetWorkspaceSize(
    selfRef: aclTensor,
    other: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``selfRef /= other``; see aclnnDivGetWorkspaceSize.

    Raises:
        AclnnError: as aclnnDivGetWorkspaceSize.

    Source: hicann/ops-math math/div/op_api/aclnn_div.cpp.
    """
    checks.check_inplace("aclnnInplaceDiv", selfRef, other)
    return _quotient("aclnnInplaceDiv", selfRef, other, selfRef, target, rules)


aclnnMul = second_call("aclnnMul")
aclnnDiv = second_call("aclnnDiv")
aclnnMuls = second_call("aclnnMuls")
aclnnDivs = second_call("aclnnDivs")
aclnnInplaceMul = second_call("aclnnInplaceMul")
aclnnInplaceDiv = second_call("aclnnInplaceDiv")
