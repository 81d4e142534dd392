"""Parameter checks of the first calls, one function each; each operator calls them in its order."""

import numpy as np

from npusim._errors import ConversionError, message
from npusim.acl.companions import aclScalar
from npusim.acl.status import INNER_NULLPTR, alive, invalid, reported
from npusim.acl.tensor import aclTensor
from npusim.acl.views import Shape
from npusim.casting import resolve_cast
from npusim.casting.storage import check_x64
from npusim.dtypes import DT_BOOL, DT_COMPLEX32, DTYPES, DataType
from npusim.modes import Target
from npusim.ops import operator_rows
from npusim.promotion import can_cast

TARGET = Target(api="aclnn")
MAX_RANK = 8


def aclnn_target(target: Target | str) -> Target:
    """The target of a call; a chip's name means its aclnn interface."""
    with reported():
        made = target if isinstance(target, Target) else Target(target, "aclnn")
        if made.api != "aclnn":
            raise invalid(
                f"target {made}",
                "targets with api='aclnn'",
                f"Pass Target({made.soc.value!r}, 'aclnn').",
            )
        return made


def listed(op: str, target: Target) -> tuple[DataType, ...]:
    """The types that the aclnn interface of an operator lists on a chip.

    The operator's rows also carry COMPLEX32, which npusim.numpy computes with and aclnn does not
    list.
    """
    rows = operator_rows(op, target.soc)
    return tuple(row.dtype for row in rows if row.dtype is not DT_COMPLEX32)


def check_listed(
    call: str, target: Target, types: tuple[DataType, ...], **operands: aclTensor | aclScalar
) -> None:
    """Raise unless the interface lists the type of each operand."""
    for name, operand in operands.items():
        if operand.dtype not in types:
            raise invalid(
                f"{name} of type {operand.dtype} for {call} on {target.soc.value}",
                ", ".join(str(row) for row in DTYPES if row in types),
                "Cast it to one of these types first (aclnnCast).",
            )


def check_rank(call: str, **tensors: aclTensor) -> None:
    """Raise for a tensor of more axes than aclnn has."""
    for name, tensor in tensors.items():
        if len(tensor.shape) > MAX_RANK:
            raise invalid(
                f"{name} of rank {len(tensor.shape)} for {call}",
                f"rank 0 to {MAX_RANK}",
                "Reshape it: join axes that the operator treats alike.",
            )


def broadcast_shape(call: str, **tensors: aclTensor) -> Shape:
    """The shape that two tensors broadcast to."""
    shapes = [tensor.shape for tensor in tensors.values()]
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        given = " and ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items())
        raise invalid(
            f"shapes {given} for {call}",
            "shapes whose sizes, counted from the last axis, are equal or 1",
            "Reshape one of them so that they broadcast.",
        ) from None


def check_shape(call: str, name: str, tensor: aclTensor, shape: Shape) -> None:
    """Raise unless a tensor has the shape that the call gives."""
    if tensor.shape != shape:
        raise invalid(
            f"{name} of shape {tensor.shape} for {call}",
            str(shape),
            "Make a tensor of this shape.",
        )


def check_public(call: str, **tensors: aclTensor) -> None:
    """Raise for a tensor in a private format; no operator here lists one."""
    for name, tensor in tensors.items():
        if tensor.format.private:
            raise invalid(
                f"{name} in format {tensor.format} for {call}",
                "ND and the other public formats",
                "Convert it to a public format first (trans_data).",
            )


def check_writable(call: str, name: str, tensor: aclTensor) -> None:
    """Raise for an output in which two elements are one: which value stays is undefined."""
    if tensor.view.overlaps:
        raise invalid(
            f"{name} with strides {tensor.view.strides} for {call}, in which elements overlap",
            "an output in which every element has a place of its own",
            "Take a tensor without overlap and copy from it.",
        )


def check_alpha(call: str, alpha: aclScalar, derived: DataType) -> None:
    """Raise unless alpha may be converted to the type that is computed in.

    Source: hicann/ops-math math/add/op_api/aclnn_add.cpp (CheckPromoteType): CanCast, but a bool
    sum takes integers too.
    """
    if derived is DT_BOOL:
        fits = alpha.dtype.kind in ("int", "bool")
        allowed = [row for row in DTYPES if row.kind in ("int", "bool")]
    else:
        fits = can_cast(alpha.dtype, derived, rules="implementation")
        allowed = [row for row in DTYPES if can_cast(row, derived, rules="implementation")]
    if not fits:
        raise ConversionError(
            message(
                f"alpha of type {alpha.dtype} for {call}, which computes in {derived}",
                ", ".join(str(row) for row in allowed if row.acl_name),
                "Create alpha with one of these types.",
            ),
            src=alpha.dtype,
            dst=derived,
            allowed=tuple(allowed),
        )


def check_casts(target: Target, *pairs: tuple[DataType, DataType]) -> None:
    """Raise if the chip lacks a cast that the plan has, or JAX lacks a type in it.

    On the device the cast fails inside the first call, so the status is not that of a parameter.
    """
    with reported(INNER_NULLPTR):
        for src, dst in pairs:
            resolve_cast(src, dst, target=target)
            check_x64(src, "a value")
            check_x64(dst, "a value")


def tensors_of(*named: tuple[str, object]) -> tuple[aclTensor, ...]:
    """The tensors of a call, each checked to be one and alive, in the call's order."""
    return tuple(alive(tensor, aclTensor, name) for name, tensor in named)


def check_inplace(call: str, self: object, other: object) -> None:
    """Raise unless ``other`` broadcasts to the shape of ``self``, which is also the output."""
    with reported():
        x, y = tensors_of(("selfRef", self), ("other", other))
        check_shape(call, "selfRef", x, broadcast_shape(call, selfRef=x, other=y))
