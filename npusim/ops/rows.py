"""Operator rows: the types an operator takes on a chip, what it computes in, what it gives."""

import csv
import dataclasses
import functools
import importlib.resources
from typing import Literal, cast, get_args

from npusim import dtypes
from npusim._errors import ConversionError, InputError, UnknownNameError, message, nearest
from npusim.dtypes import DataType
from npusim.modes import SoC, chip
from npusim.promotion import can_cast, check_conversion

OutRule = Literal["can_cast", "can_cast_derived", "free", "equal"]

_GROUPS = {
    "@num": ["fp32", "fp16", "fp64", "int64", "int32", "int16", "int8", "uint8", "bool"],
    "@int": ["int8", "int16", "int32", "int64", "uint8"],
    "@uint": ["uint16", "uint32", "uint64"],
    "@cplx": ["complex64", "complex128"],
    "@any": [row.short for row in dtypes.DTYPES],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """What an operator does with operands of one type on one chip.

    Attributes:
        op: name of the operator, as in `npusim.numpy`.
        soc: the chip.
        dtype: the type that the operands have been brought to.
        compute: the type it computes in.
        result: the type of the result, before any output type that is asked for.
        out: which output types it takes: ``can_cast`` of the result, ``can_cast_derived`` of
            ``dtype``, ``free`` (any cast), ``equal`` (the result's type only).
        out_scalar: the same where an operand is a scalar.
        form: variant of the computation, empty for the usual one.
        grade: ``implementation``, ``documented`` or ``assumed``.
        source: where the row stands.
        note: what else to know.
    """

    op: str
    soc: SoC
    dtype: DataType
    compute: DataType
    result: DataType
    out: OutRule
    out_scalar: OutRule
    form: str
    grade: str
    source: str
    note: str


def read(name: str) -> list[dict[str, str]]:
    """The records of a data file beside this module, without its comment lines."""
    text = (importlib.resources.files("npusim.ops") / "data" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def _members(text: str) -> list[DataType]:
    names = [n for part in text.split("|") for n in _GROUPS.get(part, [part])]
    return [dtypes.dtype(name) for name in names]


def _named(text: str, own: DataType) -> DataType:
    if text == "=":
        return own
    return own.part if text == "part" else dtypes.dtype(text)


def _rule(text: str) -> OutRule:
    assert text in get_args(OutRule), text
    return cast(OutRule, text)


@functools.cache
def _rows() -> dict[tuple[str, SoC], dict[DataType, OperatorRow]]:
    table: dict[tuple[str, SoC], dict[DataType, OperatorRow]] = {}
    for record in read("operators"):
        chips = list(SoC) if record["soc"] == "*" else [chip(record["soc"])]
        for op in record["op"].split("|"):
            for soc in chips:
                by_type = table.setdefault((op, soc), {})
                for own in _members(record["dtypes"]):
                    row = OperatorRow(
                        op=op,
                        soc=soc,
                        dtype=own,
                        compute=_named(record["compute"], own),
                        result=_named(record["result"], own),
                        out=_rule(record["out"]),
                        out_scalar=_rule(record["out_scalar"] or record["out"]),
                        form=record["form"],
                        grade=record["grade"],
                        source=record["source"],
                        note=record["note"],
                    )
                    by_type.setdefault(own, row)
    return table


def operators() -> tuple[str, ...]:
    """Return the names of all operators that have rows, in the order of the data file.

    Example:
        >>> "add" in operators()
        True
    """
    return tuple(dict.fromkeys(op for op, _ in _rows()))


def operator_rows(op: str, soc: SoC | str) -> tuple[OperatorRow, ...]:
    """Return the rows of an operator on a chip, one a type that it takes.

    Raises:
        UnknownNameError: an operator or chip that has no rows.

    Source: named in each row.

    Example:
        >>> [str(row.dtype) for row in operator_rows("gelu", "A2A3")]
        ['fp16', 'bf16', 'fp32']
    """
    found = _rows().get((op, chip(soc)))
    if found is None:
        names = operators()
        raise UnknownNameError(
            message(
                f"operator {op!r}",
                ", ".join(names),
                f"{nearest(op, names)}Pass one of these names.",
            )
        )
    return tuple(found.values())


def operator_row(op: str, soc: SoC | str, dtype: DataType | str) -> OperatorRow:
    """Return what an operator does with operands of type ``dtype`` on a chip.

    Raises:
        InputError: the operator does not take the type (aclnn returns 161002); the error lists
            those it takes, and the chip that takes this one.
        UnknownNameError: an unknown operator, chip or type.

    Source: named in the row.

    Example:
        >>> row = operator_row("add", "A2A3", "bf16")
        >>> str(row.compute), str(row.result), row.grade
        ('fp32', 'bf16', 'implementation')
    """
    own, soc = dtypes.dtype(dtype), chip(soc)
    rows = operator_rows(op, soc)
    for row in rows:
        if row.dtype is own:
            return row
    elsewhere = [s for s in SoC if s is not soc and own in _rows().get((op, s), {})]
    hint = f"{elsewhere[0].value} takes it. " if elsewhere else ""
    raise InputError(
        message(
            f"operands of type {own} for {op} on {soc.value}",
            ", ".join(str(row.dtype) for row in rows),
            f"{hint}Cast the operands first with npusim.cast.",
        )
    )


def check_output(
    row: OperatorRow, out: DataType, rules: str = "documented", scalar: bool = False
) -> None:
    """Raise unless the operator takes an output of type ``out``.

    Args:
        row: the operator's row.
        out: the output's type.
        rules: whose conversion table `npusim.can_cast` asks.
        scalar: whether an operand is a scalar.

    Raises:
        ConversionError: it does not (161002).

    Source: the out column of the rows.

    Example:
        >>> check_output(operator_row("multiply", "950PR", "fp32"), dtypes.dtype("int8"))
    """
    rule = row.out_scalar if scalar else row.out
    if rule == "can_cast_derived" and can_cast(row.dtype, out, rules):
        return
    if rule in ("can_cast", "can_cast_derived"):
        check_conversion(row.result, out, rules)
    elif rule == "equal" and out is not row.result:
        raise ConversionError(
            message(
                f"output of type {out} for a result of type {row.result} of {row.op}",
                str(row.result),
                "Leave the output type out, and cast the result yourself (npusim.cast).",
            ),
            src=row.result,
            dst=out,
            allowed=(row.result,),
        )
