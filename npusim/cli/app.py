"""The ``npusim`` command: its commands, and one clear line for whatever goes wrong."""

import importlib
import importlib.util
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from npusim._errors import NpusimError
from npusim.cli.output import fail

# In the order of the help page. A module of the command line brings `register(app)`.
COMMANDS = (
    "cast",
    "formats",
    "support",
    "provenance",
    "vectors",
    "promote",
    "layout",
    "presets",
    "sweep",
    "lint",
)


class Commands(TyperGroup):
    """Ends with exit code 2 and one line on stderr wherever npusim raises an error of its own."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except NpusimError as error:
            fail(error)


app = typer.Typer(
    name="npusim",
    cls=Commands,
    help="Bit-exact simulation of Huawei Ascend NPU numerics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command has its own --help with examples. Exit code 2: bad input.",
)


def _version(asked: bool) -> None:
    if asked:
        import jax

        import npusim

        typer.echo(
            f"npusim {npusim.__version__} (jax {jax.__version__}, Python {sys.version.split()[0]})"
        )
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print versions and stop."
        ),
    ] = False,
) -> None:
    del version


for _name in COMMANDS:
    importlib.import_module(f"npusim.cli.{_name}").register(app)


def main() -> None:
    """Run the command line: the console script ``npusim``."""
    app()


if __name__ == "__main__":
    main()
