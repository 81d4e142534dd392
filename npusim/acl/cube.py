"""aclnnMatmul and aclnnConvolution: checks here, numbers in npusim.ops."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import ops
from npusim.acl import checks
from npusim.acl.checks import TARGET
from npusim.acl.companions import aclIntArray
from npusim.acl.executor import aclOpExecutor, second_call
from npusim.acl.status import alive, invalid, reported
from npusim.acl.tensor import aclTensor
from npusim.acl.views import Shape
from npusim.casting import NpuArray
from npusim.dtypes import DT_BF16, DT_FP16, DT_FP32, DT_HF8, DataType
from npusim.modes import SoC, Target
from npusim.ops.cube import plan_cube

_FLOATS = (DT_FP32, DT_FP16, DT_BF16)
_FORMAT_OF_RANK = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
_MAX_GROUPS = 65535


def _computes_in(*types: DataType) -> str:
    return " x ".join(dict.fromkeys(map(str, types)))


def _matrix_shape(call: str, x: Shape, y: Shape) -> Shape:
    """The shape of a product of stacks of matrices, or of vectors."""
    if x and y and x[-1] == y[-2 if len(y) > 1 else 0]:
        with contextlib.suppress(ValueError):  # stacks that do not broadcast are refused below
            stack = np.broadcast_shapes(x[:-2], y[:-2])
            return (*map(int, stack), *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))
    raise invalid(
        f"self {x} and mat2 {y} for {call}",
        "(..., m, k) with (..., k, n), (k,) with (..., k, n), (..., m, k) with (k,)",
        "Transpose or reshape one of them.",
    )


def aclnnMatmulGetWorkspaceSize(
    self: aclTensor,
    mat2: aclTensor,
    out: aclTensor,
    cubeMathType: int,
    *,
    target: Target | str = TARGET,
) -> tuple[int, aclOpExecutor]:
    """Check and plan ``out = self @ mat2``.

    Args:
        self: tensor of fp32, fp16 or bf16.
        mat2: likewise.
        out: tensor of the product's shape.
        cubeMathType: 0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32, 4
            USE_FP32_ADD; see `npusim.ops.cube_row`.
        target: chip and overflow mode; a chip's name will do.

    Returns:
        The workspace's size, which is 0 as npusim needs none, and the executor for aclnnMatmul.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed; 161002, in this order: a type that
            is not listed, an unknown cubeMathType, an output of a type that does not convert
            (ConversionError), rank above 8, shapes, a private format, an output whose elements
            overlap; 561103: a failure inside.

    Source: hicann/ops-nn matmul/mat_mul_v3/op_api; numbers: `npusim.ops.matmul`.

    Example:
        >>> x, out = (aclTensor.from_jax(jnp.full((2, 2), 2.0, t)) for t in ("float16", "float32"))
        >>> size, executor = aclnnMatmulGetWorkspaceSize(x, x, out, 0)
        >>> aclnnMatmul(None, size, executor, None), out.to_jax().tolist()
        (0, [[8.0, 8.0], [8.0, 8.0]])
    """
    call = "aclnnMatmul"
    with reported():
        at = checks.aclnn_target(target)
        x, y, z = checks.tensors_of(("self", self), ("mat2", mat2), ("out", out))
        checks.check_listed(call, at, _FLOATS, self=x, mat2=y, out=z)
        row = plan_cube("matmul", x.dtype, y.dtype, cubeMathType, z.dtype, at).row
        checks.check_rank(call, self=x, mat2=y)
        checks.check_shape(call, "out", z, _matrix_shape(call, x.shape, y.shape))
        checks.check_public(call, self=x, mat2=y, out=z)
        checks.check_writable(call, "out", z)

    def compute(**values: Any) -> Any:
        return ops.matmul(
            values["self"],
            values["mat2"],
            dtype=z.dtype,
            cube_math_type=cubeMathType,
            target=at,
        )

    named = _computes_in(row.lhs_compute, row.rhs_compute)
    empty = z.view.count == 0
    return 0, aclOpExecutor(call, {"self": x, "mat2": y}, z, None if empty else compute, named)


@dataclasses.dataclass(frozen=True)
class _Geometry:
    """The numbers of a convolution, one an axis of space."""

    stride: Shape
    pads: tuple[tuple[int, int], ...]
    dilation: Shape
    extra: Shape
    transposed: bool
    groups: int

    def out(self, call: str, x: Shape, weight: Shape) -> Shape:
        """The shape of the output."""
        spans = [(k - 1) * d + 1 for k, d in zip(weight[2:], self.dilation, strict=True)]
        space: list[int] = []
        for axis, (n, span) in enumerate(zip(x[2:], spans, strict=True)):
            step, (low, high) = self.stride[axis], self.pads[axis]
            if self.transposed:
                size = (n - 1) * step - low - high + span + self.extra[axis]
            else:
                size = (n + low + high - span) // step + 1
            if size < 1 or (not self.transposed and n + low + high < span):
                raise invalid(
                    f"input {x} with weight {weight}, padding {self.pads} and dilation "
                    f"{self.dilation} for {call}",
                    "a padded input that is at least as large as the dilated weight",
                    f"Axis {axis + 2} leaves nothing: pad more, or take a smaller weight.",
                )
            space.append(size)
        features = weight[1] * self.groups if self.transposed else weight[0]
        return (x[0], features, *space)

    def run(self, x: Any, weight: Any, **options: Any) -> Array:
        """The convolution; a transposed one is written as a forward one."""
        pads, stride, left = self.pads, self.stride, (1,) * len(self.stride)
        if self.transposed:
            weight = _map(weight, lambda w: _swapped(w, self.groups))
            spans = [(k - 1) * d for k, d in zip(weight.shape[2:], self.dilation, strict=True)]
            pads = tuple(
                (span - low, span - high + more)
                for span, (low, high), more in zip(spans, pads, self.extra, strict=True)
            )
            stride, left = left, stride
        return ops.conv(
            x,
            weight,
            stride,
            pads,
            left,
            self.dilation,
            feature_group_count=self.groups,
            **options,
        )


def _map(x: Any, move: Callable[[Array], Array]) -> Any:
    if isinstance(x, NpuArray):
        return dataclasses.replace(x, codes=move(x.unpack().codes), packed=False)
    return move(x)


def _swapped(weight: Array, groups: int) -> Array:
    """(in, out / groups, ...) turned to (out, in / groups, ...), mirrored in space."""
    inputs, features, *space = weight.shape
    split = weight.reshape(groups, inputs // groups, features, *space).swapaxes(1, 2)
    joined = split.reshape(groups * features, inputs // groups, *space)
    return jnp.flip(joined, tuple(range(2, joined.ndim)))


def _numbers(call: str, name: str, given: Any, lengths: Sequence[int], least: int) -> Shape:
    values = tuple(alive(given, aclIntArray, name))
    if len(values) not in lengths or min(values, default=least) < least:
        raise invalid(
            f"{name} {list(values)} for {call}",
            f"{' or '.join(map(str, lengths))} integers of {least} or more",
            "Give one number an axis of space.",
        )
    return values


def _pads(padding: Shape, rank: int) -> tuple[tuple[int, int], ...]:
    if len(padding) == rank:
        return tuple((n, n) for n in padding)
    return tuple(zip(padding[::2], padding[1::2], strict=True))


def _geometry(
    call: str,
    space: int,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    outputPadding: Any,
    groups: int,
) -> _Geometry:
    steps = _numbers(call, "stride", stride, (space,), 1)
    both_sides = space < 3 and not (transposed and space == 1)
    sides = (space, 2 * space) if both_sides else (space,)
    pads = _pads(_numbers(call, "padding", padding, sides, 0), space)
    spread = _numbers(call, "dilation", dilation, (space,), 1)
    extra = (0,) * space
    if transposed:
        extra = _numbers(call, "outputPadding", outputPadding, (space,), 0)
        limits = tuple(max(pair) for pair in zip(steps, spread, strict=True))
        if any(n >= most for n, most in zip(extra, limits, strict=True)):
            raise invalid(
                f"outputPadding {list(extra)} for {call}",
                f"numbers below stride or dilation, {list(limits)}",
                "Take a smaller outputPadding.",
            )
    if isinstance(groups, bool) or not isinstance(groups, int) or not 1 <= groups <= _MAX_GROUPS:
        raise invalid(
            f"groups {groups!r} for {call}", f"1 to {_MAX_GROUPS}", "Pass 1 for no groups."
        )
    return _Geometry(steps, pads, spread, extra, bool(transposed), groups)


def _check_formats(call: str, bias: aclTensor | None, **tensors: aclTensor) -> None:
    named = ", ".join(_FORMAT_OF_RANK.values())
    for name, tensor in tensors.items():
        if tensor.format.name not in _FORMAT_OF_RANK.values():
            raise invalid(
                f"{name} in format {tensor.format} for {call}",
                named,
                "The operator needs to know the axes: create the tensor in one of these formats.",
            )
    if bias is not None and bias.format.name not in ("ND", *_FORMAT_OF_RANK.values()):
        raise invalid(
            f"bias in format {bias.format} for {call}",
            f"ND, {named}",
            "Create it in one of these formats.",
        )
    formats = {name: tensor.format.name for name, tensor in tensors.items()}
    if len(set(formats.values())) > 1:
        given = ", ".join(f"{name} {fmt}" for name, fmt in formats.items())
        raise invalid(
            f"formats {given} for {call}",
            "one format for input, weight and output",
            "Create all three in the format of their rank.",
        )


def _check_channels(
    call: str, x: aclTensor, weight: aclTensor, bias: aclTensor | None, made: _Geometry
) -> None:
    inputs = weight.shape[0] if made.transposed else weight.shape[1] * made.groups
    features = weight.shape[1] * made.groups if made.transposed else weight.shape[0]
    split = inputs if made.transposed else features
    if x.shape[1] != inputs or split % made.groups:
        raise invalid(
            f"input {x.shape} with weight {weight.shape} and groups {made.groups} for {call}",
            f"an input of {inputs} channels, and channels that groups divides",
            "The weight is (in, out / groups, ...) if transposed, else (out, in / groups, ...).",
        )
    if bias is not None and bias.shape != (features,):
        raise invalid(
            f"bias of shape {bias.shape} for {call}", str((features,)), "One number a channel."
        )


def aclnnConvolutionGetWorkspaceSize(
    input: aclTensor,
    weight: aclTensor,
    bias: aclTensor | None,
    stride: aclIntArray,
    padding: aclIntArray,
    dilation: aclIntArray,
    transposed: bool,
    outputPadding: aclIntArray | None,
    groups: int,
    output: aclTensor,
    cubeMathType: int,
    *,
    target: Target | str = TARGET,
) -> tuple[int, aclOpExecutor]:
    """Check and plan a convolution over one, two or three axes.

    Args:
        input: tensor (N, C, ...) in NCL, NCHW or NCDHW; ND is refused.
        weight: tensor in the same format: (out, in / groups, ...), or (in, out / groups, ...) if
            ``transposed``.
        bias: tensor of one axis, one number an output channel; or None.
        stride: one number an axis of space.
        padding: one number an axis, for both sides; over one or two axes also two numbers an axis.
        dilation: one number an axis.
        transposed: whether to run the gradient of a convolution towards its input.
        outputPadding: one number an axis, looked at only if ``transposed``.
        groups: number of groups of channels.
        output: tensor in the same format.
        cubeMathType: see `npusim.ops.cube_row`; torch_npu sends 3, HF32, for fp32.
        target: chip and overflow mode; a chip's name will do.

    Returns:
        The workspace's size, which is 0 as npusim needs none, and the executor for
        aclnnConvolution.

    Raises:
        AclnnError: 161001: a handle that is None or destroyed; 161002, in this order: a type that
            is not listed, an unknown cubeMathType, an output of a type that does not convert or, if
            transposed, differs (ConversionError), a format, stride, padding, dilation,
            outputPadding, groups, channels, bias, the output's shape, an output whose elements
            overlap; 561103: a failure inside.

    Source: aclnnConvolution page, hicann/ops-nn conv/convolution_forward; the order of the checks
    and of four paddings (top, bottom, left, right) is assumed. Numbers: `npusim.ops.conv`.

    Example:
        >>> x = aclTensor.from_jax(jnp.ones((1, 1, 3), jnp.float16), "NCL")
        >>> out = aclTensor.from_jax(jnp.zeros((1, 1, 3), jnp.float16), "NCL")
        >>> one = aclIntArray((1,))
        >>> size, executor = aclnnConvolutionGetWorkspaceSize(
        ...     x, x, None, one, one, one, False, None, 1, out, 0
        ... )
        >>> aclnnConvolution(None, size, executor, None), out.to_jax().tolist()
        (0, [[[2.0, 3.0, 2.0]]])
    """
    call = "aclnnConvolution"
    with reported():
        at = checks.aclnn_target(target)
        x, w = checks.tensors_of(("input", input), ("weight", weight))
        b = None if bias is None else alive(bias, aclTensor, "bias")
        for name, array in (("stride", stride), ("padding", padding), ("dilation", dilation)):
            alive(array, aclIntArray, name)
        if transposed:
            alive(outputPadding, aclIntArray, "outputPadding")
        (z,) = checks.tensors_of(("output", output))
        types = (*_FLOATS, DT_HF8) if at.soc is SoC.ASCEND_950PR else _FLOATS
        checks.check_listed(call, at, types, input=x, weight=w, output=z)
        if b is not None:
            checks.check_listed(call, at, _FLOATS, bias=b)
        row = plan_cube("conv", x.dtype, w.dtype, cubeMathType, z.dtype, at).row
        if transposed and z.dtype is not row.output:
            raise invalid(
                f"output of type {z.dtype} for {call} with transposed",
                str(row.output),
                "Make an output of the derived type.",
            )
        _check_formats(call, b, input=x, weight=w, output=z)
        space = len(x.shape) - 2
        made = _geometry(call, space, stride, padding, dilation, transposed, outputPadding, groups)
        _check_channels(call, x, w, b, made)
        checks.check_shape(call, "output", z, made.out(call, x.shape, w.shape))
        checks.check_writable(call, "output", z)

    def compute(**values: Any) -> Any:
        return made.run(
            values["input"],
            values["weight"],
            bias=values.get("bias"),
            preferred_element_type=z.dtype,
            cube_math_type=cubeMathType,
            target=at,
        )

    tensors = {"input": x, "weight": w} | ({} if b is None else {"bias": b})
    named = _computes_in(row.lhs_compute, row.rhs_compute)
    empty = z.view.count == 0
    return 0, aclOpExecutor(call, tensors, z, None if empty else compute, named)


aclnnMatmul = second_call("aclnnMatmul")
aclnnConvolution = second_call("aclnnConvolution")
