"""One table of operations, and the inputs they are tried on."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import npusim as npu
from npusim import FormatParams, Target
from tests.casting import common

LAB = Target(api="numerics")
ROWS, COLUMNS = 8, 64


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation on one array of shape (..., COLUMNS).

    Attributes:
        run: the operation, elementwise along all axes but the last.
        src: oracle name of the source format.
        gradient: whether the result is a float that carries a gradient.
    """

    run: Callable[[Any], Any]
    src: str = "f32"
    gradient: bool = False


def _cast(dtype, mode="RINT", satmode="ON", target=LAB, **arguments):
    return lambda x: npu.cast(x, dtype, mode, satmode, target=target, **arguments)


def _pypto(dtype, soc="950PR", **arguments):
    return lambda x: npu.cast(x, dtype, target=Target(soc, "pypto"), **arguments)


def _fake(dtype, mode=None, satmode=None, **arguments):
    return lambda x: npu.fake_cast(x, dtype, mode, satmode, **arguments)


def _codes(dtype):
    bits = npu.dtype(dtype).bits
    kind = np.uint8 if bits <= 8 else np.uint16
    mask = kind((1 << bits) - 1)
    return lambda x: npu.from_codes(x & mask, dtype)


OPS: dict[str, Op] = {
    "cast fp16": Op(_cast("fp16"), gradient=True),
    "cast bf16 by ODD": Op(_cast("bf16", "ODD", "OFF"), gradient=True),
    "cast fp8_e4m3": Op(_cast("fp8_e4m3", "CEIL", "OFF"), gradient=True),
    "cast hif8": Op(_cast("hif8", "ROUND")),
    "cast hif8 by HYBRID": Op(_cast("hif8", "HYBRID")),
    "cast hif8 by HYBRID from half": Op(_cast("hif8", "HYBRID", "OFF"), src="f16"),
    "cast half to bf16": Op(_cast("bf16", "FLOOR"), src="f16", gradient=True),
    "cast bf16 to packed fp4": Op(_cast("fp4_e2m1", packed=True), src="bf16"),
    "cast int8 wrapping": Op(_cast("int8", "TRUNC", "OFF")),
    "cast int4": Op(_pypto("int4", "A2A3", packed=True), src="f16"),
    "cast int32 deq": Op(_pypto("fp16", "A2A3", deqscale=0.1), src="s32"),
    "cast int32 to bf16": Op(_cast("bf16", "ROUND"), src="s32"),
    "cast to integral": Op(_cast("fp32", "RINT", target=Target("A2A3", "ascendc")), gradient=True),
    "cast e8m0": Op(_cast("fp8_e8m0")),
    "cast by aclnn": Op(lambda x: npu.cast(x, "int8", target=Target("A2A3", "aclnn"))),
    "cast complex": Op(_cast("complex64"), src="f16"),
    "fake_cast fp8_e4m3": Op(_fake("fp8_e4m3"), gradient=True),
    "fake_cast fp4 in bf16": Op(_fake("fp4_e1m2", "FLOOR"), src="bf16", gradient=True),
    "fake_cast int8 clip": Op(_fake("int8", "RINT", "ON", ste="clip"), gradient=True),
    "fake_cast uint16 wrapping": Op(_fake("uint16", "TRUNC", "OFF"), gradient=True),
    "fake_cast hif8 of half": Op(_fake("hif8", "ROUND", "OFF"), src="f16", gradient=True),
    "fake_cast by a chip": Op(
        _fake("int8", target=Target("950PR", "aclnn"), ste="clip"), gradient=True
    ),
    "fake_cast params": Op(_fake(FormatParams.of("hif8", "ODD", "OFF")), gradient=True),
    "fake_cast params clip": Op(_fake(FormatParams.of("int8"), ste="clip"), gradient=True),
    "grad_cast": Op(lambda x: npu.grad_cast(x, "fp8_e5m2", "FLOOR"), gradient=True),
    "grad_cast params": Op(lambda x: npu.grad_cast(x, FormatParams.of("fp4_e2m1")), gradient=True),
    "from_codes and decode": Op(lambda x: _codes("hif8")(x).decode(), src="u8"),
    "from_codes fp16": Op(_codes("fp16"), src="u16"),
    "to_codes": Op(npu.to_codes, src="f16"),
    "pack": Op(lambda x: _codes("int4")(x).pack(), src="u8"),
    "unpack": Op(lambda x: npu.from_codes(x, "fp4_e2m1", packed=True).unpack(), src="u8"),
}


def inputs(op: Op):
    """ROWS x COLUMNS codes of the source, edges among them, as an array."""
    codes = np.resize(
        np.concatenate([common.edge_codes(op.src), common.probe(op.src, "e4m3fn")]), (ROWS, COLUMNS)
    )
    return jnp.asarray(common.array_of(codes, op.src))
