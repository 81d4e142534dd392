"""Running the command line in this process."""

import json

from typer.testing import CliRunner, Result

from npusim.cli.app import app


def run(*words: str, code: int = 0, columns: int | None = None) -> Result:
    """Run a command; its exit code must be ``code``."""
    env = {"COLUMNS": None if columns is None else str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, list(words), env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def out(*words: str, **options) -> str:
    return run(*words, **options).stdout


def data(*words: str, **options):
    return json.loads(out(*words, "--format", "json", **options))
