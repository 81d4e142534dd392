"""`can_cast`: may the result of an operator become its output's data type."""

from typing import Any

from npusim._errors import ConversionError, message
from npusim.dtypes import DTYPES, DataType, dtype
from npusim.promotion import tables


def _row(x: Any) -> DataType:
    inner = None if isinstance(x, type) else getattr(x, "dtype", None)
    return dtype(x if inner is None else inner)


def can_cast(src: Any, dst: Any, rules: str = "documented") -> bool:
    """Return whether aclnn converts a result of type ``src`` to an output of type ``dst``.

    It judges outputs only: operands follow `result_type`, and aclnnCast takes any pair. Types or
    arrays are accepted. A type that the page does not name converts to itself alone; the code's
    rule covers every type.

    Raises:
        UnknownNameError: an unknown type or table.

    Source: aclnn derivation page, Chinese edition, conversion rules, for ``documented`` and ``zh``
    (bool as a source and complex32 are assumed: the page is silent); hicann/opbase
    data_type_utils.h (CanCast) for ``implementation``.

    Example:
        >>> can_cast("fp32", "fp16"), can_cast("fp32", "int32"), can_cast("int8", "bool")
        (True, False, False)
        >>> can_cast("fp32", "complex64"), can_cast("fp32", "complex64", rules="implementation")
        (False, True)
    """
    column = "implementation" if tables.check_rules(rules) == "implementation" else "documented"
    src, dst = _row(src), _row(dst)
    cell = tables.conversions().get((src, dst))
    if cell is None or cell[column] == "":
        return src is dst
    return cell[column] == "1"


def check_conversion(src: Any, dst: Any, rules: str = "documented") -> None:
    """Raise if aclnn does not convert a result of type ``src`` to an output of type ``dst``.

    Raises:
        ConversionError: it does not; the error names the types that ``src`` converts to.
        UnknownNameError: an unknown type or table.

    Source: as `can_cast`.

    Example:
        >>> check_conversion("int32", "fp16")
    """
    if can_cast(src, dst, rules):
        return
    src, dst = _row(src), _row(dst)
    allowed = tuple(row for row in DTYPES if can_cast(src, row, rules))
    raise ConversionError(
        message(
            f"output of type {dst} for a result of type {src} (rules={rules!r})",
            ", ".join(map(str, allowed)),
            "Take an output of one of these types, or cast the result yourself (npusim.cast).",
        ),
        src=src,
        dst=dst,
        allowed=allowed,
    )
