"""aclScalar, the arrays of numbers, and aclTensorList."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from npusim._errors import AclnnError, message
from npusim.acl.enums import row_of
from npusim.acl.status import ACL_SUCCESS, PARAM_NULLPTR, Handle, alive, invalid, reported
from npusim.acl.tensor import aclDestroyTensor, aclTensor
from npusim.casting.array import array as encode
from npusim.casting.npuarray import NpuArray
from npusim.dtypes import DT_DOUBLE, DT_FP16, DT_FP32, DataType
from npusim.promotion import Scalar

_HOST = {DT_FP16: np.float16, DT_FP32: np.float32, DT_DOUBLE: np.float64}


def _null(what: str, kind: str) -> AclnnError:
    return AclnnError(
        message(f"{what} is None", kind, "Pass the values themselves."), code=PARAM_NULLPTR
    )


def rounded(value: Any, row: DataType) -> Any:
    """A Python number as data type ``row`` holds it: nearest even, low bits for integers."""
    if row.kind == "bool":
        return bool(value != 0)
    if row.kind == "int":
        number = math.trunc(value.real)
        low = number & ((1 << row.bits) - 1)
        return low - (1 << row.bits) if row.min < 0 and low > row.max else low
    if row.kind == "complex":
        return complex(rounded(value.real, row.part), rounded(value.imag, row.part))
    value = float(value.real)
    if row in _HOST:
        with np.errstate(all="ignore"):
            return float(_HOST[row](value))
    if not math.isfinite(value):
        return value
    held = encode(value, row)
    return float(np.asarray(held.decode() if isinstance(held, NpuArray) else held, np.float64))


class aclScalar(Handle):
    """A number on the host with a declared data type.

    Attributes:
        value: the number, as its type holds it.
        dtype: the declared type.
    """

    creator = "aclCreateScalar"

    def __init__(self, value: bool | int | float | complex, dtype: DataType):
        self.value = value
        self.dtype = dtype

    def to(self, dtype: DataType) -> Any:
        """The number in another data type: the C++ conversion that the operators use."""
        return rounded(self.value, dtype)

    @property
    def scalar(self) -> Scalar:
        """The scalar as the derivation rules take it."""
        return Scalar(self.value, self.dtype)

    def __repr__(self) -> str:
        return (
            "aclScalar(destroyed)" if self.destroyed else f"aclScalar({self.value}, {self.dtype})"
        )


def aclCreateScalar(value: bool | int | float | complex, dataType: Any) -> aclScalar:
    """Return a scalar: ``value`` rounded to the type that the C pointer would point to.

    Args:
        value: a Python, NumPy or JAX number, which is concrete: the scalar lives on the host.
        dataType: aclDataType or any name of a data type.

    Raises:
        AclnnError: 161001: value is None; 161002: no number, a complex number for a real type, or
            a finite number beyond the type's range.

    Source: aclnn public interfaces page, Chinese edition, table 1.

    Example:
        >>> aclCreateScalar(1.001, "half").value, aclCreateScalar(3, "int8")
        (1.0009765625, aclScalar(3, int8))
    """
    if value is None:
        raise _null("value", "a number")
    with reported():
        row = row_of(dataType)
        if isinstance(value, Tracer):
            raise invalid(
                "scalar as a traced value",
                "a concrete number",
                "An aclScalar lives on the host: make it outside jit, or pass a tensor of rank 0.",
            )
        if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, bool | int | float | complex):
            raise invalid(f"scalar {value!r}", "a Python or NumPy number", "Pass one number.")
        real = row.kind in ("int", "bool")
        if (isinstance(value, complex) and row.kind != "complex") or (
            real and isinstance(value, float) and not value.is_integer()
        ):
            raise invalid(
                f"scalar {value!r} for type {row}",
                "numbers that the type can hold",
                "Take the part that you mean, or declare another type.",
            )
        for number in (value.real, value.imag):
            if math.isfinite(number) and not row.min <= Fraction(number) <= row.max:
                raise invalid(
                    f"scalar {value!r} for type {row}",
                    f"{float(row.min):.9g} to {float(row.max):.9g}",
                    "Declare a wider type.",
                )
        return aclScalar(rounded(value, row), row)


class _Array(Handle):
    """Numbers on the host, of one C type; `list(array)` gives them."""

    def __init__(self, values: tuple[Any, ...]):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(destroyed)" if self.destroyed else f"{name}({list(self.values)})"


class aclIntArray(_Array):
    """Integers of 64 bits."""

    creator = "aclCreateIntArray"


class aclFloatArray(_Array):
    """Numbers of type float."""

    creator = "aclCreateFloatArray"


class aclBoolArray(_Array):
    """Booleans."""

    creator = "aclCreateBoolArray"


class aclTensorList(_Array):
    """Tensors."""

    creator = "aclCreateTensorList"


def _items(value: Sequence[Any] | None, kind: str) -> tuple[Any, ...]:
    if value is None:
        raise _null("value", f"a sequence of {kind}")
    try:
        items = tuple(np.asarray(value).tolist()) if isinstance(value, np.ndarray) else tuple(value)
    except TypeError:
        raise invalid(f"value {value!r}", f"a sequence of {kind}", "Pass a list.") from None
    return tuple(item.item() if isinstance(item, np.generic) else item for item in items)


def aclCreateIntArray(value: Sequence[int]) -> aclIntArray:
    """Return an array of 64-bit integers. The size of C is not passed.

    Raises:
        AclnnError: 161001: value is None; 161002: not integers of 64 bits.

    Source: aclnn public interfaces page, Chinese edition, table 1.

    Example:
        >>> list(aclCreateIntArray([1, 2])), aclGetIntArraySize(aclCreateIntArray([1, 2]))
        ([1, 2], 2)
    """
    items = _items(value, "integers")
    bound = 1 << 63
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int) or not -bound <= item < bound:
            raise invalid(f"{item!r} in an aclIntArray", "integers of 64 bits", "Pass integers.")
    return aclIntArray(items)


def aclCreateFloatArray(value: Sequence[float]) -> aclFloatArray:
    """Return an array of floats, each rounded to float32. The size of C is not passed.

    Raises:
        AclnnError: 161001: value is None; 161002: not real numbers.

    Source: aclnn public interfaces page, Chinese edition, table 1.

    Example:
        >>> list(aclCreateFloatArray([0.5, 0.1]))
        [0.5, 0.10000000149011612]
    """
    items = _items(value, "real numbers")
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise invalid(f"{item!r} in an aclFloatArray", "real numbers", "Pass numbers.")
    return aclFloatArray(tuple(rounded(float(item), DT_FP32) for item in items))


def aclCreateBoolArray(value: Sequence[bool]) -> aclBoolArray:
    """Return an array of booleans. The size of C is not passed.

    Raises:
        AclnnError: 161001: value is None; 161002: not booleans.

    Source: aclnn public interfaces page, Chinese edition, table 1.

    Example:
        >>> list(aclCreateBoolArray([True, False]))
        [True, False]
    """
    items = _items(value, "booleans")
    for item in items:
        if not isinstance(item, bool):
            raise invalid(f"{item!r} in an aclBoolArray", "booleans", "Compare with 0 first.")
    return aclBoolArray(items)


def aclCreateTensorList(value: Sequence[aclTensor]) -> aclTensorList:
    """Return a list of tensors, which own them: destroying the list destroys them.

    Raises:
        AclnnError: 161001: value or an item is None or destroyed; 161002: not tensors.

    Source: aclnn public interfaces page, Chinese edition, table 1; hicann/opbase for ownership.
    """
    items = _items(value, "tensors")
    for place, item in enumerate(items):
        alive(item, aclTensor, f"value[{place}]")
    return aclTensorList(items)


def _destroy(x: Any, kind: type[Handle], what: str) -> int:
    if x is not None:
        alive(x, kind, what).destroyed = True
    return ACL_SUCCESS


def aclDestroyScalar(scalar: aclScalar | None) -> int:
    """End a scalar and return 0; None is accepted. AclnnError 161001 if it was ended before."""
    return _destroy(scalar, aclScalar, "scalar")


def aclDestroyIntArray(array: aclIntArray | None) -> int:
    """End an array and return 0; None is accepted. AclnnError 161001 if it was ended before."""
    return _destroy(array, aclIntArray, "array")


def aclDestroyFloatArray(array: aclFloatArray | None) -> int:
    """End an array and return 0; None is accepted. AclnnError 161001 if it was ended before."""
    return _destroy(array, aclFloatArray, "array")


def aclDestroyBoolArray(array: aclBoolArray | None) -> int:
    """End an array and return 0; None is accepted. AclnnError 161001 if it was ended before."""
    return _destroy(array, aclBoolArray, "array")


def aclDestroyTensorList(array: aclTensorList | None) -> int:
    """End a list and its tensors and return 0; None is accepted.

    Raises:
        AclnnError: 161001: the list was destroyed before.
    """
    if array is not None:
        for tensor in alive(array, aclTensorList, "array"):
            if not tensor.destroyed:
                aclDestroyTensor(tensor)
    return _destroy(array, aclTensorList, "array")


def aclGetIntArraySize(array: aclIntArray) -> int:
    """Return the length. Raises AclnnError 161001 if the array is None or destroyed."""
    return len(alive(array, aclIntArray, "array"))


def aclGetFloatArraySize(array: aclFloatArray) -> int:
    """Return the length. Raises AclnnError 161001 if the array is None or destroyed."""
    return len(alive(array, aclFloatArray, "array"))


def aclGetBoolArraySize(array: aclBoolArray) -> int:
    """Return the length. Raises AclnnError 161001 if the array is None or destroyed."""
    return len(alive(array, aclBoolArray, "array"))


def aclGetTensorListSize(tensorList: aclTensorList) -> int:
    """Return the length. Raises AclnnError 161001 if the list is None or destroyed."""
    return len(alive(tensorList, aclTensorList, "tensorList"))
