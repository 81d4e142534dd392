"""``npusim lint``: a policy checked against its chip before anything runs."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim._errors import CastFallbackWarning
from npusim.cli.output import (
    OutputOption,
    check_output,
    console,
    note,
    paragraphs,
    print_rows,
    text,
)

if TYPE_CHECKING:
    from npusim.inject import CastSpec, Policy, Rule

EPILOG = """Examples:

npusim lint policy.yaml

npusim lint policy.yaml --format json"""

_ROLES = ("input", "weight", "output", "grad")


def register(app: typer.Typer) -> None:
    """Add the command ``lint`` to ``app``."""
    app.command(epilog=EPILOG, help=paragraphs(lint))(lint)


def lint(
    path: Annotated[Path, typer.Argument(help="A policy in YAML: rules and, optionally, target.")],
    output: OutputOption = "table",
) -> None:
    """Check a policy: its keys, the order of its rules, and every cast against its target.

    Each cast is listed with what really runs on the target, its grade and source. Exit code 2: the
    policy is wrong, or the target does not have a cast.
    """
    check_output(output)
    from npusim.inject import Policy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CastFallbackWarning)
        policy = Policy.from_yaml(path)
        rows = list(_rows(policy))
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        note(line)
    keys = ("keys",) if any(row["keys"] for row in rows) else ()
    columns = ("rule", "path", "ops", *keys, "direction", "role", "cast", "runs", "grade", "source")
    print_rows(rows, columns, output, whole=("rule", "role"))
    if output == "table":
        target = "the laboratory" if policy.target is None else str(policy.target)
        console().print(f"{path}: {len(policy.rules)} rules, every cast legal on {target}.")


def _rows(policy: "Policy") -> "list[dict[str, Any]]":
    rows: list[dict[str, Any]] = []
    for number, rule in enumerate(policy.rules):
        ops = rule.ops if isinstance(rule.ops, str) else " ".join(rule.ops)
        base = {
            "rule": number + 1,
            "path": rule.path,
            "ops": ops,
            "keys": _keys(rule),
            "direction": rule.direction,
        }
        casts = [(role, spec) for role in _ROLES if (spec := getattr(rule, role)) is not None]
        if not casts:
            rows.append({**base, "cast": "none: stays as it is"})
        rows += [{**base, "role": role, **_cast(spec, policy)} for role, spec in casts]
    return rows


def _keys(rule: "Rule") -> str:
    """What else the rule asks of an operation, and what its casts depend on."""
    from npusim.inject.keys import KEYS

    plain = rule.to_dict()
    given = {key: plain.get(key) for key in (*KEYS, "follow")}
    return ", ".join(f"{key}={text(value)}" for key, value in given.items() if value)


def _cast(spec: "CastSpec", policy: "Policy") -> dict[str, Any]:
    """The steps from float32, the carrier, to the spec's format."""
    from npusim.casting import resolve_cast
    from npusim.dtypes import DT_FP32, DataType

    target, here = policy.cast_target, DT_FP32
    runs, grades, sources = [], {}, {}
    chain = [(spec.via, None, None)] if spec.via is not None else []
    for there, mode, satmode in (*chain, (spec.dtype, spec.mode, spec.satmode)):
        if there is here or not isinstance(there, DataType):
            continue
        resolved = resolve_cast(here, there, mode, satmode, target)
        runs += [str(step) for step in resolved.steps]
        grades[resolved.grade] = sources[resolved.source] = None
        here = there
    return {
        "cast": str(spec).removeprefix("CastSpec(").removesuffix(")"),
        "runs": "; ".join(runs) or "no cast",
        "grade": ", ".join(grades),
        "source": "; ".join(sources),
    }
