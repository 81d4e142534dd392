"""Number formats: one row per data type, and the resolver of all their names.

A row says what a format is; limits are derived from it as exact fractions. Adding a format is
adding a row here (and a golden file): no kernel changes.
"""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import ml_dtypes
import numpy as np

from npusim._errors import UnknownNameError, message, nearest
from npusim._grids import ComplexGrid, FloatGrid, Grid, IntGrid, ScaleGrid, TaperedGrid

Kind = Literal["float", "int", "bool", "complex", "scale"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DataType:
    """One number format. Rows are singletons: compare with ``is``.

    Attributes:
        name: PyPTO name, ``DT_...``.
        kind: float, int, bool, complex or scale.
        short: the name used in tables and configuration files.
        acl_name: name in aclDataType, None where it has none.
        acl_number: value in aclDataType.
        c_type: type name in Ascend C, None where it has none.
        aliases: further names that `dtype` accepts.
        bits: storage bits of one element.
        grid: the values it has.
        grid_by_soc: for a format that differs between chips, the grids by SoC name.
        jax_name: name of the JAX dtype with the same values, None where there is none.
        stored_as: ``jax`` if `cast` returns a jax.Array, ``codes`` if it returns an NpuArray.
        source: where the row's numbers come from.

    Example:
        >>> from npusim.dtypes import dtype
        >>> dtype("fp8_e4m3").max, dtype("fp8_e4m3").quantum
        (Fraction(448, 1), Fraction(1, 512))
    """

    name: str
    kind: Kind
    short: str
    acl_name: str | None
    acl_number: int | None
    c_type: str | None
    aliases: tuple[str, ...]
    bits: int
    grid: Grid
    grid_by_soc: Mapping[str, Grid] = dataclasses.field(default_factory=dict)
    jax_name: str | None
    stored_as: Literal["jax", "codes"]
    source: str

    def __repr__(self) -> str:
        return f"npusim.{self.name}"

    def __str__(self) -> str:
        return self.short

    def __reduce__(self):
        return dtype, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo: dict[int, Any]):
        return self

    def on(self, soc: str | None) -> Grid:
        """The grid as the chip named ``soc`` has it."""
        return self.grid_by_soc.get(str(soc), self.grid) if soc else self.grid

    @property
    def jax_dtype(self) -> np.dtype | None:
        """The JAX (NumPy) dtype with the same values, or None."""
        return (
            None
            if self.jax_name is None
            else np.dtype(getattr(ml_dtypes, self.jax_name, self.jax_name))
        )

    @property
    def part(self) -> "DataType":
        """For a complex type the type of its parts, else the type itself."""
        return dtype(self.grid.part) if isinstance(self.grid, ComplexGrid) else self

    @property
    def max(self) -> Fraction:
        """The largest finite value, exactly (of a part, for a complex type)."""
        grid = self.part.grid
        assert not isinstance(grid, ComplexGrid)
        return grid.max

    @property
    def min(self) -> Fraction:
        """The smallest finite value, exactly (of a part, for a complex type)."""
        grid = self.part.grid
        assert not isinstance(grid, ComplexGrid)
        return grid.min

    @property
    def quantum(self) -> Fraction:
        """The smallest positive value, exactly (of a part, for a complex type)."""
        grid = self.part.grid
        assert not isinstance(grid, ComplexGrid)
        return grid.quantum

    @property
    def needs_x64(self) -> bool:
        """Whether a jax.Array of this type exists only with jax_enable_x64."""
        return self.name in ("DT_DOUBLE", "DT_INT64", "DT_UINT64", "DT_COMPLEX128")


_IEEE = "IEEE 754"
_OFP8 = "OCP 8-bit floating point specification 1.0"
_MX = "OCP microscaling formats specification 1.0"
_BUILTIN = "Ascend C built-in data types page"
_ENUM = "two's complement; aclDataType enumeration"

# fmt: off
DT_FP32 = DataType(
    name="DT_FP32", kind="float", short="fp32", acl_name="ACL_FLOAT", acl_number=0,
    c_type="float", aliases=("f32", "float32", "DT_FLOAT"), bits=32, jax_name="float32",
    stored_as="jax", source=_IEEE, grid=FloatGrid(exponent_bits=8, mantissa_bits=23, bias=127,
    max_code=0x7F7F_FFFF, inf_code=0x7F80_0000, nan_code=0x7FFF_FFFF, negative_zero=True),
)
DT_FP16 = DataType(
    name="DT_FP16", kind="float", short="fp16", acl_name="ACL_FLOAT16", acl_number=1,
    c_type="half", aliases=("f16", "float16", "DT_FLOAT16"), bits=16, jax_name="float16",
    stored_as="jax", source=_IEEE, grid=FloatGrid(exponent_bits=5, mantissa_bits=10, bias=15,
    max_code=0x7BFF, inf_code=0x7C00, nan_code=0x7FFF, negative_zero=True),
)
DT_BF16 = DataType(
    name="DT_BF16", kind="float", short="bf16", acl_name="ACL_BF16", acl_number=27,
    c_type="bfloat16_t", aliases=("bfloat16",), bits=16, jax_name="bfloat16", stored_as="jax",
    source=_BUILTIN, grid=FloatGrid(exponent_bits=8, mantissa_bits=7, bias=127,
    max_code=0x7F7F, inf_code=0x7F80, nan_code=0x7FFF, negative_zero=True),
)
DT_DOUBLE = DataType(
    name="DT_DOUBLE", kind="float", short="fp64", acl_name="ACL_DOUBLE", acl_number=11,
    c_type="double", aliases=("f64", "float64"), bits=64, jax_name="float64", stored_as="jax",
    source=_IEEE, grid=FloatGrid(exponent_bits=11, mantissa_bits=52, bias=1023,
    max_code=0x7FEF_FFFF_FFFF_FFFF, inf_code=0x7FF0_0000_0000_0000,
    nan_code=0x7FFF_FFFF_FFFF_FFFF, negative_zero=True),
)
DT_HF32 = DataType(
    name="DT_HF32", kind="float", short="hf32", acl_name=None, acl_number=None, c_type=None,
    aliases=("hfloat32",), bits=32, jax_name=None, stored_as="jax",
    source="Ascend C HF32 page (950: 10 stored mantissa bits); ATC allow_hf32 page "
    "(A2/A3: 11); held in the top bits of a float32 word", grid=FloatGrid(exponent_bits=8,
    mantissa_bits=10, bias=127, max_code=0x3_FBFF, inf_code=0x3_FC00, nan_code=0x3_FFFF,
    negative_zero=True, ), grid_by_soc={"A2A3": FloatGrid(exponent_bits=8, mantissa_bits=11,
    bias=127, max_code=0x7_F7FF, inf_code=0x7_F800, nan_code=0x7_FFFF, negative_zero=True)},
)
DT_INT4 = DataType(
    name="DT_INT4", kind="int", short="int4", acl_name="ACL_INT4", acl_number=29,
    c_type="int4b_t", aliases=("s4",), bits=4, jax_name="int4", stored_as="codes", source=_ENUM,
    grid=IntGrid(bits=4, signed=True),
)
DT_INT8 = DataType(
    name="DT_INT8", kind="int", short="int8", acl_name="ACL_INT8", acl_number=2,
    c_type="int8_t", aliases=("s8",), bits=8, jax_name="int8", stored_as="jax", source=_ENUM,
    grid=IntGrid(bits=8, signed=True),
)
DT_INT16 = DataType(
    name="DT_INT16", kind="int", short="int16", acl_name="ACL_INT16", acl_number=6,
    c_type="int16_t", aliases=("s16",), bits=16, jax_name="int16", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=16, signed=True),
)
DT_INT32 = DataType(
    name="DT_INT32", kind="int", short="int32", acl_name="ACL_INT32", acl_number=3,
    c_type="int32_t", aliases=("s32",), bits=32, jax_name="int32", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=32, signed=True),
)
DT_INT64 = DataType(
    name="DT_INT64", kind="int", short="int64", acl_name="ACL_INT64", acl_number=9,
    c_type="int64_t", aliases=("s64",), bits=64, jax_name="int64", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=64, signed=True),
)
DT_UINT8 = DataType(
    name="DT_UINT8", kind="int", short="uint8", acl_name="ACL_UINT8", acl_number=4,
    c_type="uint8_t", aliases=("u8",), bits=8, jax_name="uint8", stored_as="jax", source=_ENUM,
    grid=IntGrid(bits=8, signed=False),
)
DT_UINT16 = DataType(
    name="DT_UINT16", kind="int", short="uint16", acl_name="ACL_UINT16", acl_number=7,
    c_type="uint16_t", aliases=("u16",), bits=16, jax_name="uint16", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=16, signed=False),
)
DT_UINT32 = DataType(
    name="DT_UINT32", kind="int", short="uint32", acl_name="ACL_UINT32", acl_number=8,
    c_type="uint32_t", aliases=("u32",), bits=32, jax_name="uint32", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=32, signed=False),
)
DT_UINT64 = DataType(
    name="DT_UINT64", kind="int", short="uint64", acl_name="ACL_UINT64", acl_number=10,
    c_type="uint64_t", aliases=("u64",), bits=64, jax_name="uint64", stored_as="jax",
    source=_ENUM, grid=IntGrid(bits=64, signed=False),
)
DT_BOOL = DataType(
    name="DT_BOOL", kind="bool", short="bool", acl_name="ACL_BOOL", acl_number=12,
    c_type="bool", aliases=("bool_", "pred"), bits=8, jax_name="bool", stored_as="jax",
    source="aclDataType enumeration", grid=IntGrid(bits=1, signed=False),
)
DT_COMPLEX32 = DataType(
    name="DT_COMPLEX32", kind="complex", short="complex32", acl_name="ACL_COMPLEX32",
    acl_number=33, c_type="complex32", aliases=("c32",), bits=32, jax_name=None,
    stored_as="codes", source=_BUILTIN, grid=ComplexGrid(part="DT_FP16"),
)
DT_COMPLEX64 = DataType(
    name="DT_COMPLEX64", kind="complex", short="complex64", acl_name="ACL_COMPLEX64",
    acl_number=16, c_type="complex64", aliases=("c64",), bits=64, jax_name="complex64",
    stored_as="jax", source=_BUILTIN, grid=ComplexGrid(part="DT_FP32"),
)
DT_COMPLEX128 = DataType(
    name="DT_COMPLEX128", kind="complex", short="complex128", acl_name="ACL_COMPLEX128",
    acl_number=17, c_type=None, aliases=("c128",), bits=128, jax_name="complex128",
    stored_as="jax", source="aclDataType enumeration", grid=ComplexGrid(part="DT_DOUBLE"),
)
DT_FP8E4M3 = DataType(
    name="DT_FP8E4M3", kind="float", short="fp8_e4m3", acl_name="ACL_FLOAT8_E4M3FN",
    acl_number=36, c_type="fp8_e4m3fn_t",
    aliases=("e4m3", "e4m3fn", "fp8_e4m3fn", "float8_e4m3fn"), bits=8, jax_name="float8_e4m3fn",
    stored_as="jax", source=_OFP8, grid=FloatGrid(exponent_bits=4, mantissa_bits=3, bias=7,
    max_code=0x7E, inf_code=None, nan_code=0x7F, negative_zero=True),
)
DT_FP8E5M2 = DataType(
    name="DT_FP8E5M2", kind="float", short="fp8_e5m2", acl_name="ACL_FLOAT8_E5M2",
    acl_number=35, c_type="fp8_e5m2_t", aliases=("e5m2", "float8_e5m2"), bits=8,
    jax_name="float8_e5m2", stored_as="jax", source=_OFP8, grid=FloatGrid(exponent_bits=5,
    mantissa_bits=2, bias=15, max_code=0x7B, inf_code=0x7C, nan_code=0x7F, negative_zero=True,
    ),
)
DT_FP8E8M0 = DataType(
    name="DT_FP8E8M0", kind="scale", short="fp8_e8m0", acl_name="ACL_FLOAT8_E8M0",
    acl_number=37, c_type="fp8_e8m0_t", aliases=("e8m0", "float8_e8m0fnu", "float8_e8m0"),
    bits=8, jax_name="float8_e8m0fnu", stored_as="codes", source=_MX,
    grid=ScaleGrid(exponent_bits=8, bias=127, max_code=0xFE, nan_code=0xFF),
)
DT_HF8 = DataType(
    name="DT_HF8", kind="float", short="hif8", acl_name="ACL_HIFLOAT8", acl_number=34,
    c_type="hifloat8_t", aliases=("hf8", "hifloat8"), bits=8, jax_name=None, stored_as="codes",
    source=_BUILTIN, grid=TaperedGrid( mantissa_by_exponent=((3, 3), (7, 2), (15, 1)),
    min_exponent=-15, quantum_exponent=-22, max_code=0x6E, inf_code=0x6F, nan_code=0x80),
)
DT_FP4_E2M1X2 = DataType(
    name="DT_FP4_E2M1X2", kind="float", short="fp4_e2m1", acl_name="ACL_FLOAT4_E2M1",
    acl_number=40, c_type="fp4x2_e2m1_t", aliases=("e2m1", "float4_e2m1fn", "fp4_e2m1x2"),
    bits=4, jax_name="float4_e2m1fn", stored_as="codes", source=_MX, grid=FloatGrid(
    exponent_bits=2, mantissa_bits=1, bias=1, max_code=0x7, inf_code=None, nan_code=None,
    negative_zero=True),
)
DT_FP4_E1M2X2 = DataType(
    name="DT_FP4_E1M2X2", kind="float", short="fp4_e1m2", acl_name="ACL_FLOAT4_E1M2",
    acl_number=41, c_type="fp4x2_e1m2_t", aliases=("e1m2", "float4_e1m2", "fp4_e1m2x2"), bits=4,
    jax_name=None, stored_as="codes", source=_BUILTIN + " (range +-1.75, hence bias 1)",
    grid=FloatGrid(exponent_bits=1, mantissa_bits=2, bias=1, max_code=0x7, inf_code=None,
    nan_code=None, negative_zero=True),
)
# fmt: on

DTYPES: tuple[DataType, ...] = (
    DT_FP32,
    DT_FP16,
    DT_BF16,
    DT_DOUBLE,
    DT_HF32,
    DT_INT4,
    DT_INT8,
    DT_INT16,
    DT_INT32,
    DT_INT64,
    DT_UINT8,
    DT_UINT16,
    DT_UINT32,
    DT_UINT64,
    DT_BOOL,
    DT_COMPLEX32,
    DT_COMPLEX64,
    DT_COMPLEX128,
    DT_FP8E4M3,
    DT_FP8E5M2,
    DT_FP8E8M0,
    DT_HF8,
    DT_FP4_E2M1X2,
    DT_FP4_E1M2X2,
)


def _names(row: DataType) -> set[str]:
    given = {row.name, row.name.removeprefix("DT_"), row.short, *row.aliases}
    given |= {n for n in (row.acl_name, row.c_type) if n}
    return {n.lower() for n in given}


_BY_NAME: dict[str, DataType] = {}
for _row in DTYPES:
    for _name in _names(_row):
        if _BY_NAME.setdefault(_name, _row) is not _row:
            raise AssertionError(f"two data types are called {_name!r}")
_BY_JAX = {row.jax_dtype: row for row in DTYPES if row.jax_name is not None}


def dtype(name: Any) -> DataType:
    """Return the data type that ``name`` names.

    Accepted: a DataType; any name of the PyPTO, aclDataType or Ascend C spelling or one of the
    usual short names, in any case; a NumPy, JAX or ml_dtypes dtype or scalar type.

    Raises:
        UnknownNameError: ``name`` names no format of npusim.

    Example:
        >>> dtype("half") is dtype("ACL_FLOAT16") is dtype(np.float16) is DT_FP16
        True
    """
    if isinstance(name, DataType):
        return name
    if isinstance(name, str):
        row = _BY_NAME.get(name.lower())
    elif any(name is t for t in (bool, int, float, complex)):  # np.dtype(float64) == float
        row = None  # a Python scalar type has no width; NumPy would silently say 64 bits
    else:
        try:
            row = _BY_JAX.get(np.dtype(name))
        except TypeError:
            row = None
    if row is None:
        hint = nearest(name.lower(), _BY_NAME) if isinstance(name, str) else ""
        raise UnknownNameError(
            message(
                f"data type {name!r}",
                ", ".join(r.short for r in DTYPES),
                f"{hint}Pass one of these names, a DT_ or ACL_ name, or a NumPy or JAX dtype.",
            )
        )
    return row
