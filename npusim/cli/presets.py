"""``npusim presets``: the vendors' mixed-precision settings, as rows, as YAML and on a model."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli.output import (
    OutputOption,
    check_output,
    console,
    note,
    paragraphs,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from npusim.inject import Policy, Preset
    from npusim.modes import Target

EPILOG = """Examples:

npusim presets

npusim presets --soc A2A3 --format csv

npusim presets show allow_mix_precision > policy.yaml

npusim presets apply mindspore_o2 digits_cnn"""

SHOW_EPILOG = """Examples:

npusim presets show mindspore_o2

npusim presets show mixed_hif8 --soc 950PR

npusim presets show torch_npu_autocast_bf16 --format json"""

APPLY_EPILOG = """Examples:

npusim presets apply allow_mix_precision digits_mlp

npusim presets apply torch_npu_autocast_bf16 mypackage.tasks:make --all --format csv"""

SocChoice = Annotated[str | None, typer.Option(help="Chip: 950PR or A2A3.", show_default="any")]
PathOption = Annotated[
    str,
    typer.Option(help="Regular expression for the modules it speaks of; '.*' for plain functions."),
]
_WHOLE = ("name", "chips", "available")


def register(app: typer.Typer) -> None:
    """Add the command ``presets`` and its two subcommands to ``app``."""
    group = typer.Typer(
        help=paragraphs(presets),
        epilog=EPILOG,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback()(presets)
    group.command(epilog=SHOW_EPILOG, help=paragraphs(show))(show)
    group.command(epilog=APPLY_EPILOG, help=paragraphs(apply))(apply)
    app.add_typer(group, name="presets")


def presets(ctx: typer.Context, soc: SocChoice = None, output: OutputOption = "table") -> None:
    """List the mixed-precision settings of MindSpore, torch_npu, CANN and MindSpeed.

    Each is a row with its source; what cannot be run yet says why. `show` prints one as a policy in
    YAML, `apply` says what it does to every operation of a model.
    """
    if ctx.invoked_subcommand is not None:
        return
    check_output(output)
    from npusim.inject import presets as rows
    from npusim.modes import chip

    asked = None if soc is None else chip(soc)
    found = [row for row in rows() if asked is None or asked in row.chips]
    listed = [_row(row, output) for row in found]
    columns = ("name", "what", "chips", "available", "aliases", "grade", "source")
    if output == "table":
        columns = ("name", "what", "chips", "available")
    print_rows(listed, columns, output, whole=_WHOLE, styles={"name": "bold"})
    if output == "table":
        missing = sum(1 for row in found if not row.available)
        console().print(
            f"{len(found)} presets, {missing} not available yet. "
            "--format csv has aliases, grade and source."
        )


def show(
    name: Annotated[str, typer.Argument(help="A preset or one of its other names.")],
    soc: SocChoice = None,
    path: PathOption = ".",
    output: Annotated[str, typer.Option("--format", help="How to print: yaml or json.")] = "yaml",
) -> None:
    """Print a preset as a policy in YAML; `Policy.from_yaml` reads it back to the same policy."""
    import yaml

    from npusim._errors import InputError, message
    from npusim.inject import preset
    from npusim.inject.vendors import find_preset

    if output not in ("yaml", "json"):
        raise InputError(message(f"--format {output}", "yaml, json", "Pass one of these."))
    row = find_preset(name)
    plain = preset(name, _target(soc), path=path).to_dict()
    if output == "json":
        print_json(plain)
        return
    head = [
        f"{row.name}: {row.what}",
        f"grade: {row.grade}",
        *(f"source: {s}" for s in row.sources),
    ]
    typer.echo("\n".join(f"# {line}" for line in head))
    typer.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100), nl=False)


def apply(
    name: Annotated[str, typer.Argument(help="A preset or one of its other names.")],
    task: Annotated[
        str, typer.Argument(help="A sweep task: digits_mlp, digits_cnn or package.module:function.")
    ],
    soc: SocChoice = None,
    path: PathOption = ".",
    everything: Annotated[
        bool, typer.Option("--all", help="Operations that no rule matches as well.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Say what a preset does to every operation of a training step: its formats, and why.

    Found from shapes alone; nothing is trained.
    """
    check_output(output)
    from npusim.inject import preset

    found = _report(preset(name, _target(soc), path=path), task)
    rows = [row for row in found.rows() if everything or row["rule"] != ""]
    columns = ("path", "op", "direction", "rule", "formats", "why")
    if output != "table":
        columns = tuple(found.rows()[0]) if found.sites else columns
    print_rows(rows, columns, output, whole=("op", "direction"))
    for number, rule in found.unused:
        note(f"rule {number}, {rule}, matched no operation")
    if output == "table":
        console().print(str(found).splitlines()[0])


def _target(soc: str | None) -> "Target | None":
    """The laboratory on a chip: the casts of a preset, whichever entry point would make them."""
    from npusim.modes import Target

    return None if soc is None else Target(soc, "numerics")


def _row(row: "Preset", output: str) -> dict[str, object]:
    line: dict[str, object] = {
        **dataclasses.asdict(row),
        "chips": " ".join(soc.value for soc in row.chips),
        "aliases": " ".join(row.aliases),
        "source": "; ".join(row.sources),
        "available": "yes" if row.available else "no: " + row.missing,
    }
    if output == "table" and not row.available:
        line |= {"available": "no", "what": f"{row.what} ({row.missing})"}
    return line


def _report(policy: "Policy", task: str) -> Any:
    """The report of one training step of a sweep task, from shapes."""
    import jax

    from npusim.inject import report
    from npusim.sweep.config import SweepConfig
    from npusim.sweep.tasks import load_task

    config = SweepConfig("presets", task, (0,), {}, {}, None, {}, "npusim presets apply")
    made = load_task(config)
    key = jax.random.key(0)
    params = jax.eval_shape(made.init, key)
    batch = next(iter(made.batches("train", 0)))
    return report(jax.value_and_grad(made.loss), policy, params, batch, key)
