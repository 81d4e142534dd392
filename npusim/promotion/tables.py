"""The derivation, scalar and conversion tables, read from the CSV files beside this module.

Each file begins with comment lines that name its source; ``-`` in a cell means that no type can be
derived. Files are read on first use and kept, so a lookup costs one dictionary access.
"""

import csv
import dataclasses
import functools
import importlib.resources
from collections.abc import Mapping
from typing import Literal, get_args

from npusim._errors import UnknownNameError, message, nearest
from npusim.dtypes import DataType, dtype

Rules = Literal["documented", "implementation", "zh"]
"""Whose table: the English page, the operator library's code, or the Chinese page."""

RULES: tuple[str, ...] = get_args(Rules)

REFUSED = "-"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table: what ``lhs`` and ``rhs`` give, and how well that is known.

    ``result`` is a DataType in a derivation table, a bool in a conversion table, and None where the
    table refuses the pair. ``grade`` is documented, implementation, measured or assumed.
    """

    lhs: DataType
    rhs: DataType
    result: DataType | bool | None
    grade: str
    source: str


@dataclasses.dataclass(frozen=True)
class Operator:
    """Which scalar column an operator follows on each chip; see operators.csv."""

    name: str
    scalar_950: str
    value_check: bool
    rank0: bool
    scalar_a2a3: str
    scalar_a2a3_out_fp32: str


def read(name: str) -> tuple[dict[str, str], list[list[str]]]:
    """Return the ``# key: value`` header lines and the CSV records of data file ``name``."""
    text = importlib.resources.files("npusim.promotion").joinpath("data", name).read_text("utf-8")
    lines = text.splitlines()
    notes = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    header = dict(line.split(": ", 1) for line in notes if ": " in line)
    return header, list(csv.reader(line for line in lines if not line.startswith("#")))


def _named(cell: str) -> DataType | None:
    return None if cell == REFUSED else dtype(cell)


@functools.cache
def matrix(name: str) -> Mapping[tuple[DataType, DataType], Cell]:
    """Return the square table in ``derivation_<name>.csv``, cell by cell."""
    header, records = read(f"derivation_{name}.csv")
    assumed = {tuple(pair.split()) for pair in header.get("assumed", "").split(", ")}
    columns = records[0][1:]
    cells: dict[tuple[DataType, DataType], Cell] = {}
    for row, *results in records[1:]:
        for column, result in zip(columns, results, strict=True):
            grade = "assumed" if (row, column) in assumed else header["grade"]
            cell = Cell(dtype(row), dtype(column), _named(result), grade, header["source"])
            cells[cell.lhs, cell.rhs] = cell
    return cells


@functools.cache
def conversions() -> Mapping[tuple[DataType, DataType], dict[str, str]]:
    """Return conversion.csv: for each pair the columns by name."""
    _, (columns, *records) = read("conversion.csv")
    return {
        (dtype(src), dtype(dst)): dict(zip(columns[2:], rest, strict=True))
        for src, dst, *rest in records
    }


@functools.cache
def scalars() -> Mapping[tuple[DataType, DataType], dict[str, DataType | None]]:
    """Return scalar.csv: for each tensor and scalar type the result by column."""
    _, (columns, *records) = read("scalar.csv")
    return {
        (dtype(tensor), dtype(scalar)): dict(
            zip(columns[2:], (_named(cell) for cell in rest), strict=True)
        )
        for tensor, scalar, *rest in records
    }


@functools.cache
def operators() -> Mapping[str, Operator]:
    """Return operators.csv by operator name."""
    _, (_, *records) = read("operators.csv")
    return {
        name: Operator(name, on_950, check == "yes", rank0 == "yes", a2a3 or on_950, out or on_950)
        for name, on_950, check, rank0, a2a3, out in records
    }


def check_rules(rules: str) -> str:
    """Return ``rules`` if it names a derivation table.

    Raises:
        UnknownNameError: it does not.
    """
    if rules in RULES:
        return rules
    hint = nearest(rules, RULES) if isinstance(rules, str) else ""
    raise UnknownNameError(
        message(f"rules={rules!r}", ", ".join(RULES), f"{hint}Pass one of these names.")
    )


def operator(op: str) -> Operator:
    """Return the row of the operator called ``op``; ``aclnnAdds`` and ``adds`` mean ``add``.

    Raises:
        UnknownNameError: no operator with that name has a row.

    Example:
        >>> operator("aclnnMuls").name
        'mul'
    """
    rows = operators()
    if isinstance(op, str):
        name = op.lower().removeprefix("aclnn")
        if name not in rows:
            # The scalar forms carry an s: Adds, Muls; the comparisons say EqScalar.
            name = name.removesuffix("scalar").removesuffix("tensor").removesuffix("s")
        if name in rows:
            return rows[name]
    hint = nearest(op, rows) if isinstance(op, str) else ""
    raise UnknownNameError(
        message(
            f"operator op={op!r}",
            ", ".join(rows),
            f"{hint}Pass one of these, or leave op out: then the rule of add on 950 answers.",
        )
    )


def derivation_table(rules: str = "documented") -> tuple[Cell, ...]:
    """Return the 256 cells of one derivation table, row by row.

    Raises:
        UnknownNameError: ``rules`` names no table.

    Source: named in each cell.

    Example:
        >>> cell = derivation_table("zh")[1]
        >>> str(cell.lhs), str(cell.rhs), str(cell.result), cell.grade
        ('fp32', 'fp16', 'fp32', 'documented')
    """
    return tuple(matrix(check_rules(rules)).values())


def conversion_table(rules: str = "documented") -> tuple[Cell, ...]:
    """Return the cells of one conversion table: may a result of ``lhs`` become an output ``rhs``.

    The result is None where the source does not name one of the types.

    Raises:
        UnknownNameError: ``rules`` names no table.

    Source: named in each cell.

    Example:
        >>> [str(c.rhs) for c in conversion_table() if str(c.lhs) == "complex64" and c.result]
        ['complex32', 'complex64', 'complex128']
    """
    column = "implementation" if check_rules(rules) == "implementation" else "documented"
    header, _ = read("conversion.csv")
    source = header[f"source {column}"]
    cells: list[Cell] = []
    for (src, dst), row in conversions().items():
        grade = row["documented_grade"] if column == "documented" else column
        result = None if row[column] == "" else row[column] == "1"
        cells.append(Cell(src, dst, result, grade, source))
    return tuple(cells)
