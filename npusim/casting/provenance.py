"""Where every decision comes from: one row each, with its grade."""

import csv
import dataclasses
import functools
import importlib.resources

from npusim._errors import UnknownNameError, message, nearest

GRADES = ("documented", "implementation", "measured", "assumed", "hypothetical")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """A rule that npusim follows, or one that it knows of and does not follow.

    Attributes:
        id: short name of the row.
        topic: what it is about.
        rule: what holds.
        grade: how well that is known: ``documented`` (a vendor page says it), ``implementation``
            (read in vendor code), ``measured`` (on a device), ``assumed`` (no source states it) or
            ``hypothetical`` (no chip does it).
        source: the page, or the repository and path.
        modelled: whether npusim does what the rule says.
    """

    id: str
    topic: str
    rule: str
    grade: str
    source: str
    modelled: bool


@functools.cache
def _rows() -> tuple[Decision, ...]:
    file = importlib.resources.files("npusim.casting") / "data" / "provenance.csv"
    lines = (line for line in file.read_text("utf-8").splitlines() if not line.startswith("#"))
    return tuple(
        Decision(
            id=row["id"],
            topic=row["topic"],
            rule=row["rule"],
            grade=row["grade"],
            source=row["source"],
            modelled=row["modelled"] == "yes",
        )
        for row in csv.DictReader(lines)
    )


def provenance(grade: str | None = None) -> tuple[Decision, ...]:
    """Return every decision, or those of one grade.

    Raises:
        UnknownNameError: no such grade.

    Example:
        >>> provenance("assumed")[0].grade
        'assumed'
    """
    if grade is not None and grade not in GRADES:
        raise UnknownNameError(
            message(
                f"grade {grade!r}", ", ".join(GRADES), f"{nearest(grade, GRADES)}Pass one of these."
            )
        )
    return tuple(row for row in _rows() if grade in (None, row.grade))
