"""What commands share: options, rows printed as a table, CSV or JSON, and errors as one line."""

import csv
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npusim._errors import message

OUTPUTS = ("table", "csv", "json")

OutputOption = Annotated[str, typer.Option("--format", help="How to print: table, csv or json.")]
SocOption = Annotated[
    str, typer.Option(help="Chip: 950PR (950, 950DT, A5) or A2A3 (A2, A3, 910B).")
]
ApiOption = Annotated[
    str,
    typer.Option(
        help="Entry point: pypto, ascendc, aclnn, or numerics (the laboratory: no table)."
    ),
]
OverflowOption = Annotated[
    str, typer.Option(help="Float overflow mode of the device, for pypto and aclnn.")
]
LevelOption = Annotated[str, typer.Option(help="Which cast of Ascend C on 950: memory or reg.")]
ModeOption = Annotated[
    str | None,
    typer.Option(
        help="NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD or HYBRID.", show_default="the API's"
    ),
]
SatOption = Annotated[
    str | None, typer.Option("--sat", "--satmode", help="on or off.", show_default="the API's")
]

# Wide enough for the widest table, where there is no terminal to ask for its width.
_PIPE_WIDTH = 200
_DENSE_WIDTH = 90


def paragraphs(function: Callable[..., object]) -> str:
    """The docstring of a command with one line a paragraph, so that the terminal breaks it."""
    doc = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(part.split()) for part in doc.split("\n\n"))


def fail(error: Exception) -> NoReturn:
    """Print ``error`` on one line of stderr and exit with code 2."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]error:[/red] {escape(' '.join(str(error).split()))}")
    raise typer.Exit(2) from error


def note(line: str) -> None:
    """Print a remark on stderr, where it does not get in the way of data."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[yellow]note:[/yellow] {escape(line)}"
    )


def check_output(output: str) -> None:
    """Exit with code 2 unless ``output`` is table, csv or json."""
    if output not in OUTPUTS:
        fail(ValueError(message(f"--format {output}", ", ".join(OUTPUTS), "Pass one of these.")))


def print_rows(
    rows: Iterable[Mapping[str, object]],
    columns: Sequence[str],
    output: str,
    *,
    title: str = "",
    styles: Mapping[str, str] | None = None,
    whole: Sequence[str] = (),
    dense: bool = False,
) -> None:
    """Print ``rows`` with the given columns on stdout.

    Absent keys print as nothing. In JSON the values keep their types, else they are text. The
    columns in ``whole`` are never broken in the table, however narrow the terminal. ``dense``
    leaves out the lines, so that a matrix of short names is narrow.
    """
    rows = list(rows)
    if output == "json":
        picked = [{c: row[c] for c in columns if c in row} for row in rows]
        print_json(picked)
        return
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([text(row.get(column, "")) for column in columns] for row in rows)
        return
    if title:  # not the table's own: that would be broken where the table is narrow
        console().print(f"[italic]{escape(title)}[/italic]")
    lines = {"box": None, "padding": (0, 1, 0, 0)} if dense else {}
    table = Table(header_style="bold cyan", **lines)
    for column in columns:
        # Fold: a narrow terminal must not lose digits.
        style = (styles or {}).get(column)
        table.add_column(column, style=style, overflow="fold", no_wrap=dense or column in whole)
    for row in rows:
        table.add_row(*(escape(text(row.get(column, ""))) for column in columns))
    # Never cut: a terminal that is narrower still breaks the lines by itself.
    console(at_least=_DENSE_WIDTH if dense else 0).print(table)


def print_json(data: object) -> None:
    """Print plain data as JSON on stdout."""
    sys.stdout.write(json.dumps(data, indent=1) + "\n")


def console(at_least: int = 0) -> Console:
    """Return the console of stdout, wide where nobody looks at it and COLUMNS says nothing."""
    asked = sys.stdout.isatty() or "COLUMNS" in os.environ
    found = Console(highlight=False, width=None if asked else _PIPE_WIDTH)
    return found if found.width >= at_least else Console(highlight=False, width=at_least)


def text(value: object) -> str:
    """Return a value as a cell of a table: tuples as ``1,2,3``, a Boolean as yes or no."""
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
