"""aclnnCast: a tensor in another data type, any listed pair."""

from typing import Any

from npusim.acl import checks
from npusim.acl.checks import TARGET
from npusim.acl.enums import aclDataType, row_of
from npusim.acl.executor import aclOpExecutor, second_call
from npusim.acl.status import invalid, reported
from npusim.acl.tensor import aclTensor
from npusim.casting import cast, supported_casts
from npusim.dtypes import DataType
from npusim.modes import Target


def _listed(target: Target) -> tuple[tuple[DataType, ...], tuple[DataType, ...]]:
    """The types that aclnnCast takes on a chip, and those it gives."""
    rows = supported_casts(target)
    sources = tuple(dict.fromkeys(row.src for row in rows))
    results = tuple(dict.fromkeys((*sources, *(row.dst for row in rows))))
    return sources, results


def aclnnCastGetWorkspaceSize(
    self: aclTensor,
    dtype: aclDataType | DataType | str,
    out: aclTensor,
    *,
    target: Target | str = TARGET,
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self`` in another data type.

    The conversion rules of other operators' outputs do not hold here: floats become integers.

    Args:
        self: tensor.
        dtype: aclDataType or any name of one: the type of ``out``.
        out: tensor of the shape of ``self``.
        target: chip and overflow mode; a chip's name will do.

    Returns:
        The workspace's size, which is 0 as npusim needs none, and the executor for aclnnCast.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed; 161002, in this order: a type that
            is not listed, an output of another type than ``dtype``, rank above 8, shapes, a private
            format, an output whose elements overlap; 561103: a pair that the chip lacks, or a
            failure inside.

    Source: hicann/ops-math math/cast/op_api/aclnn_cast.cpp; see `npusim.supported_casts`.

    Example:
        >>> import jax.numpy as jnp
        >>> x, out = aclTensor.from_jax(jnp.array([2.9])), aclTensor.from_jax(jnp.int8([0]))
        >>> size, executor = aclnnCastGetWorkspaceSize(x, "int8", out)
        >>> aclnnCast(None, size, executor, None), out.to_jax().tolist()
        (0, [2])
    """
    call = "aclnnCast"
    with reported():
        at = checks.aclnn_target(target)
        x, z = checks.tensors_of(("self", self), ("out", out))
        row = row_of(dtype)
        sources, results = _listed(at)
        checks.check_listed(call, at, sources, self=x)
        checks.check_listed(call, at, results, out=z)
        if z.dtype is not row:
            raise invalid(
                f"out of type {z.dtype} for {call} to {row}",
                str(row),
                "Make dtype the type of out.",
            )
        checks.check_rank(call, self=x)
        checks.check_shape(call, "out", z, x.shape)
        checks.check_public(call, self=x, out=z)
        checks.check_writable(call, "out", z)
        checks.check_casts(at, (x.dtype, row))

    def compute(**values: Any) -> Any:
        return cast(values["self"], row, target=at)

    empty = x.view.count == 0
    return 0, aclOpExecutor(call, {"self": x}, z, None if empty else compute, str(x.dtype))


aclnnCast = second_call("aclnnCast")
