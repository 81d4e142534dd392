"""Oracle names of the package's formats."""

from npusim import dtypes

ORACLE = {
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "fp64": "f64",
    "fp8_e4m3": "e4m3fn",
    "fp8_e5m2": "e5m2",
    "fp8_e8m0": "e8m0",
    "hif8": "hif8",
    "fp4_e2m1": "e2m1",
    "fp4_e1m2": "e1m2",
    "int4": "s4",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
}

REAL = tuple(row for row in dtypes.DTYPES if row.short in ORACLE)
NARROW = tuple(row for row in REAL if row.bits <= 16)
WIDE = tuple(row for row in REAL if row.bits > 16)


def width(row: dtypes.DataType) -> int:
    """Bits that are free in a code."""
    return 1 if row.kind == "bool" else row.bits
