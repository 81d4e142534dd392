"""``npusim layout``: shapes of a tensor in other data formats, and where an element goes."""

import math
from typing import Annotated

import typer

from npusim._errors import InputError, NpusimError, message
from npusim.cli.output import check_output, fail, print_rows
from npusim.layouts import FORMATS, DataFormat, check_rank, data_format, locate, possible
from npusim.layouts.places import as_shape
from npusim.layouts.plan import Shape, plan

EPILOG = """Examples:

npusim layout NCHW 1,35,7,9 --to NC1HWC0 --dtype half

npusim layout NCHW 1,35,7,9 --to NC1HWC0 --dtype half --element 0,34,6,8

npusim layout NC1HWC0 1,3,7,9,16 --to NCHW --shape 1,35,7,9 --element 0,2,6,8,2

npusim layout NCHW 16,3,7,7 --dtype int8   (every format that it converts to)"""


def register(app: typer.Typer) -> None:
    """Add the command ``layout`` to ``app``."""
    app.command(epilog=EPILOG)(layout)


def layout(
    src: Annotated[str, typer.Argument(help="Data format of the tensor, e.g. NCHW.")],
    size: Annotated[str, typer.Argument(metavar="SHAPE", help="Its shape, e.g. 1,35,7,9.")],
    to: Annotated[str | None, typer.Option(help="Data format to convert to.")] = None,
    dtype: Annotated[str, typer.Option(help="Data type: it decides the width of a tile.")] = "half",
    c0: Annotated[int | None, typer.Option(help="Width of a tile, instead of the type's.")] = None,
    element: Annotated[
        str | None, typer.Option(help="Index of an element, to say where it goes.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="From a private format: the shape it came from.")
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="How to print: table, csv or json.")
    ] = "table",
) -> None:
    """Print the shape of a tensor in another data format, and where an element goes."""
    check_output(output)
    try:
        source, given = data_format(src), as_shape(_integers(size))
        public = None if shape is None else _integers(shape)
        if to is None:
            if element is not None:
                raise InputError(
                    message(f"--element {element} without --to", "one format", "Add --to FORMAT.")
                )
            rows = _every(source, given, public, dtype, c0)
        else:
            rows = _one(source, data_format(to), given, public, dtype, c0, element)
        columns = ("side", "format", "shape", "elements", *(("element",) if element else ()))
        print_rows(rows, columns, output, styles={"shape": "bold", "element": "bold"})
    except NpusimError as error:
        fail(error)


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            message(f"{text!r}", "integers with commas between them", "For example: 1,35,7,9.")
        ) from None


def _row(side: str, fmt: DataFormat, shape: Shape) -> dict[str, object]:
    return {"side": side, "format": fmt.name, "shape": shape, "elements": math.prod(shape)}


def _one(
    src: DataFormat,
    dst: DataFormat,
    given: Shape,
    public: Shape | None,
    dtype: str,
    c0: int | None,
    element: str | None,
) -> list[dict[str, object]]:
    # The plan of trans_data itself, so that the command cannot differ from it.
    made, forward = plan(src, dst, given, public, dtype, c0)
    answer = made.storage if forward else made.shape
    rows = [_row("from", src, given), _row("to", dst, answer)]
    if element is not None:
        index = _integers(element)
        width = given[-1] if src.private and src.c0 is None else c0
        there = locate(index, src, dst, shape=made.shape, dtype=dtype, c0=width)
        rows[0]["element"] = index
        rows[1]["element"] = "padding" if there is None else there
    return rows


def _every(
    src: DataFormat, given: Shape, public: Shape | None, dtype: str, c0: int | None
) -> list[dict[str, object]]:
    if not src.private:
        check_rank(src, len(given))
    rows = [_row("from", src, given)]
    for dst in FORMATS:
        if dst is src or not possible(src, dst):
            continue
        try:
            width = None if dst.c0 is not None else c0
            rows += _one(src, dst, given, public, dtype, width, None)[1:]
        except InputError:
            continue  # a rank that this format does not have, or a shape that it cannot tell
    return rows
