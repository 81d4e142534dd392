"""Mean and spread over seeds, one row for each combination of the axes."""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from npusim.reporting.records import Record


@dataclasses.dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over seeds; None where they do not exist.

    Attributes:
        mean: over all seeds.
        spread: sample standard deviation.
        not_finite: how many seeds have no finite value.
    """

    mean: float | None
    spread: float | None
    not_finite: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Stat":
        """Return the statistics of ``values``.

        One value that is not finite leaves no mean: a mean of the survivors would hide it.

        Example:
            >>> Stat.of([1.0, 3.0]).mean, Stat.of([1.0, None]).mean
            (2.0, None)
        """
        known = [v for v in values if v is not None]
        if not known or len(known) < len(values):
            return cls(None, None, len(values) - len(known))
        spread = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), spread, 0)


@dataclasses.dataclass(frozen=True)
class Row:
    """The trials of one combination.

    Attributes:
        kind: ``trial`` or ``baseline``.
        axes: the combination.
        seeds: those that are finished.
        metrics: held-out metrics by name.
        diverged: how many seeds' training did.
        against: difference of each mean from the baseline's.
    """

    kind: str
    axes: dict[str, Any]
    seeds: tuple[int, ...]
    metrics: dict[str, Stat]
    diverged: int
    against: dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a report is drawn from.

    Attributes:
        records: the finished trials.
        rows: one for each combination, in the order of the sweep, the baseline first.
        metric_names: in the order the task gave them.
        headline: the metric of heat maps: ``accuracy`` if there is one, else the first.
        planned: how many trials the sweep has.
    """

    records: list[Record]
    rows: list[Row]
    metric_names: tuple[str, ...]
    headline: str
    planned: int

    @property
    def config(self) -> dict[str, Any]:
        """The sweep file as data."""
        return self.records[0].config

    @property
    def axes(self) -> dict[str, list[Any]]:
        """Axis name to its values."""
        return self.config["axes"]

    @property
    def baseline(self) -> Row | None:
        """The baseline's row, if it has finished."""
        return next((row for row in self.rows if row.kind == "baseline"), None)

    def find(self, **axes: Any) -> Row | None:
        """Return the row of a combination, or None if no trial of it has finished."""
        return next((r for r in self.rows if r.kind == "trial" and r.axes == axes), None)


def summarise(records: Iterable[Record]) -> Summary:
    """Return mean and spread over seeds of the trials of one sweep."""
    records = list(records)
    config = records[0].config
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps([record.kind, record.axes]), []).append(record)
    names = tuple(dict.fromkeys(name for record in records for name in record.metrics))
    base = _stats([r for r in records if r.kind == "baseline"], names)

    def place(group: list[Record]) -> tuple[int, ...]:
        if group[0].kind == "baseline":
            return (-1,)
        return tuple(config["axes"][name].index(group[0].axes[name]) for name in config["axes"])

    rows = []
    for group in sorted(groups.values(), key=place):
        stats = _stats(group, names)
        rows.append(
            Row(
                kind=group[0].kind,
                axes=group[0].axes,
                seeds=tuple(sorted(r.seed for r in group)),
                metrics=stats,
                diverged=sum(r.status == "diverged" for r in group),
                against={name: _minus(stats[name].mean, base[name].mean) for name in names},
            )
        )
    combinations = 1
    for values in config["axes"].values():
        combinations *= len(values)
    planned = (combinations + (config["baseline"] is not None)) * len(config["seeds"])
    headline = "accuracy" if "accuracy" in names else names[0]
    return Summary(records, rows, names, headline, planned)


def _stats(group: list[Record], names: tuple[str, ...]) -> dict[str, Stat]:
    return {name: Stat.of([r.metrics.get(name) for r in group]) for name in names}


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
