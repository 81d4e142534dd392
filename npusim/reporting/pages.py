"""The files of a report: results.csv, summary.md and a self-contained report.html."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from npusim.reporting import plots, tables
from npusim.reporting.summary import Summary

CAPTION = (
    "Mean ± sample standard deviation over seeds, on held-out data. "
    "A mean is given only where the metric is finite for every seed: a mean of the rest would hide "
    "the others. Diverged: training ended without a finite loss, which is a result, not an error."
)


def render(summary: Summary, directory: str | Path) -> list[Path]:
    """Write results.csv, summary.md and report.html into ``directory``; return their paths."""
    folder = Path(directory)
    texts = {
        "results.csv": tables.trials_csv(summary),
        "summary.md": markdown(summary),
        "report.html": html(summary),
    }
    for name, text in texts.items():
        _replace(folder / name, text)
    return [folder / name for name in texts]


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never half of it."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def facts(summary: Summary) -> dict[str, str]:
    """What a reader needs to know to run the same thing again, by name."""
    config, records = summary.config, summary.records
    seconds = sum(record.seconds for record in records)
    # A baseline without casts follows no chip.
    target = next((record.target for record in records if record.target), None)
    listed = {
        "task": config["task"] + _arguments(config.get("task_args") or {}),
        "trials": f"{len(records)} of {summary.planned} finished",
        "seeds": ", ".join(str(s) for s in config["seeds"]),
        "axes": "; ".join(
            f"{name}: {', '.join(tables.label(v) for v in values)}"
            for name, values in config["axes"].items()
        ),
        "baseline": baseline_text(summary),
        "target": target or "laboratory (every pair and mode as asked, no chip's table)",
        "compilations": str(max(record.compilations for record in records)),
        "run time": f"{seconds:.0f} s without compilation",
        "config hash": records[0].config_hash,
    }
    for name in dict.fromkeys(name for record in records for name in record.versions):
        found = Counter(record.versions.get(name, "?") for record in records)
        listed[name] = ", ".join(found)
    return listed


def _arguments(arguments: dict[str, Any]) -> str:
    return f" ({', '.join(f'{k}={v}' for k, v in arguments.items())})" if arguments else ""


def baseline_text(summary: Summary) -> str:
    """Say what the baseline was and what it reached."""
    given = summary.config["baseline"]
    if given is None:
        return "none"
    name = ", ".join(f"{k} {tables.label(v)}" for k, v in given.items())
    row = summary.baseline
    if row is None:
        return f"{name}: not finished"
    reached = ", ".join(f"{m} {tables.cell(row, m)}" for m in summary.metric_names)
    return f"{name}: {reached}"


def markdown(summary: Summary) -> str:
    """The summary as Markdown: the pivot, the full table, the facts."""
    head, lines = tables.pivot(summary)
    parts = [
        f"# {summary.config['name']}",
        f"Baseline {baseline_text(summary)}.",
        f"## Held-out {summary.headline}",
        tables.to_markdown(head, lines),
        "## All combinations",
        CAPTION,
        tables.to_markdown(tables.header(summary), tables.body(summary)),
        "## How it was run",
        tables.to_markdown(["what", "value"], [[k, v] for k, v in facts(summary).items()]),
    ]
    return "\n\n".join(parts) + "\n"


def html(summary: Summary) -> str:
    """The report as one HTML page that refers to nothing outside itself."""
    import jinja2
    import yaml

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("npusim.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pictures = [
        {
            "heading": "Heat map",
            "alt": f"Heat map of held-out {summary.headline} for every combination; "
            "the table below has the same numbers.",
            "caption": f"Held-out {summary.headline}, mean over seeds. Grey: no finite mean. Where "
            "seeds diverged, the cell says how many. Colours are spread over the bulk of the "
            "cells; an outlier has the colour of the end.",
            "uri": plots.data_uri(plots.svg(plots.heat_map(summary))),
        },
        {
            "heading": "Training curves",
            "alt": "Training loss against step, one panel for each combination of the other axes.",
            "caption": "Training loss, mean over the seeds whose loss is finite there; the wide "
            "grey line is the baseline. A cross marks the last finite loss of a seed that "
            "diverged; at the upper edge: it never had one.",
            "uri": plots.data_uri(plots.svg(plots.curves(summary))),
        },
    ]
    head, lines = tables.pivot(summary)
    return environment.get_template("sweep.html.j2").render(
        name=summary.config["name"],
        headline=summary.headline,
        baseline=baseline_text(summary),
        complete=len(summary.records) == summary.planned,
        finished=len(summary.records),
        planned=summary.planned,
        pictures=pictures,
        pivot_head=head,
        pivot_lines=lines,
        pivot_lead=len(head) - len(summary.axes[tables.Layout.of(summary.axes).across]),
        caption=CAPTION,
        head=tables.header(summary),
        lines=tables.body(summary),
        lead=1 + len(summary.axes),
        facts=facts(summary),
        config=yaml.safe_dump(summary.config, sort_keys=False, default_flow_style=None),
    )
