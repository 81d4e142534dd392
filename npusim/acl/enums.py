"""aclDataType and aclFormat: the vendor's numbers, read from the rows of dtypes and layouts."""

import enum
from typing import Any

from npusim import dtypes, layouts
from npusim._errors import UnknownNameError, message
from npusim.dtypes import DataType
from npusim.layouts import DataFormat

_ROWS = {row.acl_name: row for row in dtypes.DTYPES if row.acl_name is not None}
_FORMATS = {f"ACL_FORMAT_{row.name}": row for row in layouts.FORMATS}


def _type(name: str) -> int:
    number = _ROWS[name].acl_number
    assert number is not None
    return number


def _format(name: str) -> int:
    return _FORMATS[name].number


class aclDataType(enum.IntEnum):
    """Data types by the vendor's names and numbers.

    Source: the rows of npusim.dtypes.

    Example:
        >>> int(aclDataType.ACL_BF16), aclDataType(1).name
        (27, 'ACL_FLOAT16')
    """

    ACL_FLOAT = _type("ACL_FLOAT")
    ACL_FLOAT16 = _type("ACL_FLOAT16")
    ACL_INT8 = _type("ACL_INT8")
    ACL_INT32 = _type("ACL_INT32")
    ACL_UINT8 = _type("ACL_UINT8")
    ACL_INT16 = _type("ACL_INT16")
    ACL_UINT16 = _type("ACL_UINT16")
    ACL_UINT32 = _type("ACL_UINT32")
    ACL_INT64 = _type("ACL_INT64")
    ACL_UINT64 = _type("ACL_UINT64")
    ACL_DOUBLE = _type("ACL_DOUBLE")
    ACL_BOOL = _type("ACL_BOOL")
    ACL_COMPLEX64 = _type("ACL_COMPLEX64")
    ACL_COMPLEX128 = _type("ACL_COMPLEX128")
    ACL_BF16 = _type("ACL_BF16")
    ACL_INT4 = _type("ACL_INT4")
    ACL_COMPLEX32 = _type("ACL_COMPLEX32")
    ACL_HIFLOAT8 = _type("ACL_HIFLOAT8")
    ACL_FLOAT8_E5M2 = _type("ACL_FLOAT8_E5M2")
    ACL_FLOAT8_E4M3FN = _type("ACL_FLOAT8_E4M3FN")
    ACL_FLOAT8_E8M0 = _type("ACL_FLOAT8_E8M0")
    ACL_FLOAT4_E2M1 = _type("ACL_FLOAT4_E2M1")
    ACL_FLOAT4_E1M2 = _type("ACL_FLOAT4_E1M2")


class aclFormat(enum.IntEnum):
    """Data formats by the vendor's names and numbers.

    Source: the rows of npusim.layouts.

    Example:
        >>> int(aclFormat.ACL_FORMAT_FRACTAL_NZ), aclFormat(2).name
        (29, 'ACL_FORMAT_ND')
    """

    ACL_FORMAT_NCHW = _format("ACL_FORMAT_NCHW")
    ACL_FORMAT_NHWC = _format("ACL_FORMAT_NHWC")
    ACL_FORMAT_ND = _format("ACL_FORMAT_ND")
    ACL_FORMAT_NC1HWC0 = _format("ACL_FORMAT_NC1HWC0")
    ACL_FORMAT_FRACTAL_Z = _format("ACL_FORMAT_FRACTAL_Z")
    ACL_FORMAT_NC1HWC0_C04 = _format("ACL_FORMAT_NC1HWC0_C04")
    ACL_FORMAT_HWCN = _format("ACL_FORMAT_HWCN")
    ACL_FORMAT_NDHWC = _format("ACL_FORMAT_NDHWC")
    ACL_FORMAT_FRACTAL_NZ = _format("ACL_FORMAT_FRACTAL_NZ")
    ACL_FORMAT_NCDHW = _format("ACL_FORMAT_NCDHW")
    ACL_FORMAT_NDC1HWC0 = _format("ACL_FORMAT_NDC1HWC0")
    ACL_FORMAT_FRACTAL_Z_3D = _format("ACL_FORMAT_FRACTAL_Z_3D")
    ACL_FORMAT_NC = _format("ACL_FORMAT_NC")
    ACL_FORMAT_NCL = _format("ACL_FORMAT_NCL")


def _unknown(what: str, number: int, known: type[enum.IntEnum]) -> UnknownNameError:
    names = ", ".join(f"{int(item)} {item.name}" for item in known)
    return UnknownNameError(message(f"{what} {number}", names, "Pass one of these, or its name."))


def row_of(dtype: Any) -> DataType:
    """The row of an aclDataType, of its number, or of any name that `npusim.dtype` takes."""
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        if dtype not in aclDataType.__members__.values():
            raise _unknown("aclDataType", dtype, aclDataType)
        return _ROWS[aclDataType(dtype).name]
    row = dtypes.dtype(dtype)
    if row.acl_name is None:
        raise UnknownNameError(
            message(
                f"data type {row}, which aclDataType does not have",
                ", ".join(str(known) for known in _ROWS.values()),
                f"Hold the values of {row} in a tensor of type fp32.",
            )
        )
    return row


def format_of(fmt: aclFormat | DataFormat | str | int) -> DataFormat:
    """The row of an aclFormat, of its number, or of a name with or without ACL_FORMAT_."""
    if isinstance(fmt, int):
        if fmt not in aclFormat.__members__.values():
            raise _unknown("aclFormat", fmt, aclFormat)
        return _FORMATS[aclFormat(fmt).name]
    return layouts.data_format(fmt)


def acl_type(row: DataType) -> aclDataType:
    """The aclDataType of a row."""
    assert row.acl_name is not None
    return aclDataType[row.acl_name]


def acl_format(row: DataFormat) -> aclFormat:
    """The aclFormat of a row."""
    return aclFormat[f"ACL_FORMAT_{row.name}"]
