"""``npusim support``: the casts that a chip and entry point have."""

from typing import TYPE_CHECKING, Annotated

import typer

from npusim._errors import UnsupportedCastError, message
from npusim.cli.output import (
    ApiOption,
    LevelOption,
    OutputOption,
    SocOption,
    check_output,
    console,
    paragraphs,
    print_rows,
    text,
)

if TYPE_CHECKING:
    from npusim.casting import SupportedCast
    from npusim.modes import Target

EPILOG = """Examples:

npusim support --soc 950PR --api ascendc

npusim support --soc 950PR --api ascendc --level reg --to hif8

npusim support --soc A2A3 --from float

npusim support --api aclnn --from bf16 --format json"""

_PAIR = ("from", "to")
_SHARED = ("note", "grade", "source")
_WHOLE = (*_PAIR, "grade")
_FIVE = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC")


def register(app: typer.Typer) -> None:
    """Add the command ``support`` to ``app``."""
    app.command(epilog=EPILOG, help=paragraphs(support))(support)


def support(
    soc: SocOption = "950PR",
    api: ApiOption = "pypto",
    level: LevelOption = "memory",
    source: Annotated[str | None, typer.Option("--from", help="Only from this format.")] = None,
    to: Annotated[str | None, typer.Option(help="Only to this format.")] = None,
    output: OutputOption = "table",
) -> None:
    """List the legal casts: modes, what NONE means, saturation, grade and source.

    satmode says whether the saturation of the call bears on the pair. In the table "five" stands
    for RINT, FLOOR, CEIL, ROUND and TRUNC.
    """
    check_output(output)
    from npusim import dtypes
    from npusim.casting import supported_casts
    from npusim.modes import Target

    target = Target(soc, api, level=level)
    src = None if source is None else dtypes.dtype(source)
    dst = None if to is None else dtypes.dtype(to)
    found = [
        row
        for row in supported_casts(target)
        if (src is None or row.src is src) and (dst is None or row.dst is dst)
    ]
    if not found:
        raise UnsupportedCastError(_nothing(target, str(src or "any"), str(dst or "any")))
    rows = [_row(row, output) for row in found]
    title = f"{len(rows)} casts of {str(target).removesuffix(' INF_NAN')}"
    columns, common = tuple(rows[0]), []
    if output == "table":  # what all rows share is said once, below
        common = [c for c in _SHARED if len({text(r[c]) for r in rows}) == 1]
        columns = tuple(c for c in columns if c not in common)
    print_rows(
        rows, columns, output, title=title, styles=dict.fromkeys(_PAIR, "bold"), whole=_WHOLE
    )
    if common:
        said = [f"{c}: {text(rows[0][c])}" for c in common if text(rows[0][c])]
        console().print("All: " + "; ".join(said))


def _nothing(target: "Target", src: str, dst: str) -> str:
    from npusim import dtypes
    from npusim.casting.support import who_has

    remedy = "Leave --from or --to out to see what there is."
    if "any" not in (src, dst):
        others = who_has(dtypes.dtype(src), dtypes.dtype(dst))
        names = "; ".join(str(other) for other in others) or "no chip or entry point"
        remedy = f"The pair exists on: {names}. {remedy}"
    return message(f"casts from {src} to {dst} on {target}", "pairs of its table", remedy)


def _row(row: "SupportedCast", output: str) -> dict[str, object]:
    modes = [mode.short for mode in row.modes]
    if output == "table" and set(_FIVE) <= set(modes):
        modes = ["five", *(m for m in modes if m not in _FIVE)]
    chain = row.steps.replace(":", " ").replace(";", ", then ").replace("*", str(row.dst))
    line: dict[str, object] = {
        "from": str(row.src),
        "to": str(row.dst),
        "modes": chain if chain else " ".join(modes) or "-",
        "NONE is": row.default.short if row.default is not None else "refused",
        "satmode": row.takes_satmode,
        "note": row.note,
        "grade": row.grade,
        "source": row.source,
    }
    if row.target.api == "aclnn":
        del line["NONE is"], line["satmode"]
        line = {"steps" if key == "modes" else key: value for key, value in line.items()}
    return line
