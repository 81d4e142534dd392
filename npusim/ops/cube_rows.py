"""Cube rows: what a pair of operand types is multiplied in, by chip and cubeMathType."""

import dataclasses
import functools
from typing import Any

from npusim import dtypes
from npusim._errors import InputError, UnknownNameError, message
from npusim.dtypes import DT_HF32, DataType
from npusim.modes import SoC, chip
from npusim.ops.rows import read

MATH_TYPES = {
    0: "KEEP_DTYPE",
    1: "ALLOW_FP32_DOWN_PRECISION",
    2: "USE_FP16",
    3: "USE_HF32",
    4: "USE_FP32_ADD",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CubeRow:
    """What the Cube does with one pair of operand types.

    Attributes:
        op: ``matmul`` or ``conv``.
        soc: the chip.
        lhs: type of the left operand.
        rhs: type of the right operand.
        math_type: cubeMathType.
        lhs_compute: the type that the left operand is rounded to.
        rhs_compute: the type that the right operand is rounded to.
        accumulate: fp32 or int32.
        output: type of the result where none is asked for.
        grade: how well it is known.
        source: where it stands.
        note: what else to know.
    """

    op: str
    soc: SoC
    lhs: DataType
    rhs: DataType
    math_type: int
    lhs_compute: DataType
    rhs_compute: DataType
    accumulate: DataType
    output: DataType
    grade: str
    source: str
    note: str

    @property
    def hf32(self) -> bool:
        """Whether the operands are rounded to HF32."""
        return self.lhs_compute is DT_HF32


@functools.cache
def _rows() -> dict[tuple[str, SoC, DataType, DataType, int], CubeRow]:
    table: dict[tuple[str, SoC, DataType, DataType, int], CubeRow] = {}
    for record in read("cube"):
        first, second = dtypes.dtype(record["lhs"]), dtypes.dtype(record["rhs"])
        chips = list(SoC) if record["soc"] == "*" else [chip(record["soc"])]
        keys = [
            (op, soc, n) for op in record["ops"].split("|") for soc in chips for n in MATH_TYPES
        ]
        for op, soc, number in keys:
            cell = record[str(number)]
            for lhs, rhs in ((first, second), (second, first)):
                table[op, soc, lhs, rhs, number] = CubeRow(
                    op=op,
                    soc=soc,
                    lhs=lhs,
                    rhs=rhs,
                    math_type=number,
                    lhs_compute=lhs if cell == "=" else dtypes.dtype(cell),
                    rhs_compute=rhs if cell == "=" else dtypes.dtype(cell),
                    accumulate=dtypes.dtype(record["accumulate"]),
                    output=dtypes.dtype(record["output"]),
                    grade=record["grade"],
                    source=record["source"],
                    note=record["note"],
                )
    return table


def check_math_type(math_type: int) -> None:
    """Raise UnknownNameError for a number that is no cubeMathType."""
    if isinstance(math_type, bool) or math_type not in MATH_TYPES:
        names = ", ".join(f"{n} {name}" for n, name in MATH_TYPES.items())
        raise UnknownNameError(
            message(f"cubeMathType {math_type!r}", names, "Pass one of these numbers.")
        )


def cube_row(
    lhs: Any, rhs: Any, soc: SoC | str = SoC.ASCEND_950PR, math_type: int = 0, op: str = "matmul"
) -> CubeRow:
    """Return what the Cube multiplies a pair of operand types in.

    Args:
        lhs: type of the left operand.
        rhs: type of the right operand.
        soc: the chip.
        math_type: cubeMathType: 0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32,
            4 USE_FP32_ADD.
        op: ``matmul`` or ``conv``.

    Raises:
        InputError: a pair that the operator does not take on that chip; the error lists those it
            takes.
        UnknownNameError: an unknown type, chip, cubeMathType or operator.

    Source: named in the row.

    Example:
        >>> row = cube_row("fp32", "fp16", "A2A3", math_type=3)
        >>> str(row.lhs_compute), str(row.accumulate), str(row.output)
        ('hf32', 'fp32', 'fp32')
    """
    a, b, soc = dtypes.dtype(lhs), dtypes.dtype(rhs), chip(soc)
    check_math_type(math_type)
    if op not in ("matmul", "conv"):
        raise UnknownNameError(
            message(f"Cube operator {op!r}", "matmul, conv", "Pass one of these names.")
        )
    row = _rows().get((op, soc, a, b, math_type))
    if row is not None:
        return row
    rows = _rows().values()
    taken = [f"{r.lhs} x {r.rhs}" for r in rows if (r.op, r.soc, r.math_type) == (op, soc, 0)]
    elsewhere = [s for s in SoC if (op, s, a, b, math_type) in _rows()]
    hint = f"{elsewhere[0].value} takes it. " if elsewhere else ""
    raise InputError(
        message(
            f"operands of types {a} x {b} for {op} on {soc.value}",
            ", ".join(taken),
            f"{hint}Cast the operands first with npusim.cast.",
        )
    )
