"""One finished trial as a line of JSON, and the file of such lines."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from npusim._errors import ConfigError, message

FILE_NAME = "results.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A finished trial, complete in itself: a line can be read without the rest of the file.

    Attributes:
        kind: ``trial``, or ``baseline`` for the run the others are compared with.
        axes: the value of each axis; None where it does not matter.
        seed: what initialisation and batches were drawn from.
        status: ``ok``, or ``diverged`` if training ended without a finite loss.
        metrics: held-out metrics by name; None where the value is not finite.
        curve: training loss as mean over the finite losses in equal spans of steps (None where
            there is none), and each span's last step.
        seconds: the trial's share of its group's run time, compilation excluded.
        program: which compiled program it ran in, counted from 1.
        compilations: programs that had been compiled until then in that process.
        policy_hash: of the policy with this trial's values.
        target: the chip and entry point, None for the laboratory.
        config: the sweep file as data.
        config_hash: of that.
        versions: of npusim and what it runs on.
        finished: UTC time.
    """

    kind: str
    axes: dict[str, Any]
    seed: int
    status: str
    metrics: dict[str, float | None]
    curve: dict[str, list[Any]]
    seconds: float
    program: int
    compilations: int
    policy_hash: str
    target: str | None
    config: dict[str, Any]
    config_hash: str
    versions: dict[str, str]
    finished: str

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two records the same trial."""
        return self.kind, json.dumps(self.axes, sort_keys=True), self.seed

    def to_json(self) -> str:
        """The line, without its newline."""
        return json.dumps(dataclasses.asdict(self), allow_nan=False)


FIELDS = {field.name for field in dataclasses.fields(Record)}


def finite(value: Any) -> float | None:
    """Return ``value`` as a float, or None for NaN and infinities, which JSON does not have.

    Example:
        >>> finite(1.5), finite(float("nan"))
        (1.5, None)
    """
    number = float(value)
    return number if math.isfinite(number) else None


def parse_lines(data: bytes, source: str) -> tuple[list[Record], int]:
    """Return the records in ``data`` and how many of its bytes hold them.

    A last line that was cut short (the process died while writing it) is not a record: the number
    of bytes then is smaller than ``len(data)``.

    Raises:
        ConfigError: any other line is no record.
    """
    records: list[Record] = []
    good = 0
    lines = data.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict) or set(fields) != FIELDS:
                raise ValueError("not the fields of a trial")
            if not line.endswith(b"\n"):
                raise ValueError("no newline")
        except ValueError as error:
            if last and not line.endswith(b"\n"):
                break
            raise ConfigError(
                message(
                    f"{source}, line {number}: {error}",
                    "one finished trial a line, as `npusim sweep` writes it",
                    "Remove the line, or start over with `npusim sweep --fresh`.",
                )
            ) from error
        records.append(Record(**fields))
        good += len(line)
    return records, good


def read_records(directory: str | Path) -> list[Record]:
    """Return the finished trials of the sweep whose results lie in ``directory``.

    Raises:
        ConfigError: there are none, or the file is damaged other than at its end.
    """
    path = Path(directory)
    path = path / FILE_NAME if path.is_dir() else path
    remedy = "Pass the folder that `npusim sweep` named at its end."
    allowed = f"a folder with {FILE_NAME}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(message(f"{path}: {error.strerror}", allowed, remedy)) from error
    records, _ = parse_lines(data, str(path))
    if not records:
        raise ConfigError(message(f"{path}: no finished trial", allowed, remedy))
    hashes = {record.config_hash for record in records}
    if len(hashes) > 1:
        raise ConfigError(
            message(
                f"{path}: trials of {len(hashes)} different configurations",
                "trials of one sweep",
                "Split the file.",
            )
        )
    return records
