"""The tables of a report: for people (terminal, Markdown) and for machines (CSV, JSON)."""

import csv
import dataclasses
import io
import itertools
import json
from typing import TYPE_CHECKING, Any

from npusim.reporting.summary import Row, Stat, Summary

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("table", "csv", "json")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which axis runs where in a two-dimensional picture of a sweep.

    Attributes:
        across: the axis of the columns.
        down: the axis of the rows; None if there is only one axis.
        facets: the axes that are left, one picture for each combination of them.
    """

    across: str
    down: str | None
    facets: tuple[str, ...]

    @classmethod
    def of(cls, axes: dict[str, list[Any]]) -> "Layout":
        """Formats go down and modes across where there are such axes.

        Example:
            >>> Layout.of({"dtype": ["int8"], "mode": ["RINT"], "satmode": ["ON"]})
            Layout(across='mode', down='dtype', facets=('satmode',))
        """
        names = list(axes)
        across = "mode" if "mode" in names else max(names, key=lambda n: len(axes[n]))
        names.remove(across)
        down = "dtype" if "dtype" in names else (names[0] if names else None)
        return cls(across, down, tuple(n for n in names if n != down))

    def facet_points(self, axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
        """Every combination of the facet axes; one empty one if there are none."""
        values = itertools.product(*(axes[name] for name in self.facets))
        return [dict(zip(self.facets, point, strict=True)) for point in values]


def number(value: float | None) -> str:
    """Return ``value`` as tables print it; a dash where there is none.

    Example:
        >>> number(0.98765), number(1234.5), number(None)
        ('0.9877', '1.23e+03', '-')
    """
    if value is None:
        return "-"
    small = value == 0 or 1e-3 <= abs(value) < 1e3
    return f"{value:.4f}" if small else f"{value:.2e}"


def cell(row: Row, name: str) -> str:
    """Return mean and spread of a metric, or for how many seeds it is infinite or NaN."""
    stat = row.metrics[name]
    if stat.mean is None:
        return f"not finite {stat.not_finite}/{len(row.seeds)}"
    if stat.spread is None:
        return number(stat.mean)
    # As many decimals as the mean has: the eye compares the two.
    exponential = "e" in number(stat.mean) or stat.spread >= 1e3
    return f"{number(stat.mean)} ± {stat.spread:{'.2e' if exponential else '.4f'}}"


def signed(value: float | None) -> str:
    """Return a difference with its sign.

    Example:
        >>> signed(-0.02), signed(0.0)
        ('-0.0200', '+0.0000')
    """
    return "-" if value is None else f"{value:+.4f}"


def label(value: Any) -> str:
    """Return an axis value as tables print it."""
    return "-" if value is None else str(value)


def header(summary: Summary) -> list[str]:
    """Column names of the full table."""
    columns = ["kind", *summary.axes, "seeds", *summary.metric_names]
    if summary.baseline is not None:
        columns.append(f"{summary.headline} - baseline")
    return [*columns, "diverged"]


def body(summary: Summary) -> list[list[str]]:
    """Cells of the full table, one list for each combination."""
    lines = []
    for row in summary.rows:
        line = [row.kind, *(label(row.axes.get(name)) for name in summary.axes)]
        line.append(str(len(row.seeds)))
        line += [cell(row, name) for name in summary.metric_names]
        if summary.baseline is not None:
            line.append(signed(row.against[summary.headline]))
        lines.append([*line, f"{row.diverged}/{len(row.seeds)}"])
    return lines


def pivot(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the headline metric with one axis across: the table of the terminal."""
    axes, layout = summary.axes, Layout.of(summary.axes)
    lead = [name for name in (layout.down, *layout.facets) if name is not None]
    lines = []
    for values in itertools.product(*(axes[name] for name in lead)):
        point = dict(zip(lead, values, strict=True))
        line = [label(v) for v in values]
        for value in axes[layout.across]:
            row = summary.find(**{n: (point | {layout.across: value})[n] for n in axes})
            line.append("" if row is None else cell(row, summary.headline))
        lines.append(line)
    return [*lead, *(label(v) for v in axes[layout.across])], lines


def rich_table(summary: Summary) -> "Table":
    """The pivot as a table for a terminal, the baseline in its caption."""
    from rich.table import Table

    columns, lines = pivot(summary)
    lead = len(columns) - len(summary.axes[Layout.of(summary.axes).across])
    seeds = len(summary.config["seeds"])
    caption = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    if summary.baseline is not None:
        caption += f"\nbaseline: {cell(summary.baseline, summary.headline)}"
    table = Table(title=f"{summary.config['name']}: held-out {summary.headline}", caption=caption)
    for i, column in enumerate(columns):
        # Fold: a narrow terminal breaks a cell rather than losing digits.
        justify = "left" if i < lead else "right"
        table.add_column(column, justify=justify, overflow="fold")
    previous = None
    for line in lines:
        # A rule between the blocks of the first axis, as eyes group the lines by it.
        if previous is not None and line[0] != previous and lead > 1:
            table.add_section()
        previous = line[0]
        table.add_row(*line)
    return table


def machine_rows(summary: Summary) -> list[dict[str, Any]]:
    """The full table with numbers, one dict for each combination."""
    rows = []
    for row in summary.rows:
        item: dict[str, Any] = {"kind": row.kind}
        item |= {name: row.axes.get(name) for name in summary.axes}
        item |= {"seeds": len(row.seeds), "diverged": row.diverged}
        for name in summary.metric_names:
            stat: Stat = row.metrics[name]
            item[f"{name}_mean"] = stat.mean
            item[f"{name}_spread"] = stat.spread
            item[f"{name}_minus_baseline"] = row.against[name]
        rows.append(item)
    return rows


def to_json(summary: Summary) -> str:
    """The full table as a JSON list."""
    return json.dumps(machine_rows(summary), indent=1)


def to_csv(summary: Summary) -> str:
    """The full table as CSV; an empty field where there is no number."""
    return _csv(machine_rows(summary))


def trials_csv(summary: Summary) -> str:
    """One line for each trial, in the order they finished."""
    return _csv(
        [
            {
                "kind": record.kind,
                **{name: record.axes.get(name) for name in summary.axes},
                "seed": record.seed,
                "status": record.status,
                **{name: record.metrics.get(name) for name in summary.metric_names},
                "last_train_loss": record.curve["loss"][-1],
                "seconds": record.seconds,
                "policy_hash": record.policy_hash,
                "target": record.target,
                "finished": record.finished,
                **record.versions,
            }
            for record in summary.records
        ]
    )


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(columns: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table.

    Example:
        >>> print(to_markdown(["mode", "accuracy"], [["RINT", "0.9800"]]))
        | mode | accuracy |
        |---|---|
        | RINT | 0.9800 |
    """
    rows = [columns, ["---"] * len(columns), *lines]
    rule = "|" + "|".join(rows[1]) + "|"
    text = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    text[1] = rule
    return "\n".join(text)
