"""``npusim sweep`` and ``npusim report``."""

import functools
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from npusim._errors import NpusimError
from npusim.cli.output import check_output, fail
from npusim.reporting.pages import render
from npusim.reporting.records import Record, read_records
from npusim.reporting.summary import Summary, summarise
from npusim.reporting.tables import rich_table, to_csv, to_json
from npusim.sweep.watch import Watcher

SWEEP_EPILOG = """Examples:

npusim sweep configs/digits_castmodes.yaml

npusim sweep configs/digits_castmodes.yaml --check   (read the file and stop)

npusim sweep my.yaml --fresh --results-dir /tmp/results

npusim sweep my.yaml --format csv > table.csv"""

REPORT_EPILOG = """Examples:

npusim report results/digits-castmodes

npusim report results/digits-castmodes --format json"""

INTERRUPTED = 130

_FORMAT = typer.Option("--format", help="How to print the table: table, csv or json.")


def register(app: typer.Typer) -> None:
    """Add the commands ``sweep`` and ``report`` to ``app``."""
    app.command(epilog=SWEEP_EPILOG)(sweep)
    app.command(epilog=REPORT_EPILOG)(report)


def sweep(
    config: Annotated[Path, typer.Argument(help="The sweep file (YAML).")],
    results_dir: Annotated[
        Path, typer.Option(help="Parent of the folder with the sweep's results.")
    ] = Path("results"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over; old results are kept under another name.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read and check the file, say what would run, stop.")
    ] = False,
    output: Annotated[str, _FORMAT] = "table",
) -> None:
    """Train a model under every combination of format, mode and saturation.

    Finished trials are on disk at once; the same command after an interruption goes on with what is
    missing. The results folder holds results.jsonl, results.csv, summary.md and report.html.
    """
    check_output(output)
    # Tables go to stdout, all else to stderr, so that --format csv can be piped.
    console = Console(stderr=True, highlight=False)
    warnings.showwarning = functools.partial(_show_warning, console)
    # Late: this brings in JAX, which --help does not need.
    from npusim.sweep.config import load_config
    from npusim.sweep.plan import plan
    from npusim.sweep.runner import run_sweep
    from npusim.sweep.tasks import load_task

    folder = results_dir
    try:
        loaded = load_config(config)
        folder = results_dir / loaded.name
        if check:
            load_task(loaded)
            cells = plan(loaded)
            programs = len({cell.program for cell in cells})
            trials = len(cells) * len(loaded.seeds)
            console.print(f"{config} is fine: {trials} trials, {programs} programs to compile")
            return
        with Progress(console) as progress:
            records = run_sweep(loaded, results_dir, fresh=fresh, watcher=progress)
        _finish(console, records, folder, output)
    except NpusimError as error:
        fail(error)
    except KeyboardInterrupt:
        _interrupted(console, folder, fresh)


def report(
    results: Annotated[Path, typer.Argument(help="A sweep's results folder.")],
    output: Annotated[str, _FORMAT] = "table",
) -> None:
    """Draw table and report again from results.jsonl alone; nothing is trained."""
    check_output(output)
    console = Console(stderr=True, highlight=False)
    try:
        records = read_records(results)
        _finish(console, records, results if results.is_dir() else results.parent, output)
    except NpusimError as error:
        fail(error)


def _show_warning(console: Console, text: Warning | str, *_: Any) -> None:
    """Print a warning (a cast that falls back to another mode, say) as one line."""
    console.print(f"warning: {escape(' '.join(str(text).split()))}", soft_wrap=True)


def _finish(console: Console, records: list[Record], folder: Path, output: str) -> None:
    summary = summarise(records)
    paths = render(summary, folder)
    _print_table(summary, output)
    console.print(f"report: {escape(str(paths[-1]))}", soft_wrap=True)


def _print_table(summary: Summary, output: str) -> None:
    if output == "csv":
        sys.stdout.write(to_csv(summary))
    elif output == "json":
        sys.stdout.write(to_json(summary) + "\n")
    else:
        out = Console(highlight=False)
        table = rich_table(summary)
        # A pipe has no width; a table cut off at 80 columns would lose cells.
        width = None if out.is_terminal else Console(width=1000).measure(table).maximum
        Console(highlight=False, width=width).print(table)


def _interrupted(console: Console, folder: Path, fresh: bool) -> None:
    try:
        records = read_records(folder)
        render(summarise(records), folder)
        kept = f"{len(records)} finished trials are kept; a partial report is in {folder}"
    except NpusimError:
        kept = "no trial had finished"
    again = "the same command without --fresh" if fresh else "the same command"
    console.print(f"Stopped: {escape(kept)}. To go on, run {again}.", soft_wrap=True)
    raise typer.Exit(INTERRUPTED)


class Progress(Watcher):
    """A bar with the time left on a terminal, a line now and then elsewhere."""

    LINES = 10

    def __init__(self, console: Console):
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.console = console
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("compiling", total=None)
        self.total = self.done = self.found = self.said = 0
        self.began: float | None = None

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def start(self, total: int, done: int, programs: int) -> None:
        """Say what is to be done."""
        self.total, self.done, self.found = total, done, done
        self.bar.update(self.task, total=total, completed=done)
        if done == total:
            self.note(f"all {total} trials have finished before: nothing to run")
        else:
            going = f"going on after {done} of {total}" if done else f"{total}"
            self.note(f"{going} trials, {programs} program{'s' * (programs != 1)} to compile")

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(escape(text), soft_wrap=True)

    def compiled(self, seconds: float) -> None:
        """Start the clock after the compilation, so that the time left is that of trials."""
        self.note(f"compiled in {seconds:.1f} s")

    def advance(self, trials: int, what: str) -> None:
        """Move the bar, or print a line each tenth of the way."""
        now = time.monotonic()
        self.began = self.began or now
        self.done += trials
        self.bar.update(self.task, advance=trials, description=what)
        part = self.LINES * self.done // self.total
        if not self.console.is_terminal and (part > self.said or self.done == self.total):
            self.said = part
            run = self.done - self.found
            left = (now - self.began) / run * (self.total - self.done)
            self.note(f"{self.done} of {self.total} trials, about {left:.0f} s left ({what})")
