"""The results folder of a sweep: finished trials are safe, one process writes at a time."""

import fcntl
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from npusim._errors import ConfigError, message
from npusim.reporting.records import FILE_NAME, Record, parse_lines
from npusim.sweep.config import SweepConfig


class ResultStore:
    """Finished trials of one sweep, appended to ``results.jsonl`` as they finish.

    A context manager: it holds a lock on the folder that the system drops with the process,
    however that ends.

    Attributes:
        directory: the sweep's folder.
        records: the finished trials.
        notices: what a user should know about the state the folder was found in.
    """

    def __init__(self, directory: str | Path, config: SweepConfig, *, fresh: bool = False):
        """Open the folder, creating it if needed.

        Args:
            directory: the sweep's folder.
            config: the sweep; results of another one are refused.
            fresh: put results that are there aside under another name and start over.

        Raises:
            ConfigError: the folder holds results of another configuration, is damaged, or another
                process is at work in it.
        """
        self.directory = Path(directory)
        self.config = config
        self.records: list[Record] = []
        self.notices: list[str] = []
        self._make_folder()
        self._lock = self._take_lock()
        try:
            path = self.directory / FILE_NAME
            if fresh and path.exists():
                backup = _free_name(path)
                os.replace(path, backup)
                self.notices.append(f"kept the old results as {backup}")
            self._load(path)
            self._file: io.BufferedWriter = path.open("ab")
        except BaseException:
            self._lock.close()
            raise

    def _make_folder(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                message(
                    f"{self.directory}: {error.strerror}",
                    "a folder that can be written to",
                    "Pass another one with --results-dir.",
                )
            ) from error

    def _take_lock(self) -> io.TextIOWrapper:
        lock = (self.directory / ".lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ConfigError(
                message(
                    f"{self.directory} is in use by another sweep",
                    "one process at a time",
                    "Wait for it, or pass another folder with --results-dir.",
                )
            ) from error
        return lock

    def _load(self, path: Path) -> None:
        data = path.read_bytes() if path.exists() else b""
        self.records, good = parse_lines(data, str(path))
        if good < len(data):
            with path.open("r+b") as file:
                file.truncate(good)
                os.fsync(file.fileno())
            self.notices.append(
                f"dropped a line of {path} that had been cut short; its trial runs again"
            )
        if self.records and self.records[0].config_hash != self.config.hash:
            changes = differences(self.records[0].config, self.config.to_dict())
            raise ConfigError(
                message(
                    f"{self.config.source}, whose results in {self.directory} come from another "
                    f"configuration ({'; '.join(changes)})",
                    "the configuration those results come from",
                    "Undo the change, or give the sweep another name, or start over with --fresh "
                    "(the old results are kept under another name).",
                )
            )

    def done(self) -> set[tuple[str, str, int]]:
        """Keys of the finished trials."""
        return {record.key for record in self.records}

    def append(self, records: Iterable[Record]) -> None:
        """Add finished trials; when this returns they are on disk."""
        for record in records:
            self._file.write(record.to_json().encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self.records.append(record)

    def close(self) -> None:
        """Close the file and let others work in the folder."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> "ResultStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_name(path: Path) -> Path:
    number = 1
    while (backup := path.with_suffix(f".{number}.bak")).exists():
        number += 1
    return backup


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Return one line for each key that differs between two configurations.

    Example:
        >>> differences({"seeds": [0], "name": "a"}, {"seeds": [0, 1], "name": "a"})
        ['seeds: [0] -> [0, 1]']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        found = []
        for key in keys:
            dotted = f"{path}.{key}" if path else str(key)
            if key not in old:
                found.append(f"{dotted}: added as {json.dumps(new[key])}")
            elif key not in new:
                found.append(f"{dotted}: removed, was {json.dumps(old[key])}")
            else:
                found += differences(old[key], new[key], dotted)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = zip(old, new, strict=True)
        return [d for i, (a, b) in enumerate(pairs) for d in differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [f"{path}: {json.dumps(old)} -> {json.dumps(new)}"]
