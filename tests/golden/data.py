"""Reading the golden files: rows as dictionaries, values as codes."""

import csv
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from tests.oracle.casts import MODES
from tests.oracle.formats import FORMATS, INF, NAN, NEG_INF, NEG_ZERO, IntFormat, encode

HERE = Path(__file__).parent
SPECIALS = {"inf": INF, "-inf": NEG_INF, "nan": NAN, "-0": NEG_ZERO}
CAST_FILES = (
    "boundary_float_to_int",
    "boundary_int_to_int",
    "boundary_float_to_float",
    "boundary_int_to_float",
    "boundary_negative_to_unsigned",
    "rounding_modes",
    "hif8_round_hybrid",
    "fp4",
)


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a golden file, without its comment lines."""
    lines = (HERE / f"{name}.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def code_of(text: str, fmt: str) -> int:
    """Code of a hex word, a special, `max`, `-max`, `min` or an exact fraction."""
    if text.lower().startswith("0x"):
        return int(text, 16)
    if text in SPECIALS:
        return encode(SPECIALS[text], fmt)
    row = FORMATS[fmt]
    if text in ("max", "-max", "min"):
        if isinstance(row, IntFormat):
            return encode(Fraction(row.min_value if text == "min" else row.max_value), fmt)
        return row.max_code | (1 << (row.bits - 1) if text == "-max" else 0)
    return encode(Fraction(text), fmt)


def modes_of(text: str, has_odd: bool = True) -> tuple[str, ...]:
    """`any` stands for every mode but HYBRID."""
    if text != "any":
        return (text,)
    return MODES if has_odd else MODES[:5]


def cast_cases(name: str) -> Iterator[tuple[int, str, str, str, bool, int, dict[str, str]]]:
    """Code, source, destination, mode, saturation, expected code and row of a cast file."""
    for row in rows(name):
        src, dst = row["src"], row["dst"]
        for mode in modes_of(row["mode"]):
            for sat in (False, True):
                result = row["on" if sat else "off"]
                if result:
                    want = code_of(result, dst)
                    yield code_of(row["input"], src), src, dst, mode, sat, want, row
