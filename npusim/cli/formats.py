"""``npusim formats``: the number formats, and the values of the small ones."""

from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.output import (
    OutputOption,
    SocOption,
    check_output,
    console,
    paragraphs,
    print_rows,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from npusim.dtypes import DataType

EPILOG = """Examples:

npusim formats

npusim formats hif8

npusim formats hf32 --soc A2A3

npusim formats e4m3 --format csv > e4m3.csv"""

_TABLE_BITS = 8  # formats of at most this width are listed value by value
_GROUP_WIDTH = 40  # columns that code, bits and value take beside each other
_COLUMNS = ("format", "bits", "grid", "max", "quantum", "special", "jax")


def register(app: typer.Typer) -> None:
    """Add the command ``formats`` to ``app``."""
    app.command(epilog=EPILOG, help=paragraphs(formats))(formats)


def formats(
    name: Annotated[str | None, typer.Argument(help="A format, by any of its names.")] = None,
    soc: SocOption = "950PR",
    output: OutputOption = "table",
) -> None:
    """List the number formats, or show one: its limits and names, and up to 8 bits every value.

    grid: sign, exponent and mantissa bits; max, min: the largest and smallest finite values;
    quantum: the smallest positive one; eps: the step above 1.
    """
    check_output(output)
    from npusim import dtypes
    from npusim.modes import chip

    where = str(chip(soc))
    if name is None:
        rows = [_facts(row, where, output != "table") for row in dtypes.DTYPES]
        if output == "table":
            rows = [{**row, "special": _special(row)} for row in rows]
        columns = _COLUMNS if output == "table" else tuple(rows[0])
        print_rows(
            rows,
            columns,
            output,
            styles={"format": "bold"},
            whole=("format", "bits", "max", "quantum"),
        )
        if output == "table":
            console().print("npusim formats NAME shows a format's names, source and values.")
        return
    fmt = dtypes.dtype(name)
    valued = fmt.kind != "complex" and fmt.bits <= _TABLE_BITS
    if output == "table":
        facts = _facts(fmt, where)
        print_rows([{"property": k, "value": v} for k, v in facts.items()], _PAIR, "table")
        if valued:
            _print_values(fmt, where)
    elif valued:
        rows = _values(fmt, where)
        print_rows(rows, tuple(rows[0]), output)
    else:
        facts = _facts(fmt, where, True)
        print_rows([facts], tuple(facts), output)


_PAIR = ("property", "value")


def _special(facts: dict[str, object]) -> str:
    return " ".join(name for name in ("inf", "nan") if facts[name] != "-") or "-"


def _facts(fmt: "DataType", soc: str, plain: bool = False) -> dict[str, object]:
    """What a row of the list says; ``plain``: limits as numbers, for machines."""
    from npusim._grids import ComplexGrid, FloatGrid, IntGrid, TaperedGrid
    from npusim.cli.exact import hexadecimal

    grid = fmt.on(soc)
    part = fmt.part.on(soc)
    assert not isinstance(part, ComplexGrid)
    limit = _number if plain else short
    special = {
        key: "-" if getattr(part, f"{key}_code", None) is None else "yes" for key in ("inf", "nan")
    }
    if isinstance(part, FloatGrid | TaperedGrid) and fmt.part.bits <= _TABLE_BITS:
        for key in special:
            code = getattr(part, f"{key}_code")
            if code is not None:
                special[key] = hexadecimal(code, fmt.part.bits)
    eps = "-"
    if isinstance(part, FloatGrid):
        eps = f"2^-{part.mantissa_bits}"
    elif isinstance(part, TaperedGrid):
        eps = f"2^-{part.fraction_bits}"
    names = [fmt.acl_name, fmt.c_type, *fmt.aliases]
    negative = "yes" if getattr(part, "negative_zero", False) else "-"
    unsigned = "no" if isinstance(grid, IntGrid) else negative
    return {
        "format": fmt.short,
        "bits": fmt.bits,
        "grid": _grid(fmt, soc),
        "bias": getattr(part, "bias", "-"),
        "max": limit(part.max),
        "min": limit(part.min),
        "quantum": limit(part.quantum),
        "eps": eps,
        "inf": special["inf"],
        "nan": special["nan"],
        "negative zero": unsigned,
        "jax": fmt.jax_name or ("float32" if fmt.stored_as == "jax" else "NpuArray"),
        "name": fmt.name,
        "acl number": "-" if fmt.acl_number is None else fmt.acl_number,
        "other names": ", ".join(n for n in names if n),
        "source": fmt.source,
    }


def _grid(fmt: "DataType", soc: str) -> str:
    from npusim._grids import ComplexGrid, FloatGrid, IntGrid, ScaleGrid

    grid = fmt.on(soc)
    if isinstance(grid, FloatGrid):
        return f"1/{grid.exponent_bits}/{grid.mantissa_bits}"
    if isinstance(grid, IntGrid):
        return "0, 1" if fmt.kind == "bool" else "int" if grid.signed else "uint"
    if isinstance(grid, ScaleGrid):
        return f"0/{grid.exponent_bits}/0"
    if isinstance(grid, ComplexGrid):
        return f"2 x {fmt.part.short}"
    return "tapered"


def _number(value: "Fraction") -> int | float:
    return int(value) if value.denominator == 1 and abs(value) < 1 << 64 else float(value)


def short(value: "Fraction") -> str:
    """A limit: in decimal where that is short, else as a power of two or rounded."""
    from npusim.cli.exact import decimal, floor_log2, signed

    size = abs(value)
    words = decimal(size)
    if size and len(words) > 9 and size == type(value)(2) ** floor_log2(size):
        words = f"2^{floor_log2(size)}"
    elif len(words) > 12 and size + 1 == type(value)(2) ** floor_log2(size + 1):
        words = f"2^{floor_log2(size + 1)} - 1"
    elif words.startswith("~"):
        words = f"~{float(size):.5g}"
    return signed(words, value < 0)


def _values(fmt: "DataType", soc: str) -> list[dict[str, object]]:
    from npusim.cli.exact import exact_values, hexadecimal, width
    from npusim.cli.explain import fields

    codes = range(1 << width(fmt))
    return [
        {
            "code": hexadecimal(code, width(fmt)),
            "fields": " ".join(field.bits for field in fields(code, fmt, soc) if field.bits != "-"),
            "value": value.plain,
            "text": short(value.value) if value.kind == "finite" else str(value),
        }
        for code, value in zip(codes, exact_values(list(codes), fmt), strict=True)
    ]


def _print_values(fmt: "DataType", soc: str) -> None:
    """Codes side by side, as many as the terminal is wide; the upper half only if it says more."""
    from npusim.cli.explain import fields

    rows = _values(fmt, soc)
    signed = len(fields(0, fmt, soc)) > 1  # sign and magnitude: the other half repeats this one
    if signed:
        rows = rows[: len(rows) // 2]
    out = console()
    groups = max(1, min(4, out.width // _GROUP_WIDTH, len(rows) // 4))
    height = -(-len(rows) // groups)
    wide: list[dict[str, object]] = []
    for index in range(height):
        line: dict[str, object] = {}
        for group in range(groups):
            mark = " " * group  # column names must differ; these do not show
            at = group * height + index
            if at < len(rows):
                row = rows[at]
                line |= {f"code{mark}": row["code"], f"bits{mark}": row["fields"]}
                line[f"value{mark}"] = row["text"]
        wide.append(line)
    columns = [f"{name}{' ' * group}" for group in range(groups) for name in _GROUP]
    names = " ".join(field.name for field in fields(0, fmt, soc))
    print_rows(wide, columns, "table", title=f"bits: {names}" if signed else "")
    if signed:
        bit = 1 << (fmt.bits - 1)
        zero = getattr(fmt.grid, "nan_code", None) == bit
        what = f"{bit:#x} alone is NaN" if zero else f"{bit:#x} is -0"
        out.print(f"With the sign bit ({bit:#x}) set the value is the negative one; {what}.")


_GROUP = ("code", "bits", "value")
