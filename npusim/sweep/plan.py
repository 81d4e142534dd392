"""From a sweep file to the list of what has to run, and in which compiled program."""

import dataclasses
import json
from typing import Any

from npusim._errors import ConfigError, NpusimError, message
from npusim.casting import FormatParams
from npusim.dtypes import dtype
from npusim.inject import Policy
from npusim.sweep.config import Point, SweepConfig, placeholders

CAST_FIELDS = ("input", "weight", "output", "grad")
PLAIN = "plain"
# What Policy.from_dict is told to call its data, so that its messages can be placed in the file.
_HERE = "sweep"

Slot = tuple[int, str]
"""Where in a policy a cast stands: rule number and role."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of the axes: a trial for each seed.

    Attributes:
        kind: ``trial`` or ``baseline``.
        axes: the value of each axis; None where it does not matter.
        policy: with these values; None where nothing is cast.
        policy_hash: of that policy.
        program: cells with the same text run in the same compiled program.
        slots: the casts whose format, mode and saturation that program takes as arguments.
        formats: what this cell passes for them.
    """

    kind: str
    axes: Point
    policy: Policy | None
    policy_hash: str
    program: str
    slots: tuple[Slot, ...]
    formats: tuple[Any, ...]

    def traced_policy(self, formats: tuple[Any, ...]) -> Policy | None:
        """The policy with ``formats`` (traced, possibly) in the place of its own."""
        if self.policy is None or not self.slots:
            return self.policy
        rules = list(self.policy.rules)
        for (number, role), params in zip(self.slots, formats, strict=True):
            spec = getattr(rules[number], role)
            traced = dataclasses.replace(spec, dtype=params, mode=None, satmode=None)
            rules[number] = dataclasses.replace(rules[number], **{role: traced})
        return Policy(rules, target=self.policy.target)


def plan(config: SweepConfig) -> list[Cell]:
    """Return every cell of the sweep, the baseline first.

    Raises:
        ConfigError: a policy is refused: a value no rule accepts, or a cast the target lacks.
    """
    cells = [] if config.baseline is None else [_baseline(config)]
    refused: list[tuple[Point, NpusimError]] = []
    points = config.points()
    for point in points:
        try:
            cells.append(_cell("trial", point, config.resolve(point)))
        except NpusimError as error:
            refused.append((point, error))
    if refused:
        point, error = refused[0]
        count = f" Refused are {len(refused)} of {len(points)} combinations." * (len(points) > 1)
        raise ConfigError(_placed(config, f" at {describe(point)}", error) + count) from error
    return cells


def _placed(config: SweepConfig, where: str, error: NpusimError) -> str:
    """The text of an error about the policy, with the file and the key as the file has it."""
    text = str(error).removeprefix("Given: ").replace(f"{_HERE}, key '", "key 'policy.", 1)
    return f"Given: {config.source}{where}, {text}"


def describe(point: Point) -> str:
    """Return a combination in one line.

    Example:
        >>> describe({"dtype": "int8", "mode": "ODD"})
        'dtype=int8, mode=ODD'
    """
    return ", ".join(f"{name}={value}" for name, value in point.items() if value is not None)


def _baseline(config: SweepConfig) -> Cell:
    given = config.baseline or {}
    resolved = _without_identities(config.resolve(given))
    left = [name for name, _ in placeholders(resolved)]
    if left:
        raise ConfigError(
            message(
                f"{config.source}, key 'baseline': no value for {', '.join(dict.fromkeys(left))}",
                "a value for every axis, or {dtype: fp32}, which leaves no cast",
                "Add it.",
            )
        )
    axes = {name: given.get(name) for name in config.axes}
    try:
        return _cell("baseline", axes, resolved)
    except NpusimError as error:
        raise ConfigError(_placed(config, " at the baseline", error)) from error


def _without_identities(policy: dict[str, Any]) -> dict[str, Any]:
    """Drop the casts to the carrier's own format, which are none."""

    def is_identity(value: Any) -> bool:
        name = value.get("dtype") if isinstance(value, dict) else None
        return isinstance(name, str) and not name.startswith("$") and dtype(name).short == "fp32"

    rules = [{k: v for k, v in rule.items() if not is_identity(v)} for rule in policy["rules"]]
    return policy | {"rules": rules}


def _cell(kind: str, axes: Point, resolved: dict[str, Any]) -> Cell:
    policy = Policy.from_dict(resolved, source=_HERE)
    resolved = _without_identities(resolved)
    rules = resolved["rules"]
    slots = [(i, f) for i, rule in enumerate(rules) for f in CAST_FIELDS if rule.get(f)]
    if not slots and not any(rule.get("accumulate") for rule in rules):
        return Cell(kind, axes, None, policy.hash(), PLAIN, (), ())
    formats: list[Any] = []
    static = [dict(rule) for rule in rules]
    # Under a chip's rules a cast may be a chain or fall back, which FormatParams cannot say.
    traced: list[Slot] = []
    for number, role in slots if resolved.get("target") is None else []:
        cast = static[number][role]
        try:
            params = FormatParams.of(cast["dtype"], cast.get("mode"), cast.get("satmode"))
        except NpusimError:
            continue  # a format that has no traced form (HYBRID, say) stays part of the program
        formats.append(params)
        traced.append((number, role))
        own = ("dtype", "mode", "satmode")
        static[number][role] = {k: v for k, v in cast.items() if k not in own} | {"traced": True}
    program = json.dumps([resolved.get("target"), static], sort_keys=True, default=str)
    policy = Policy.from_dict(resolved, source=_HERE)
    return Cell(kind, axes, policy, policy.hash(), program, tuple(traced), tuple(formats))
