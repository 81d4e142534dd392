"""Drawing what `explain` found out: kept and discarded bits in one line, as vendor figures do."""

import io
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from npusim.cli.explain import Dissection, Field

_KEPT, _LOST, _NAME = "bold green", "dim red", "cyan"
_MARGIN = 8
_SPECIAL = ("inf", "-inf", "nan")


def lines(rows: Iterable[tuple[str, Text | str]], width: int, indent: int = 0) -> Text:
    """Named lines whose text stays in its column where the terminal is narrow."""
    out = Text()
    measure = Console(width=max(width, 40), file=io.StringIO())
    for name, content in rows:
        text = content if isinstance(content, Text) else Text(content)
        pieces = text.wrap(measure, measure.width - indent - _MARGIN, overflow="fold")
        for number, piece in enumerate(pieces or [text]):
            out.append("\n" if out else "")
            out.append(" " * indent)
            out.append(("" if number else name).ljust(_MARGIN), style=_NAME)
            piece.rstrip()
            out.append_text(piece)
    return out


def draw(parts: Iterable[Dissection], heading: str, width: int) -> Text:
    """The picture of one input on its way through one or more steps."""
    out = Text()
    out.append(heading, style="bold")
    for part in parts:
        out.append("\n")
        out.append_text(lines(_step(part), width, 2))
    return out


def _step(part: Dissection) -> list[tuple[str, Text | str]]:
    out: list[tuple[str, Text | str]] = [
        ("step", Text(part.step, style="bold")),
        ("source", f"{part.source} = {part.source_code}"),
        ("", _fields(part.source_fields)),
    ]
    if part.kept:
        out.append(("bits", _bits(part)))
        out.append(("", f"last kept {part.last}, guard {part.guard}, sticky {part.sticky}"))
        out.append(("carry", f"{part.carry}: {part.why}"))
    elif part.why:
        out.append(("rule", part.why))
    if part.overflow:
        name = "special" if part.source in _SPECIAL else "range"
        out.append((name, Text(part.overflow, style="yellow")))
    result = Text(part.result, style="bold")
    result.append(f" = {part.result_code}", style="not bold")
    return [*out, ("result", result), ("", _fields(part.result_fields))]


def _bits(part: Dissection) -> Text:
    line = Text()
    line.append(part.kept, style=_KEPT)
    line.append(" | ")
    line.append(part.discarded or "-", style=_LOST)
    line.append(f"  x 2^{part.exponent}   (kept | discarded)")
    return line


def _fields(fields: Iterable[Field]) -> Text:
    line = Text()
    for number, field in enumerate(fields):
        line.append("  " if number else "")
        line.append(f"{field.name} ", style="dim")
        line.append(field.bits)
        line.append(f" ({field.meaning})" if field.meaning else "", style="dim")
    return line
