"""``npusim promote``: which type operands meet in, the tables, and where sources disagree."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from npusim._errors import InputError, NpusimError, PromotionError, message
from npusim.cli.output import check_output, console, fail, print_rows
from npusim.modes import Target
from npusim.promotion import (
    RULES,
    Cell,
    Scalar,
    assumed,
    conversion_table,
    derivation_table,
    diff,
    result_type,
)
from npusim.promotion.differences import KINDS
from npusim.promotion.tables import REFUSED, check_rules, scalars

EPILOG = """Examples:

npusim promote f16 bf16

npusim promote int8 1.5 --op add --soc A2A3   (a number is a scalar; 1.5:f16 declares its type)

npusim promote --table --rules zh

npusim promote --table --kind conversion --format csv > conversion.csv

npusim promote --diff

npusim promote --diff --kind conversion --format json"""

# The pages' own abbreviations: the square tables fit on a screen with them.
_ABBREVIATIONS = {
    "fp32": "f32",
    "fp16": "f16",
    "fp64": "f64",
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "fp8_e5m2": "e5m2",
    "fp8_e4m3": "e4m3",
    "fp8_e8m0": "e8m0",
    "fp4_e2m1": "e2m1",
    "fp4_e1m2": "e1m2",
}


def register(app: typer.Typer) -> None:
    """Add the command ``promote`` to ``app``."""
    app.command(epilog=EPILOG)(promote)


def promote(
    operands: Annotated[
        list[str] | None,
        typer.Argument(help="Types by any name, numbers, or numbers with a type (1.5:f16)."),
    ] = None,
    rules: Annotated[
        str, typer.Option(help="Whose table: documented, implementation or zh.")
    ] = "documented",
    op: Annotated[str | None, typer.Option(help="Operator, e.g. add: its scalar rule.")] = None,
    soc: Annotated[str, typer.Option(help="Chip: 950PR or A2A3.")] = "950PR",
    out: Annotated[str | None, typer.Option(help="Output type, for A2/A3's scalar rules.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print a whole table.")] = False,
    differences: Annotated[
        bool, typer.Option("--diff", help="Print every cell that sources disagree on, and why.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(help="For --table and --diff: derivation, conversion or scalar."),
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="How to print: table, csv or json.")
    ] = "table",
) -> None:
    """Say which data type aclnn derives for operands, and show its tables."""
    check_output(output)
    try:
        check_rules(rules)
        if kind is not None and kind not in KINDS:
            raise InputError(message(f"--kind {kind}", ", ".join(KINDS), "Pass one of these."))
        asked = [bool(operands), table, differences]
        if sum(asked) != 1:
            raise InputError(
                message(
                    "no operands" if not any(asked) else "several questions at once",
                    "operands, --table or --diff, one of them",
                    "For example: npusim promote f16 bf16.",
                )
            )
        if operands:
            _answer(operands, rules, output, {"op": op, "target": Target(soc, "aclnn"), "out": out})
        elif table:
            _table(kind or "derivation", rules, output)
        else:
            _diff(kind, output)
    except NpusimError as error:
        fail(error)


def _parse(word: str) -> Any:
    """An operand as typed: a number, a number with a type, or the name of a type."""
    number, _, name = word.partition(":")
    value = _number(number)
    if value is None:
        return word
    return Scalar(value, name) if name else value


def _number(word: str) -> bool | int | float | complex | None:
    if word in ("True", "False"):
        return word == "True"
    for kind in (int, float, complex):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def _answer(operands: list[str], rules: str, output: str, options: dict[str, Any]) -> None:
    parsed = [_parse(word) for word in operands]
    # The asked table decides: its refusal is the error that the command ends with.
    result_type(*parsed, rules=rules, **options)
    rows: list[dict[str, object]] = []
    for name in sorted(RULES, key=lambda name: name != rules):
        try:
            result = str(result_type(*parsed, rules=name, **options))
        except PromotionError:
            result = REFUSED
        source = derivation_table(name)[0].source
        if any(isinstance(x, Scalar | bool | int | float | complex) for x in parsed):
            source += "; scalar rules: hicann/ops-math"
        rows.append({"rules": name, "type": result, "source": source})
    title = " with ".join(operands)
    print_rows(rows, ("rules", "type", "source"), output, title=title, styles={"type": "bold"})


def _short(value: object) -> str:
    return _ABBREVIATIONS.get(str(value), str(value))


def _square(cells: Iterable[Cell], output: str, title: str) -> None:
    rows: dict[str, dict[str, object]] = {}
    notes: set[str] = set()
    for cell in cells:
        name = _short if output == "table" else str
        result = REFUSED if cell.result is None else cell.result
        word = {True: "yes", False: "no"}[result] if isinstance(result, bool) else name(result)
        if cell.grade == "assumed" and output == "table":
            word += "*"
            notes.add("* assumed: the page is silent")
        rows.setdefault(name(cell.lhs), {"dtype": name(cell.lhs)})[name(cell.rhs)] = word
    columns = ["dtype", *(str(name) for name in rows)]
    print_rows(rows.values(), columns, output, title=title, styles={"dtype": "bold"}, dense=True)
    if output == "table":
        for note in notes:
            console().print(note)


def _table(kind: str, rules: str, output: str) -> None:
    if kind == "scalar":
        rows = [
            {"tensor": str(tensor), "scalar": str(scalar)}
            | {name: REFUSED if result is None else str(result) for name, result in row.items()}
            for (tensor, scalar), row in scalars().items()
        ]
        print_rows(rows, tuple(rows[0]), output, title="tensor with scalar")
        return
    cells = derivation_table(rules) if kind == "derivation" else conversion_table(rules)
    if kind == "conversion":
        known = {cell.lhs for cell in cells if cell.result is not None}
        cells = tuple(cell for cell in cells if cell.lhs in known and cell.rhs in known)
    what = "lhs down, rhs across" if kind == "derivation" else "result down, output across"
    _square(cells, output, f"{kind}, rules={rules}: {cells[0].source} ({what})")


def _diff(kind: str | None, output: str) -> None:
    found = diff(kind)
    fixed = ("kind", "lhs", "rhs")
    rows: list[dict[str, object]] = []
    for row in found:
        base: dict[str, object] = {"kind": row.kind, "lhs": str(row.lhs), "rhs": str(row.rhs)}
        tail = {"reason": row.reason, "grade": row.grade}
        if output == "table":
            by_result: dict[str, list[str]] = {}
            for source, result in row.results.items():
                if result:
                    by_result.setdefault(result, []).append(source)
            results = "; ".join(f"{r}: {', '.join(who)}" for r, who in by_result.items())
            rows.append({**base, "results": results, **tail})
        else:
            rows.append({**base, **row.results, **tail})
    if output == "table":
        print_rows(
            rows, (*fixed, "results", "reason", "grade"), output, title=f"{len(rows)} differences"
        )
        _print_assumed()
        return
    sources = dict.fromkeys(source for row in found for source in row.results)
    print_rows(rows, (*fixed, *sources, "reason", "grade"), output)


def _print_assumed() -> None:
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in assumed():
        groups.setdefault((cell.source, str(cell.lhs)), []).append(str(cell.rhs))
    out = console()
    out.print("Assumed, no source states them:")
    for (source, lhs), others in groups.items():
        out.print(f"  {lhs} with {', '.join(others)} ({source})")
