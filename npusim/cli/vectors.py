"""``npusim vectors`` and ``npusim check``: expected codes for a device, and what it measured."""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim._errors import ConfigError, InputError, message
from npusim.cli.output import (
    ApiOption,
    LevelOption,
    ModeOption,
    OutputOption,
    OverflowOption,
    SatOption,
    SocOption,
    check_output,
    console,
    note,
    paragraphs,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    import numpy as np

    from npusim.casting import ResolvedCast
    from npusim.dtypes import DataType

VECTORS_EPILOG = """Examples:

npusim vectors --from half --to int8 > v.csv

npusim vectors --from float --to hif8 --api ascendc --mode HYBRID --count 5000 --seed 1 > v.csv

npusim vectors --from bf16 --to half --soc A2A3 --api numerics --sat off > v.csv"""

CHECK_EPILOG = """Examples:

npusim check v.csv

npusim check v.csv --nan-bits --format json"""

_DEFAULT_COUNT = 20_000
_SHOWN = 20
_KEYS = ("from", "to", "mode", "satmode", "soc", "api", "overflow", "level", "deqscale")
_MARK = "# cast "


def register(app: typer.Typer) -> None:
    """Add the commands ``vectors`` and ``check`` to ``app``."""
    app.command(epilog=VECTORS_EPILOG, help=paragraphs(vectors))(vectors)
    app.command(epilog=CHECK_EPILOG, help=paragraphs(check))(check)


def vectors(
    source: Annotated[str, typer.Option("--from", help="Source format, by any name.")],
    to: Annotated[str, typer.Option(help="Destination format, by any name.")],
    mode: ModeOption = None,
    sat: SatOption = None,
    soc: SocOption = "950PR",
    api: ApiOption = "pypto",
    overflow: OverflowOption = "INF_NAN",
    level: LevelOption = "memory",
    deqscale: Annotated[float, typer.Option(help="Scale of int32 -> half.")] = 1.0,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="How many inputs.", show_default="all of 16 bits, else 20000"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
) -> None:
    """Write inputs and the codes that npusim expects, as CSV on stdout.

    Sources of at most 16 bits: every code. Wider ones: special values, every exponent with telling
    mantissas, the places where the result changes with their neighbours, and random codes.

    Columns: input, code; both are bit patterns in hexadecimal. Comment lines in front (#) record
    the cast, so that npusim check can run it again, and the versions.
    """
    asked = {
        "from": source,
        "to": to,
        "mode": mode,
        "satmode": sat,
        "soc": soc,
        "api": api,
        "overflow": overflow,
        "level": level,
        "deqscale": deqscale,
    }
    import jax

    from npusim.cli.exact import hexadecimal, width, word_format
    from npusim.cli.probes import probes

    with jax.enable_x64(True):
        src, dst, resolved = _resolve(asked)
        inputs, what = probes(src, dst, count, seed, _DEFAULT_COUNT)
        codes = _expected(inputs, asked)
    # The names as npusim spells them, so that the file reads the same whatever was typed.
    asked |= {"from": str(src), "to": str(dst), "soc": str(resolved.target.soc)}
    for line in _header(asked, resolved, what):
        sys.stdout.write(f"# {line}\n")
    bits_in, bits_out = width(src), width(word_format(dst))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("input", "code"))
    writer.writerows(
        (hexadecimal(int(i), bits_in), hexadecimal(int(c), bits_out))
        for i, c in zip(inputs, codes, strict=True)
    )


def _header(asked: dict[str, Any], resolved: "ResolvedCast", what: str) -> Iterator[str]:
    import jax

    import npusim

    yield f"npusim {npusim.__version__}, jax {jax.__version__}"
    yield f"cast {json.dumps(asked)}"
    steps = "; ".join(str(step) for step in resolved.steps) or "the input is returned"
    yield f"runs {steps}"
    yield f"grade {resolved.grade}; source {resolved.source}"
    yield f"inputs {what}"


def _resolve(asked: dict[str, Any]) -> tuple["DataType", "DataType", "ResolvedCast"]:
    import npusim as npu

    src, dst = npu.dtype(asked["from"]), npu.dtype(asked["to"])
    for fmt in (src, dst):
        if fmt.kind == "complex" or src is npu.DT_HF32:
            raise InputError(
                message(
                    f"vectors for {src} -> {dst}",
                    "real formats, from any but hf32",
                    "Make vectors for the parts (half, float), or from fp32.",
                )
            )
    target = npu.Target(asked["soc"], asked["api"], asked["overflow"], asked["level"])
    return src, dst, npu.resolve_cast(src, dst, asked["mode"], asked["satmode"], target)


def _expected(inputs: "np.ndarray", asked: dict[str, Any]) -> "np.ndarray":
    import warnings

    import numpy as np

    import npusim as npu

    target = npu.Target(asked["soc"], asked["api"], asked["overflow"], asked["level"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", npu.CastFallbackWarning)
        made = npu.cast(
            npu.from_codes(inputs, asked["from"]),
            asked["to"],
            asked["mode"],
            asked["satmode"],
            target=target,
            deqscale=asked["deqscale"],
        )
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        note(line)
    return np.asarray(npu.to_codes(made))


def check(
    path: Annotated[Path, typer.Argument(help="A file of npusim vectors with measured codes.")],
    nan_bits: Annotated[
        bool, typer.Option("--nan-bits", help="Compare NaN bit by bit, not as a class.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Compare codes measured on a device with what npusim gives; exit code 1 if any differ.

    The file is one of npusim vectors, with its comment lines. The measured codes stand in a column
    measured of their own or, if there is none, in place of those in the column code. Rows may be
    left out or reordered; 0x..., 0b... and decimal codes are read. At most 20 differences are
    shown, with their bits.
    """
    check_output(output)
    import jax

    with jax.enable_x64(True):
        asked, rows = _read(path)
        src, dst, resolved = _resolve(asked)
        differences, counts = _compare(asked, rows, src, dst, nan_bits)
    verdict = "equal" if not counts["different"] else "different"
    summary: dict[str, object] = {
        "cast": f"{src} -> {dst} on {resolved.target}",
        "mode": resolved.mode.short,
        "satmode": str(resolved.satmode),
        "grade": resolved.grade,
        **counts,
        "verdict": verdict,
    }
    columns = ("row", "input", "value", "expected", "measured", "expected bits", "measured bits")
    if output == "json":
        print_json({**summary, "differences": differences})
    elif output == "csv":
        print_rows(differences, columns, "csv")
    else:
        if differences:
            print_rows(differences, columns, "table", styles={"measured": "bold red"})
        if len(differences) < counts["different"]:
            console().print(f"{len(differences)} of {counts['different']} differences shown.")
        style = "bold red" if counts["different"] else "bold green"
        by_class = f", {counts['nan']} of them NaN by class" if counts["nan"] else ""
        console().print(
            f"{summary['cast']}, {summary['mode']}, satmode {summary['satmode']} "
            f"({resolved.grade}): {counts['rows']} rows, {counts['equal']} equal{by_class}, "
            f"[{style}]{counts['different']} different[/{style}]"
        )
    if counts["different"]:
        raise typer.Exit(1)


def _bad(path: Path, given: str, remedy: str) -> ConfigError:
    return ConfigError(
        message(f"{path}: {given}", "a file that npusim vectors wrote, with measured codes", remedy)
    )


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The cast that a file records, and its rows."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, f"it cannot be read ({error})", "Check the path.") from error
    lines = text.splitlines()
    marked = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    if len(marked) != 1:
        raise _bad(path, f"{len(marked)} comment lines '# cast'", "Keep the comment lines.")
    try:
        asked = json.loads(marked[0])
    except json.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict) or set(asked) != set(_KEYS):
        raise _bad(path, f"a line '# cast' that says {marked[0]}", "Keep the comment lines.")
    rows = list(csv.DictReader(line for line in lines if line and not line.startswith("#")))
    missing = {"input", "code"} - set(rows[0] if rows else ())
    if missing:
        raise _bad(path, f"no column {' and '.join(sorted(missing))}", "Keep the first row.")
    return asked, rows


def _compare(
    asked: dict[str, Any],
    rows: list[dict[str, str]],
    src: "DataType",
    dst: "DataType",
    nan_bits: bool,
) -> tuple[list[dict[str, object]], dict[str, int]]:
    import numpy as np

    from npusim.cli.exact import (
        binary,
        exact_values,
        hexadecimal,
        width,
        word_format,
    )
    from npusim.numerics.words import unsigned

    held = word_format(dst)
    column = "measured" if "measured" in rows[0] else "code"
    inputs = _codes(rows, "input", src)
    measured = _codes(rows, column, held)
    expected = _expected(np.array(inputs, unsigned(src.bits)), asked).tolist()
    _warn_of_age(rows, column, expected, held)
    wrong = [i for i in range(len(rows)) if measured[i] != expected[i]]
    nans: set[int] = set()
    if not nan_bits:
        pairs = [exact_values([expected[i], measured[i]], held) for i in wrong]
        nans = {i for i, p in zip(wrong, pairs, strict=True) if p[0].kind == p[1].kind == "nan"}
        wrong = [i for i in wrong if i not in nans]
    shown = wrong[:_SHOWN]
    values = exact_values([inputs[i] for i in shown], src)
    results = exact_values([expected[i] for i in shown], held)
    got = exact_values([measured[i] for i in shown], held)
    bits = width(held)
    differences: list[dict[str, object]] = [
        {
            "row": i + 1,
            "input": hexadecimal(inputs[i], width(src)),
            "value": str(values[n]),
            "expected": f"{results[n]} {hexadecimal(expected[i], bits)}",
            "measured": f"{got[n]} {hexadecimal(measured[i], bits)}",
            "expected bits": binary(expected[i], bits)[2:],
            "measured bits": binary(measured[i], bits)[2:],
        }
        for n, i in enumerate(shown)
    ]
    counts = {
        "rows": len(rows),
        "equal": len(rows) - len(wrong),
        "nan": len(nans),
        "different": len(wrong),
    }
    return differences, counts


def _codes(rows: list[dict[str, str]], column: str, fmt: "DataType") -> list[int]:
    """A column of bit patterns; an error names its row."""
    from npusim.cli.exact import hexadecimal, parse_code, width

    codes: list[int] = []
    for number, row in enumerate(rows):
        try:
            codes.append(parse_code(row[column] or "", fmt))
        except InputError as error:
            top = hexadecimal((1 << width(fmt)) - 1, width(fmt))
            raise InputError(
                message(
                    f"row {number + 1}, column {column}: {row[column] or 'nothing'}",
                    f"codes of {fmt} from 0 to {top}, as 0x..., 0b... or decimal",
                    "Correct the row, or leave it out.",
                )
            ) from error
    return codes


def _warn_of_age(
    rows: list[dict[str, str]], column: str, expected: list[int], held: "DataType"
) -> None:
    """Say so if the file's expected codes are not what this version gives."""
    if column == "code":
        return
    old = sum(c != e for c, e in zip(_codes(rows, "code", held), expected, strict=True))
    if old:
        note(f"{old} expected codes in the file differ from this version of npusim, which counts")
