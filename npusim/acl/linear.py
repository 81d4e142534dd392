"""aclnnAdd and aclnnSub, with alpha; against tensors and scalars, in place too.

Source of every rule here: hicann/ops-math math/add/op_api/aclnn_add.cpp and
math/sub/op_api/aclnn_sub.cpp; the Axpy kernel of A2/A3: CANN 8.1 tbe/impl/dynamic/axpy.py.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from npusim import numpy as nnp
from npusim.acl import checks
from npusim.acl.checks import TARGET
from npusim.acl.companions import aclScalar
from npusim.acl.executor import aclOpExecutor, second_call
from npusim.acl.status import alive, reported
from npusim.acl.tensor import aclTensor
from npusim.casting import cast
from npusim.dtypes import (
    DT_BF16,
    DT_DOUBLE,
    DT_FP16,
    DT_FP32,
    DT_INT32,
    DataType,
)
from npusim.modes import SoC, Target
from npusim.ops import check_output, operator_row
from npusim.promotion import result_type, scalar_widens

# Types that a sum with alpha runs as one Axpy operator in; others run as Mul, then Add or Sub.
# 950's AxpyV2 on integers is not told apart: modulo the width it is the same number.
_AXPY = {
    ("add", SoC.A2A3): (DT_FP32, DT_INT32, DT_FP16),
    ("subtract", SoC.A2A3): (DT_FP32, DT_FP16, DT_BF16),
    ("add", SoC.ASCEND_950PR): (DT_FP32, DT_FP16, DT_BF16),
    ("subtract", SoC.ASCEND_950PR): (DT_FP32, DT_FP16, DT_BF16),
}


@dataclasses.dataclass(frozen=True)
class _Sum:
    """self + alpha * other, or self - alpha * other.

    Attributes:
        op: ``add`` or ``subtract``.
        dtype: the type that operands are brought to.
        alpha: the factor.
        target: the chip.
    """

    op: str
    dtype: DataType
    alpha: aclScalar
    target: Target

    @property
    def plain(self) -> bool:
        """Whether alpha counts as 1, so that nothing is multiplied.

        Compared as float32, on 950 as float64 where that is computed in; there a complex sum never
        takes the short way. As the code asks for neither above nor below 1, NaN counts as 1.
        """
        on_950 = self.target.soc is SoC.ASCEND_950PR
        if on_950 and "complex" in (self.alpha.dtype.kind, self.dtype.kind):
            return False
        wide = on_950 and self.dtype is DT_DOUBLE
        value = self.alpha.to(DT_DOUBLE if wide else DT_FP32)
        return not (value > 1 or value < 1)

    @property
    def axpy(self) -> bool:
        """Whether product and sum are one operator."""
        return self.dtype in _AXPY[self.op, self.target.soc]

    def __call__(self, self_: Any, other: Any) -> Any:
        """The sum, in ``dtype``."""
        combine = nnp.add if self.op == "add" else nnp.subtract
        x = cast(self_, self.dtype, target=self.target)
        y = cast(other, self.dtype, target=self.target)
        if self.plain:
            return combine(x, y, target=self.target)
        if not self.axpy:
            product = nnp.multiply(y, self._factor(self.dtype), target=self.target)
            return combine(x, product, target=self.target)
        # One rounding to the type at the end; the A2/A3 kernel holds alpha in half for half.
        half = self.dtype is DT_FP16 and self.target.soc is SoC.A2A3
        factor = cast(self._factor(DT_FP16 if half else DT_FP32), DT_FP32, target=self.target)
        x, y = cast(x, DT_FP32, target=self.target), cast(y, DT_FP32, target=self.target)
        product = nnp.multiply(y, factor, target=self.target)
        return cast(combine(x, product, target=self.target), self.dtype, target=self.target)

    def _factor(self, dtype: DataType) -> Any:
        return jnp.asarray(self.alpha.to(dtype), dtype.jax_dtype)


def _raised(op: str, dtype: DataType, alpha: aclScalar, target: Target) -> DataType:
    """Sub on A2/A3 with an alpha other than 1 computes floats in float32 or float64."""
    if op == "add" or target.soc is not SoC.A2A3 or dtype.kind != "float":
        return dtype
    if _Sum(op, dtype, alpha, target).plain or dtype is DT_DOUBLE:
        return dtype
    return DT_FP32


def _plan(
    call: str,
    op: str,
    derived: DataType,
    operands: dict[str, Any],
    alpha: aclScalar,
    out: aclTensor,
    target: Target,
) -> tuple[int, aclOpExecutor]:
    """The executor of a checked call; ``operands`` are self and other, tensors or arrays."""
    dtype = _raised(op, derived, alpha, target)
    tensors = {name: x for name, x in operands.items() if isinstance(x, aclTensor)}
    sources = [x.dtype for x in tensors.values()]
    checks.check_casts(target, *((src, dtype) for src in sources), (dtype, out.dtype))
    total = _Sum(op, dtype, alpha, target)
    empty = any(tensor.view.count == 0 for tensor in tensors.values())

    def compute(**values: Any) -> Any:
        given = {name: values.get(name, x) for name, x in operands.items()}
        return cast(total(given["self"], given["other"]), out.dtype, target=target)

    return 0, aclOpExecutor(call, tensors, out, None if empty else compute, str(dtype))


def _sum_of_tensors(
    call: str, op: str, self: Any, other: Any, alpha: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        x, y = checks.tensors_of(("self", self), ("other", other))
        factor = alive(alpha, aclScalar, "alpha")
        (z,) = checks.tensors_of(("out", out))
        types = checks.listed(op, at)
        checks.check_listed(call, at, types, self=x, other=y)
        derived = result_type(x.dtype, y.dtype, rules=rules)
        checks.check_alpha(call, factor, derived)
        check_output(operator_row(op, at.soc, derived), z.dtype, rules)
        checks.check_rank(call, self=x, other=y)
        checks.check_shape(call, "out", z, checks.broadcast_shape(call, self=x, other=y))
        checks.check_public(call, self=x, other=y, out=z)
        checks.check_writable(call, "out", z)
        return _plan(call, op, derived, {"self": x, "other": y}, factor, z, at)


def _sum_with_scalar(
    call: str, op: str, self: Any, other: Any, alpha: Any, out: Any, target: Any, rules: str
) -> tuple[int, aclOpExecutor]:
    with reported():
        at = checks.aclnn_target(target)
        (x,) = checks.tensors_of(("self", self))
        number = alive(other, aclScalar, "other")
        factor = alive(alpha, aclScalar, "alpha")
        (z,) = checks.tensors_of(("out", out))
        types = checks.listed(op, at)
        checks.check_listed(call, at, types, self=x)
        derived = _scalar_type(op, x.dtype, number, factor, z.dtype, at, rules)
        checks.check_alpha(call, factor, derived)
        check_output(operator_row(op, at.soc, derived), z.dtype, rules, scalar=True)
        checks.check_rank(call, self=x)
        checks.check_shape(call, "out", z, x.shape)
        checks.check_public(call, self=x, out=z)
        checks.check_writable(call, "out", z)
        dtype = _raised(op, derived, factor, at)
        held = jnp.asarray(number.to(dtype), dtype.jax_dtype)
        return _plan(call, op, derived, {"self": x, "other": held}, factor, z, at)


def _scalar_type(
    op: str,
    dtype: DataType,
    other: aclScalar,
    alpha: aclScalar,
    out: DataType,
    target: Target,
    rules: str,
) -> DataType:
    name = "add" if op == "add" else "sub"
    derived = result_type(dtype, other.scalar, rules=rules, op=name, target=target, out=out)
    narrow = derived in (DT_FP16, DT_BF16) and target.soc is SoC.ASCEND_950PR
    if narrow and not isinstance(alpha.value, complex) and scalar_widens(alpha.value, derived):
        return DT_FP32
    return derived


def aclnnAddGetWorkspaceSize(
    self: aclTensor,
    other: aclTensor,
    alpha: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self + alpha * other``.

    Operands are cast to the derived type. With an alpha of 1 they are added; otherwise fp32, and
    fp16 (950: also bf16), take one operator that computes in fp32 and rounds once, int32 on A2/A3
    one that computes in fp32; every other type multiplies, rounds, and adds.

    Args:
        self: tensor.
        other: tensor that broadcasts with ``self``.
        alpha: scalar; of a type that converts to the derived one, and no float for a bool sum.
        out: tensor of the broadcast shape, of a type that the result converts to.
        target: chip and overflow mode; a chip's name will do.
        rules: derivation and conversion tables: documented, implementation or zh.

    Returns:
        The workspace's size, which is 0 as npusim needs none, and the executor for aclnnAdd.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed; 161002, in this order: a type that
            is not listed, no derived type (PromotionError), alpha or the output of a type that
            does not convert (ConversionError), rank above 8, shapes, a private format, an output
            whose elements overlap; 561103: a failure inside.

    Source: hicann/ops-math math/add/op_api/aclnn_add.cpp; what Axpy rounds in between is assumed.

    Example:
        >>> x = aclTensor.from_jax(jnp.ones(2, jnp.float16))
        >>> y, out = aclTensor.from_jax(jnp.ones(2)), aclTensor.from_jax(jnp.zeros(2))
        >>> size, executor = aclnnAddGetWorkspaceSize(x, y, aclScalar(2, DT_INT32), out)
        >>> executor, aclnnAdd(None, size, executor, None), out.to_jax().tolist()
        (aclOpExecutor(aclnnAdd, computes in fp32, spent), 0, [3.0, 3.0])
    """
    return _sum_of_tensors("aclnnAdd", "add", self, other, alpha, out, target, rules)


def aclnnSubGetWorkspaceSize(
    self: aclTensor,
    other: aclTensor,
    alpha: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self - alpha * other``; see aclnnAddGetWorkspaceSize.

    A2/A3 computes floats in fp32 (fp64) where alpha is not 1, and rounds to the output's type only.

    Raises:
        AclnnError: as aclnnAddGetWorkspaceSize.

    Source: hicann/ops-math math/sub/op_api/aclnn_sub.cpp.
    """
    return _sum_of_tensors("aclnnSub", "subtract", self, other, alpha, out, target, rules)


def aclnnAddsGetWorkspaceSize(
    self: aclTensor,
    other: aclScalar,
    alpha: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self + alpha * other`` with a scalar; see aclnnAddGetWorkspaceSize.

    The derived type follows the scalar rules of `npusim.result_type`; on 950 an alpha that fp16 or
    bf16 does not hold widens to fp32, as ``other`` does.

    Raises:
        AclnnError: as aclnnAddGetWorkspaceSize; ``out`` has the shape of ``self``.

    Source: hicann/ops-math math/add/op_api/aclnn_add.cpp.
    """
    return _sum_with_scalar("aclnnAdds", "add", self, other, alpha, out, target, rules)


def aclnnSubsGetWorkspaceSize(
    self: aclTensor,
    other: aclScalar,
    alpha: aclScalar,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self - alpha * other`` with a scalar; see aclnnAddsGetWorkspaceSize.

    Raises:
        AclnnError: as aclnnAddsGetWorkspaceSize.

    Source: hicann/ops-math math/sub/op_api/aclnn_sub.cpp.
    """
    return _sum_with_scalar("aclnnSubs", "subtract", self, other, alpha, out, target, rules)


def aclnnInplaceAddGetWorkspaceSize(
    selfRef: aclTensor,
    other: aclTensor,
    alpha: aclScalar,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``selfRef += alpha * other``; see aclnnAddGetWorkspaceSize.

    Raises:
        AclnnError: as aclnnAddGetWorkspaceSize; the shape is checked first.

    Source: hicann/ops-math math/add/op_api/aclnn_add.cpp.
    """
    checks.check_inplace("aclnnInplaceAdd", selfRef, other)
    name = "aclnnInplaceAdd"
    return _sum_of_tensors(name, "add", selfRef, other, alpha, selfRef, target, rules)


def aclnnInplaceSubGetWorkspaceSize(
    selfRef: aclTensor,
    other: aclTensor,
    alpha: aclScalar,
    *,
    target: Target | str = TARGET,
    rules: str = "documented",
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``selfRef -= alpha * other``; see aclnnSubGetWorkspaceSize.

    Raises:
        AclnnError: as aclnnInplaceAddGetWorkspaceSize.

    Source: hicann/ops-math math/sub/op_api/aclnn_sub.cpp.
    """
    checks.check_inplace("aclnnInplaceSub", selfRef, other)
    name = "aclnnInplaceSub"
    return _sum_of_tensors(name, "subtract", selfRef, other, alpha, selfRef, target, rules)


aclnnAdd = second_call("aclnnAdd")
aclnnSub = second_call("aclnnSub")
aclnnAdds = second_call("aclnnAdds")
aclnnSubs = second_call("aclnnSubs")
aclnnInplaceAdd = second_call("aclnnInplaceAdd")
aclnnInplaceSub = second_call("aclnnInplaceSub")
