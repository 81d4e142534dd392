"""``npusim provenance``: every decision with its grade and source."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from npusim._errors import InputError, message, nearest
from npusim.cli.output import OutputOption, check_output, console, paragraphs, print_rows

if TYPE_CHECKING:
    from npusim.casting import Decision

EPILOG = """Examples:

npusim provenance

npusim provenance --grade assumed

npusim provenance hif8

npusim provenance --not-modelled --format csv"""

_STYLES = {
    "documented": "green",
    "implementation": "green",
    "measured": "bold green",
    "assumed": "yellow",
    "hypothetical": "red",
}


def register(app: typer.Typer) -> None:
    """Add the command ``provenance`` to ``app``."""
    app.command(epilog=EPILOG, help=paragraphs(provenance))(provenance)


def provenance(
    text: Annotated[str | None, typer.Argument(help="Only rows with this text in them.")] = None,
    grade: Annotated[
        str | None,
        typer.Option(help="documented, implementation, measured, assumed or hypothetical."),
    ] = None,
    not_modelled: Annotated[
        bool, typer.Option("--not-modelled", help="Only what npusim does not simulate.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """List what npusim decides where sources conflict or are silent, with grade and source.

    documented: in a vendor page; implementation: read in vendor code; measured: on a device;
    assumed: no source states it; hypothetical: no chip has it.
    """
    check_output(output)
    from npusim.casting.provenance import GRADES
    from npusim.casting.provenance import provenance as decisions

    if grade is not None and grade not in GRADES:
        raise InputError(
            message(
                f"--grade {grade}", ", ".join(GRADES), f"{nearest(grade, GRADES)}Pass one of these."
            )
        )
    found = [
        row
        for row in decisions(grade)
        if (text or "").lower() in f"{row.id} {row.topic} {row.rule} {row.source}".lower()
        and not (not_modelled and row.modelled)
    ]
    if output == "table":
        _print(found)
        return
    rows = [dataclasses.asdict(row) for row in found]
    print_rows(rows, ("id", "topic", "rule", "grade", "source", "modelled"), output)


def _print(found: list["Decision"]) -> None:
    """By topic, a few lines each: a table would be too narrow for the sentences."""
    from rich.text import Text

    from npusim.cli.figure import lines

    out = console()
    topic = ""
    for row in found:
        if row.topic != topic:
            topic = row.topic
            out.print(Text(f"\n{topic}", style="bold cyan"))
        head = Text(f"  {row.id}  ", style="bold")
        head.append(row.grade, style=_STYLES[row.grade])
        head.append("" if row.modelled else "  not modelled", style="dim")
        out.print(head)
        body = [("rule", row.rule), ("source", Text(row.source, style="dim"))]
        out.print(lines(body, out.width, 4))
    out.print(f"\n{len(found)} rows")
