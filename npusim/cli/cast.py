"""``npusim cast``: numbers through a cast, modes side by side, and every bit explained."""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim._errors import CastFallbackWarning, InputError, UnknownNameError, message, nearest
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
    from npusim.casting import ResolvedCast
    from npusim.cli.exact import Exact
    from npusim.cli.explain import Dissection
    from npusim.dtypes import DataType

EPILOG = """Examples:

npusim cast 300 -300 50 --from half --to int8 --sat off

npusim cast 2.5 -2.5 3.5 --from half --to int32 --all-modes

npusim cast 0.1 1.8125 --from float --to hif8 --api ascendc --mode HYBRID --explain

npusim cast 0x7C00 0xFBFF --codes --from half --to int8 --soc A2A3

npusim cast 1000000 --from int32 --to half --deqscale 0.01

npusim cast 0.3 --from fp64 --to fp4_e2m1 --api numerics --all-modes --format json"""

SETTINGS = {"ignore_unknown_options": True}  # -300 is a number, not an option
_WORDS = ("inf", "infinity", "nan", "infj", "infinityj", "nanj", "j")
_LONG = re.compile(r"--?[A-Za-z][\w-]*")
_OPTIONS = (
    *("--from", "--to", "--mode", "--sat", "--satmode", "--soc", "--api", "--overflow"),
    *("--level", "--deqscale", "--codes", "--all-modes", "--explain", "--format"),
)
_COMPLEX = re.compile(r"(?P<real>.*?[^e])??(?P<imag>[+-]?[^+-]*(?:e[+-]?\d+)?)j", re.IGNORECASE)


@dataclasses.dataclass
class _Input:
    """A number as typed, and the codes (one a part) it became."""

    text: str
    codes: tuple[int, ...]
    rounded: bool


def register(app: typer.Typer) -> None:
    """Add the command ``cast`` to ``app``."""
    app.command(epilog=EPILOG, help=paragraphs(cast), context_settings=SETTINGS)(cast)


def cast(
    values: Annotated[
        list[str], typer.Argument(help="Numbers: 300, -0.1, 2^-14, inf, nan, 1+2j; see --codes.")
    ],
    source: Annotated[str, typer.Option("--from", help="Source format, by any name.")],
    to: Annotated[str, typer.Option(help="Destination format, by any name.")],
    mode: ModeOption = None,
    sat: SatOption = None,
    soc: SocOption = "950PR",
    api: ApiOption = "pypto",
    overflow: OverflowOption = "INF_NAN",
    level: LevelOption = "memory",
    deqscale: Annotated[float, typer.Option(help="Scale of int32 -> half.")] = 1.0,
    codes: Annotated[
        bool, typer.Option("--codes", help="The inputs are bit patterns: 0x7C00, 0b101, 31744.")
    ] = False,
    all_modes: Annotated[
        bool, typer.Option("--all-modes", help="Every mode the pair takes, side by side.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the bits: kept, discarded, guard, carry.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Cast numbers as a chip does it, and print the result, its code, and the rule's source.

    A number becomes a value of the source format with one rounding (to nearest even), whatever its
    length; the output says where that changed it. 64-bit formats work without further ado.
    """
    check_output(output)
    for word in values:
        if _LONG.fullmatch(word) and word.lstrip("-").lower() not in _WORDS:
            hint = nearest(word, _OPTIONS)
            raise UnknownNameError(
                message(f"option {word}", ", ".join(_OPTIONS), f"{hint}See npusim cast --help.")
            )
    import jax

    from npusim import dtypes
    from npusim.modes import Target

    target = Target(soc, api, overflow, level)
    src, dst = dtypes.dtype(source), dtypes.dtype(to)
    if src is dtypes.DT_HF32:
        raise InputError(
            message(
                "--from hf32", "any other format", "HF32 values are float32 words: --from fp32."
            )
        )
    with jax.enable_x64(True):
        inputs = [_read(word, src, codes) for word in values]
        array = _array([i.codes for i in inputs], src)
        runs: list[_Run] = []
        with _fallbacks():
            for each in _modes(src, dst, target) if all_modes else (mode,):
                runs.append(_run(array, src, dst, each, sat, target, deqscale, explain))
    _print(inputs, src, dst, runs, output, explain, all_modes)


@contextlib.contextmanager
def _fallbacks() -> Iterator[None]:
    """Say on stderr, once each, what a library call would warn of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CastFallbackWarning)
        yield
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        note(line)


def _read(text: str, src: "DataType", as_codes: bool) -> _Input:
    from npusim.cli.exact import code_of, parse, parse_code

    if src.kind != "complex":
        if as_codes:
            return _Input(text, (parse_code(text, src),), False)
        value, rounded = parse(text, src)
        return _Input(text, (code_of(value, src),), rounded)
    if as_codes:
        raise InputError(
            message(f"--codes with {src}", "real formats", "Give values such as 1+2j instead.")
        )
    real, imag = _complex_parts(text)
    pairs = [parse(part, src.part) for part in (real, imag)]
    return _Input(text, tuple(code_of(v, src.part) for v, _ in pairs), any(r for _, r in pairs))


def _complex_parts(text: str) -> tuple[str, str]:
    word = text.strip()
    if not word.lower().endswith("j"):
        return word, "0"
    found = _COMPLEX.fullmatch(word)
    assert found is not None
    imag = found["imag"]
    return found["real"] or "0", f"{imag}1" if imag in ("", "+", "-") else imag


def _array(codes: Sequence[tuple[int, ...]], fmt: "DataType") -> Any:
    """An array of the given codes, as a user would hold it."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from npusim.casting import from_codes
    from npusim.casting.storage import store
    from npusim.numerics.words import unsigned

    if fmt.kind != "complex":
        return from_codes(np.array([c for (c,) in codes], unsigned(fmt.bits)), fmt)
    kind = unsigned(fmt.part.bits)
    parts = tuple(jnp.asarray(np.array(column, kind)) for column in zip(*codes, strict=True))
    assert all(isinstance(part, jax.Array) for part in parts)
    return store(parts, fmt)


def _modes(src: "DataType", dst: "DataType", target: Any) -> tuple[str | None, ...]:
    from npusim.casting.support import laboratory_row, table

    laboratory = target.api == "numerics"
    row = laboratory_row(target, src, dst) if laboratory else table(target).get((src, dst))
    return tuple(m.short for m in row.modes) if row is not None and row.modes else (None,)


@dataclasses.dataclass
class _Run:
    """One mode: what ran, and for each input its result and, if asked for, the explanation."""

    resolved: "ResolvedCast"
    codes: list[tuple[int, ...]]
    values: list[tuple["Exact", ...]]
    explained: list[list[tuple[str, list["Dissection"]]]]

    def shown(self, row: int) -> str:
        parts = [str(value) for value in self.values[row]]
        if len(parts) == 1:
            return parts[0]
        return f"{parts[0]}{'' if parts[1].startswith('-') else '+'}{parts[1]}j"


def _run(
    array: Any,
    src: "DataType",
    dst: "DataType",
    mode: str | None,
    sat: str | None,
    target: Any,
    deqscale: float,
    explain: bool,
) -> _Run:
    import npusim as npu
    from npusim.casting.storage import parts
    from npusim.cli.exact import exact_values, word_format
    from npusim.cli.trace import trace

    out = npu.cast(array, dst, mode, sat, target=target, deqscale=deqscale)
    resolved = npu.resolve_cast(src, dst, mode, sat, target)
    columns = [[int(c) for c in column] for column in parts(out, dst)]
    real = word_format(dst.part)
    values = [exact_values(column, real) for column in columns]
    explained = trace(array, resolved, deqscale) if explain else []
    return _Run(
        resolved, list(zip(*columns, strict=True)), list(zip(*values, strict=True)), explained
    )


def _print(
    inputs: list[_Input],
    src: "DataType",
    dst: "DataType",
    runs: list[_Run],
    output: str,
    explain: bool,
    all_modes: bool,
) -> None:
    rows = [_row(given, i, src, dst, run) for i, given in enumerate(inputs) for run in runs]
    if explain and output != "table":
        _print_steps(rows, runs, output)
        return
    if output != "table":
        print_rows(rows, tuple(rows[0]), output)
        return
    from_code, to_code = f"{src} code", f"{dst} code"
    if all_modes:
        wide = []
        for index, given in enumerate(inputs):
            first = rows[index * len(runs)]
            row: dict[str, object] = {"input": given.text, str(src): first["source"]}
            for run in runs:
                code = _hex(run.codes[index], dst)
                row[run.resolved.mode.short] = f"{run.shown(index)} {code}"
            wide.append(row)
        print_rows(wide, tuple(wide[0]), "table")
    else:
        # A result of the source's own type needs a name of its own.
        result = str(dst) if dst is not src else f"{dst} result"
        to_code = to_code if dst is not src else "result code"
        shown = [
            {
                "input": row["input"],
                str(src): row["source"],
                from_code: row["source_code"],
                result: row["result"],
                to_code: row["code"],
                "bits": str(row["bits"]).removeprefix("0b").replace("_", " "),
            }
            for row in rows
        ]
        print_rows(shown, tuple(shown[0]), "table", styles={result: "bold green"})
    _print_rule(inputs, src, runs)
    if explain:
        from npusim.cli.figure import draw

        for index, given in enumerate(inputs):
            for run in runs:
                for label, parts in run.explained[index]:
                    out = console()
                    out.print()
                    out.print(draw(parts, f"{given.text}{label}", out.width))


def _hex(codes: tuple[int, ...], fmt: "DataType") -> str:
    from npusim.cli.exact import hexadecimal, width, word_format

    return " ".join(hexadecimal(code, width(word_format(fmt.part))) for code in codes)


def _row(
    given: _Input, index: int, src: "DataType", dst: "DataType", run: _Run
) -> dict[str, object]:
    from npusim.cli.exact import binary, exact_values, width, word_format

    resolved = run.resolved
    source = [str(exact_values([code], src.part)[0]) for code in given.codes]
    joined = source[0]
    if len(source) == 2:
        joined += f"{'' if source[1].startswith('-') else '+'}{source[1]}j"
    bits = width(word_format(dst.part))
    values = list(run.values[index])
    return {
        "input": given.text,
        "from": str(src),
        "source": joined,
        "source_code": _hex(given.codes, src),
        "rounded": given.rounded,
        "to": str(dst),
        "result": run.shown(index) if len(values) > 1 else values[0].plain,
        "code": _hex(run.codes[index], dst),
        "bits": " ".join(binary(code, bits) for code in run.codes[index]),
        "mode": resolved.mode.short,
        "satmode": resolved.satmode.value,
        "target": str(resolved.target),
        "rule_source": resolved.source,
        "grade": resolved.grade,
    }


def _print_rule(inputs: list[_Input], src: "DataType", runs: list[_Run]) -> None:
    from npusim.cli.figure import lines

    resolved = runs[0].resolved
    said: list[tuple[str, str]] = [
        ("cast", f"{resolved.src} -> {resolved.dst} on {resolved.target}: {_how(runs)}")
    ]
    if not resolved.steps:
        said.append(("steps", "none: the input is returned"))
    elif len(runs) == 1:
        said += [("step", str(step)) for step in resolved.steps]
    seen: dict[str, list[str]] = {}
    for run in runs:
        line = f"{run.resolved.source} ({run.resolved.grade})"
        seen.setdefault(line, []).append(run.resolved.mode.short)
    for line, modes in seen.items():
        said.append(("source", line if len(seen) == 1 else f"{', '.join(modes)}: {line}"))
    said += [("note", text) for text in dict.fromkeys(n for r in runs for n in r.resolved.notes)]
    rounded = [given.text for given in inputs if given.rounded]
    if rounded:
        said.append(("input", f"{', '.join(rounded)} rounded to nearest even to be {src}"))
    out = console()
    out.print(lines(said, out.width))


def _how(runs: list[_Run]) -> str:
    resolved = runs[0].resolved
    names = ", ".join(run.resolved.mode.short for run in runs)
    remark = ""
    if len(runs) == 1 and resolved.fallback and not resolved.exact:
        remark = f" ({resolved.requested.short} is not available)"
    elif len(runs) == 1 and resolved.requested.short == "NONE" and resolved.mode.short != "NONE":
        remark = " (the pair's default)"
    return f"mode {names}{remark}, satmode {resolved.satmode}"


def _print_steps(rows: list[dict[str, object]], runs: list[_Run], output: str) -> None:
    """Explanations as data: nested in JSON, one row a step in CSV."""
    keys = ("kept", "discarded", "exponent", "last", "guard", "sticky", "carry", "why", "overflow")
    flat: list[dict[str, object]] = []
    for number, row in enumerate(rows):
        index, which = divmod(number, len(runs))
        steps: list[dict[str, object]] = []
        for label, parts in runs[which].explained[index]:
            for part in parts:
                data = dataclasses.asdict(part)
                steps.append({"part": label.strip(" ()"), **data})
                flat.append({**row, "step": part.step, **{k: data[k] for k in keys}})
        row["steps"] = steps
    if output == "json":
        print_json(rows)
    else:
        base = [c for c in rows[0] if c != "steps"]
        columns = (*base, "step", *keys)
        print_rows(flat or rows, columns if flat else base, output)
