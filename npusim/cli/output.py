"""What commands share: rows printed as a table, CSV or JSON, and errors as one line."""

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npusim._errors import message

OUTPUTS = ("table", "csv", "json")

# Wide enough for the widest table, where there is no terminal to ask for its width.
_PIPE_WIDTH = 200


def fail(error: Exception) -> NoReturn:
    """Print ``error`` on one line of stderr and exit with code 2."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[red]error:[/red] {escape(' '.join(str(error).split()))}")
    raise typer.Exit(2) from error


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
) -> None:
    """Print ``rows`` with the given columns on stdout.

    Absent keys print as nothing. In JSON the values keep their types, else they are text.
    """
    rows = list(rows)
    if output == "json":
        picked = [{c: row[c] for c in columns if c in row} for row in rows]
        sys.stdout.write(json.dumps(picked, indent=1) + "\n")
        return
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([text(row.get(column, "")) for column in columns] for row in rows)
        return
    table = Table(title=escape(title) or None, title_justify="left", header_style="bold cyan")
    for column in columns:
        table.add_column(column, style=(styles or {}).get(column))
    for row in rows:
        table.add_row(*(escape(text(row.get(column, ""))) for column in columns))
    console().print(table)


def console() -> Console:
    """Return the console of stdout, wide where nobody looks at it."""
    tty = sys.stdout.isatty()
    return Console(highlight=False, width=None if tty else _PIPE_WIDTH)


def text(value: object) -> str:
    """Return a value as a cell of a table: tuples as ``1,2,3``, a Boolean as yes or no."""
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
