"""What the studies share: results that survive an interruption, progress, and the report.

A study has the shape of a sweep (axes, seeds, a baseline), so that npusim's own tables, plots and
pages draw it. Each finished run is a line of ``results.jsonl``; the same command goes on where it
was interrupted.
"""

import argparse
import dataclasses
import datetime
import hashlib
import html
import importlib.metadata
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from npusim.reporting import pages, tables
from npusim.reporting.records import FILE_NAME, Record, finite, parse_lines
from npusim.reporting.summary import Summary, summarise

CURVE_POINTS = 40
console = Console()


@dataclasses.dataclass(frozen=True)
class Study:
    """What is run: recorded with each result, and held against results that are there already.

    Attributes:
        name: folder of the results.
        axes: axis name to its values; every combination is a trial.
        seeds: of initialisation and data.
        baseline: what the others are compared with.
        settings: everything else that a result depends on.
        left_out: combinations that are not run.
    """

    name: str
    axes: dict[str, list[Any]]
    seeds: list[int]
    baseline: dict[str, Any]
    settings: dict[str, Any]
    left_out: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """The trials, each with every seed."""
        every = (
            dict(zip(self.axes, v, strict=True)) for v in itertools.product(*self.axes.values())
        )
        return [axes for axes in every if axes not in self.left_out]

    @property
    def planned(self) -> int:
        """Number of runs, the baseline's included."""
        return (len(self.combinations) + 1) * len(self.seeds)

    @property
    def config(self) -> dict[str, Any]:
        """The study as data, with the keys of a sweep file."""
        return {
            "name": self.name,
            "task": self.name,
            "task_args": self.settings | ({"left_out": self.left_out} if self.left_out else {}),
            "seeds": self.seeds,
            "axes": self.axes,
            "baseline": self.baseline,
        }

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of the configuration."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]


class Results:
    """The results folder of a study."""

    def __init__(self, study: Study, parent: str | Path):
        self.study = study
        self.directory = Path(parent) / study.name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.directory / FILE_NAME
        data = self.path.read_bytes() if self.path.exists() else b""
        self.records, good = parse_lines(data, str(self.path))
        if good < len(data):
            # The process died while it wrote the last line: that run is done again.
            with self.path.open("r+b") as file:
                file.truncate(good)
        if self.records and self.records[0].config_hash != study.hash:
            raise SystemExit(
                f"{self.path} holds results of other settings. Pass the options it was started "
                "with, or another --results-dir."
            )

    def has(self, kind: str, axes: dict[str, Any], seed: int) -> bool:
        """Whether this run is finished."""
        key = (kind, json.dumps(axes, sort_keys=True), seed)
        return any(record.key == key for record in self.records)

    def add(
        self,
        kind: str,
        axes: dict[str, Any],
        seed: int,
        metrics: dict[str, Any],
        curve: dict[str, list[Any]],
        seconds: float,
        *,
        policy_hash: str,
        compilations: int,
    ) -> None:
        """Write a finished run; when this returns it is on disk."""
        record = Record(
            kind=kind,
            axes=axes,
            seed=seed,
            status="ok" if curve["loss"][-1] is not None else "diverged",
            metrics={name: finite(value) for name, value in metrics.items()},
            curve=curve,
            seconds=round(seconds, 3),
            program=compilations,
            compilations=compilations,
            policy_hash=policy_hash,
            target=None,
            config=self.study.config,
            config_hash=self.study.hash,
            versions=versions(),
            finished=datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
        )
        with self.path.open("ab") as file:
            file.write(record.to_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)


def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    names = ("npusim", "jax", "jaxlib", "flax", "optax", "numpy")
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "processors": str(os.cpu_count()),
    }


def thin(losses: Iterable[float], points: int = CURVE_POINTS) -> dict[str, list[Any]]:
    """The curve as means over at most ``points`` equal spans, with the last step of each.

    A mean is over the finite losses of its span, None where there is none.
    """
    values = np.asarray(list(losses), np.float64)
    spans = np.array_split(values, min(points, len(values)))
    ends = np.cumsum([len(span) for span in spans])
    kept = [span[np.isfinite(span)] for span in spans]
    means = [finite(span.mean()) if len(span) else None for span in kept]
    return {"step": [int(end) for end in ends], "loss": means}


def report(results: Results, verdict: Callable[[Summary], list[str]]) -> None:
    """Print the table and the verdict, and write the report's files."""
    if not results.records:
        console.print("nothing finished yet")
        return
    summary = summarise(results.records)
    summary = dataclasses.replace(summary, planned=results.study.planned)
    lines = verdict(summary)
    console.print(tables.rich_table(summary))
    for line in lines:
        console.print(line, highlight=False)
    paths = pages.render(summary, results.directory)
    page, text = results.directory / "report.html", results.directory / "summary.md"
    items = "".join(f"<p>{html.escape(line)}</p>\n" for line in lines)
    page.write_text(page.read_text().replace("<h2>", items + "<h2>", 1))
    text.write_text(text.read_text().replace("\n## ", "\n" + "\n\n".join(lines) + "\n\n## ", 1))
    console.print(f"report: {page} ({', '.join(p.name for p in paths)})")


def spread(summary: Summary, metric: str, **axes: Any) -> tuple[float, float] | None:
    """Mean and sample standard deviation of a combination, or None."""
    row = summary.find(**axes) if axes else summary.baseline
    stat = None if row is None else row.metrics[metric]
    if stat is None or stat.mean is None:
        return None
    return stat.mean, stat.spread or 0.0


def said(found: tuple[float, float] | None) -> str:
    """The same as text."""
    return "not finite" if found is None else f"{found[0]:.3f} ± {found[1]:.3f}"


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """An argument parser with the options that all studies have."""
    arguments = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = arguments.add_argument
    add("--seeds", type=int, nargs="+", default=defaults["seeds"], help="default: %(default)s")
    add("--steps", type=int, default=defaults["steps"], help="optimizer steps (%(default)s)")
    add("--results-dir", default="results", help="parent of the results' folder (%(default)s)")
    add("--report-only", action="store_true", help="draw the report of what is finished")
    return arguments


class Clock:
    """Says how far a study is and how long the rest may take."""

    def __init__(self, total: int, done: int):
        self.total, self.done, self.ran = total, done, 0
        self.began = time.perf_counter()

    def tick(self, what: str, count: int = 1) -> None:
        """A run has finished."""
        self.done, self.ran = self.done + count, self.ran + count
        each = (time.perf_counter() - self.began) / self.ran
        left = each * (self.total - self.done)
        console.print(
            f"[{self.done}/{self.total}] {what}, about {left / 60:.1f} min left",
            highlight=False,
            markup=False,
        )


def guarded(run: Callable[[], None], finish: Callable[[], None]) -> int:
    """Run the study; at Ctrl-C say how to go on. The report is drawn in any case."""
    code = 0
    try:
        run()
    except KeyboardInterrupt:
        console.print("interrupted: finished runs are kept; the same command goes on")
        code = 130
    finish()
    sys.stdout.flush()
    return code
