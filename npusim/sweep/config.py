"""The sweep file: what it may say, and the errors that say where it says something else."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from npusim._errors import ConfigError, NpusimError, message, nearest
from npusim.dtypes import dtype
from npusim.modes import Target, cast_mode, saturation_mode
from npusim.sweep._yaml import read_yaml

KEYS = ("name", "task", "seeds", "policy", "axes", "baseline", "task_args")
REQUIRED = ("name", "task", "seeds", "policy", "axes")
# Columns of the results that an axis must not shadow.
RESERVED = ("seed", "kind", "status", "seconds", "metrics", "curve")
_PLACEHOLDER = re.compile(r"\$([A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

Point = dict[str, Any]
"""One value per axis; None for an axis that does not matter (the baseline's)."""


def _short_dtype(value: Any) -> str:
    return dtype(value).short


# What a placeholder's key says about the values its axis may have.
_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "dtype": _short_dtype,
    "via": _short_dtype,
    "mode": lambda value: cast_mode(value).short,
    "satmode": lambda value: saturation_mode(value).value,
}


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """A sweep file, checked, with names in one spelling.

    Attributes:
        name: the folder below the results directory.
        task: a registered task or an import path ``package.module:function``.
        seeds: one trial for each, in every combination.
        policy: target and rules as written, placeholders included.
        axes: placeholder name to its values.
        baseline: axis name to the value the baseline trials have; None for no baseline.
        task_args: keyword arguments of the task.
        source: the file it came from, for messages; no part of the identity.
    """

    name: str
    task: str
    seeds: tuple[int, ...]
    policy: dict[str, Any]
    axes: dict[str, tuple[Any, ...]]
    baseline: dict[str, Any] | None
    task_args: dict[str, Any]
    source: str = dataclasses.field(default="<config>", compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain lists and dicts, ready for JSON."""
        fields = {k: getattr(self, k) for k in KEYS}
        return json.loads(json.dumps(fields))

    @property
    def hash(self) -> str:
        """Twelve hex digits that change with every setting, but not with layout or comments."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def points(self) -> list[Point]:
        """Every combination of the axes, the last axis varying fastest."""
        return [
            dict(zip(self.axes, values, strict=True))
            for values in itertools.product(*self.axes.values())
        ]

    def resolve(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The policy with every placeholder replaced by its value at ``point``."""
        return _substitute(self.policy, point)


def _substitute(node: Any, point: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        return {key: _substitute(value, point) for key, value in node.items()}
    if isinstance(node, list):
        return [_substitute(value, point) for value in node]
    # The whole string only: "head$" is a regular expression, not a placeholder.
    if isinstance(node, str) and (match := _PLACEHOLDER.fullmatch(node)):
        return point.get(match[1], node)
    return node


def placeholders(node: Any, path: str = "policy") -> list[tuple[str, str]]:
    """Return (axis name, dotted path of the place) of every placeholder below ``node``.

    Example:
        >>> placeholders({"rules": [{"input": {"dtype": "$fmt"}}]})
        [('fmt', 'policy.rules[0].input.dtype')]
    """
    if isinstance(node, dict):
        return [p for key, value in node.items() for p in placeholders(value, f"{path}.{key}")]
    if isinstance(node, list):
        return [p for i, value in enumerate(node) for p in placeholders(value, f"{path}[{i}]")]
    match = _PLACEHOLDER.fullmatch(node) if isinstance(node, str) else None
    return [(match[1], path)] if match else []


class _At:
    """The place in a file that an error is about."""

    def __init__(self, source: str):
        self.source = source

    def fail(self, key: str, given: str, allowed: str, remedy: str) -> ConfigError:
        where = f"{self.source}, key '{key}': " if key else f"{self.source}: "
        return ConfigError(message(where + given, allowed, remedy))

    def wrap(self, key: str, error: NpusimError) -> ConfigError:
        text = str(error).removeprefix("Given: ")
        return ConfigError(f"Given: {self.source}, key '{key}': {text}")

    def unknown(self, key: str, name: Any, names: Iterable[str], what: str = "key") -> ConfigError:
        names = list(names)
        hint = nearest(str(name), names)
        return self.fail(
            key,
            f"unknown {what} {name!r}",
            ", ".join(names) or "none",
            f"{hint}Correct or remove it.",
        )

    def mapping(self, key: str, value: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(key, describe(value), "a mapping (key: value)", "Indent its keys.")
        names = None if names is None else list(names)
        for name in value:
            dotted = f"{key}.{name}" if key else str(name)
            if not isinstance(name, str):
                raise self.fail(dotted, f"the key {name!r}", "a word as key", "Quote it.")
            if names is not None and name not in names:
                raise self.unknown(dotted, name, names)
        return value


def describe(value: Any) -> str:
    """Return what a YAML value is, as a user would say it."""
    names = {dict: "a mapping", list: "a list", bool: "a truth value", type(None): "nothing"}
    kind = names.get(type(value))
    return kind if kind else repr(value)


def load_config(path: str | Path) -> SweepConfig:
    """Read and check the sweep file at ``path``.

    Every combination of the axes is turned into a policy here, so that a cast the target does not
    have is refused before any training.

    Raises:
        ConfigError: with the file, the key, what is allowed and the nearest valid name.
    """
    from npusim.sweep.plan import plan

    config = parse_config(read_yaml(Path(path)), str(path))
    plan(config)
    return config


def parse_config(raw: Any, source: str = "<config>") -> SweepConfig:
    """Check what a sweep file says; ``source`` names it in errors.

    Raises:
        ConfigError: with the file, the key, what is allowed and the nearest valid name.
    """
    at = _At(source)
    if not isinstance(raw, dict):
        raise at.fail("", describe(raw), "a mapping with the keys " + ", ".join(KEYS), "Write it.")
    at.mapping("", raw, KEYS)
    for key in REQUIRED:
        if key not in raw:
            raise at.fail(key, "the key is missing", ", ".join(REQUIRED), "Add it.")
    name, task = raw["name"], raw["task"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise at.fail(
            "name", describe(name), "letters, digits, '.', '_', '-'", "It names a folder: correct."
        )
    if not isinstance(task, str) or not task:
        raise at.fail(
            "task", describe(task), "a task's name or 'package.module:function'", "Name a task."
        )
    policy = _policy(at, raw["policy"])
    used = placeholders(policy)
    axes = _axes(at, raw["axes"], used)
    config = SweepConfig(
        name=name,
        task=task,
        seeds=_seeds(at, raw["seeds"]),
        policy=policy,
        axes=axes,
        baseline=_baseline(at, raw.get("baseline"), axes, used),
        task_args=at.mapping("task_args", raw.get("task_args") or {}),
        source=source,
    )
    _json_only(at, "task_args", config.task_args)
    return config


def _seeds(at: _At, raw: Any) -> tuple[int, ...]:
    allowed = "a list of different whole numbers from 0, e.g. [0, 1, 2]"
    if not isinstance(raw, list) or not raw:
        raise at.fail("seeds", describe(raw) if raw != [] else "[]", allowed, "Correct the list.")
    for i, seed in enumerate(raw):
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            raise at.fail(f"seeds[{i}]", describe(seed), allowed, "Correct it.")
        if seed in raw[:i]:
            raise at.fail(f"seeds[{i}]", f"{seed} a second time", allowed, "Remove it.")
    return tuple(raw)


def _policy(at: _At, raw: Any) -> dict[str, Any]:
    from npusim.inject import CastSpec, Rule

    policy = at.mapping("policy", raw, ("target", "rules"))
    target = policy.get("target")
    if target is not None:
        names = [f.name for f in dataclasses.fields(Target)]
        target = at.mapping("policy.target", target, names)
        try:
            Target(**target)
        except NpusimError as error:
            raise at.wrap("policy.target", error) from error
    rules = policy.get("rules")
    if not isinstance(rules, list) or not rules:
        raise at.fail("policy.rules", describe(rules), "a list of rules", "Write at least one.")
    rule_keys = [f.name for f in dataclasses.fields(Rule) if not f.name.startswith("_")]
    cast_keys = [f.name for f in dataclasses.fields(CastSpec) if not f.name.startswith("_")]
    for i, rule in enumerate(rules):
        place = f"policy.rules[{i}]"
        at.mapping(place, rule, rule_keys)
        for key, value in rule.items():
            if isinstance(value, dict):
                at.mapping(f"{place}.{key}", value, cast_keys)
                if "dtype" not in value:
                    raise at.fail(
                        f"{place}.{key}.dtype", "the key is missing", "a data type", "Add it."
                    )
    _json_only(at, "policy", rules)
    return {"target": target, "rules": rules}


def _json_only(at: _At, key: str, node: Any) -> None:
    try:
        json.dumps(node)
    except (TypeError, ValueError) as error:
        raise at.fail(
            key, str(error), "numbers, words, truth values, lists, mappings", "Quote the value."
        ) from error


def _axes(at: _At, raw: Any, used: list[tuple[str, str]]) -> dict[str, tuple[Any, ...]]:
    raw = at.mapping("axes", raw)
    if not raw:
        raise at.fail("axes", "no axis", "a mapping from name to values", "Write at least one.")
    named = {name for name, _ in used}
    for name, path in used:
        if name not in raw:
            raise at.unknown(path, f"${name}", [f"${axis}" for axis in raw], "placeholder")
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in raw.items():
        key = f"axes.{name}"
        if name in RESERVED:
            raise at.fail(key, f"the name {name!r}", "another name", "It is a column already.")
        if name not in named:
            raise at.fail(
                key,
                f"an axis that no placeholder uses (used: {_dollars(named)})",
                f"axes that a rule names as ${name}",
                "Use it in a rule or remove the axis.",
            )
        if not isinstance(values, list) or not values:
            given = "[]" if values == [] else describe(values)
            raise at.fail(key, given, "a list of at least one value", "Write its values.")
        axes[name] = _values(at, key, values, [path for axis, path in used if axis == name])
    return axes


def _dollars(names: Iterable[str]) -> str:
    return ", ".join(f"${name}" for name in sorted(names)) or "none"


def _values(at: _At, key: str, values: list[Any], paths: list[str]) -> tuple[Any, ...]:
    result: list[Any] = []
    for i, value in enumerate(values):
        value = _canonical(at, f"{key}[{i}]", value, paths)
        if value in result:
            raise at.fail(
                f"{key}[{i}]", f"{value!r} a second time", "different values", "Remove it."
            )
        result.append(value)
    return tuple(result)


def _canonical(at: _At, key: str, value: Any, paths: list[str]) -> Any:
    if isinstance(value, dict | list):
        raise at.fail(key, describe(value), "a word or a number", "Write one value.")
    if isinstance(value, float) and not math.isfinite(value):
        raise at.fail(key, repr(value), "a finite number", "Correct it.")
    for path in paths:
        if canonical := _CANONICAL.get(path.rpartition(".")[2]):
            try:
                value = canonical(value)
            except NpusimError as error:
                raise at.wrap(key, error) from error
    return value


def _baseline(
    at: _At, raw: Any, axes: dict[str, tuple[Any, ...]], used: list[tuple[str, str]]
) -> dict[str, Any] | None:
    if raw is None:
        return None
    raw = at.mapping("baseline", raw, axes)
    return {
        name: _canonical(
            at, f"baseline.{name}", value, [path for axis, path in used if axis == name]
        )
        for name, value in raw.items()
    }
