"""Operators: their rows (types taken, compute type, result), and what the Cube computes."""

from npusim.ops.accumulate import Accumulate as Accumulate
from npusim.ops.accumulate import check_accumulate as check_accumulate
from npusim.ops.accumulate import ordered_dot as ordered_dot
from npusim.ops.conv import conv as conv
from npusim.ops.cube import batch_matmul as batch_matmul
from npusim.ops.cube import dot_general as dot_general
from npusim.ops.cube import matmul as matmul
from npusim.ops.cube_rows import CubeRow as CubeRow
from npusim.ops.cube_rows import cube_row as cube_row
from npusim.ops.rows import OperatorRow as OperatorRow
from npusim.ops.rows import check_output as check_output
from npusim.ops.rows import operator_row as operator_row
from npusim.ops.rows import operator_rows as operator_rows
from npusim.ops.rows import operators as operators

__all__ = [
    "Accumulate",
    "CubeRow",
    "OperatorRow",
    "batch_matmul",
    "check_accumulate",
    "check_output",
    "conv",
    "cube_row",
    "dot_general",
    "matmul",
    "operator_row",
    "operator_rows",
    "operators",
    "ordered_dot",
]
