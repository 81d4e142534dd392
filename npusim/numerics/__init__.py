"""Pure integer kernels: rounding rules, grids, codes, integers, packing. No policy, no tables."""

from npusim.numerics.convert import convert as convert
from npusim.numerics.convert import decode as decode
from npusim.numerics.convert import encode as encode
from npusim.numerics.convert import float_words as float_words
from npusim.numerics.convert import int_grid as int_grid
from npusim.numerics.convert import quantize as quantize
from npusim.numerics.packing import pack as pack
from npusim.numerics.packing import unpack as unpack
from npusim.numerics.params import FormatParams as FormatParams
from npusim.numerics.params import format_params as format_params
from npusim.numerics.rounding import RULES as RULES

__all__ = [
    "RULES",
    "FormatParams",
    "convert",
    "decode",
    "encode",
    "float_words",
    "format_params",
    "int_grid",
    "pack",
    "quantize",
    "unpack",
]
