"""`Policy`: ordered rules, the chip they are held to, and their plain form."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from npusim._errors import ConfigError, NpusimError, PolicyError, message, nearest
from npusim.casting import ResolvedCast, resolve_cast
from npusim.casting.resolve import warn_fallback
from npusim.dtypes import DT_FP32
from npusim.inject.keys import KEYS, Operation
from npusim.inject.rules import ROLES, Rule
from npusim.inject.spec import CastSpec
from npusim.modes import LABORATORY, Target

_CATCH_ALL = (".*", "", "^.*$", ".*$", "^.*", "^")
_RULE_KEYS = tuple(f.name for f in dataclasses.fields(Rule))
_CAST_KEYS = tuple(f.name for f in dataclasses.fields(CastSpec))
_TARGET_KEYS = tuple(f.name for f in dataclasses.fields(Target))


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Policy:
    """Ordered rules; for each operation the first that matches decides.

    Attributes:
        rules: the rules.
        target: the chip and entry point whose cast tables hold; None: the laboratory.

    Raises:
        PolicyError: a rule contradicts an earlier one or can never be reached.
        UnsupportedCastError: the target does not have a cast. A fallback to another mode is
            reported as `CastFallbackWarning`.

    Example:
        >>> policy = Policy([Rule("head"), Rule(input="e4m3", weight="e4m3")])
        >>> len(policy.rules), policy.target
        (2, None)
    """

    rules: tuple[Rule, ...]
    target: Target | None

    def __init__(self, rules: Iterable[Rule], target: Target | None = None):
        given = (rules,) if isinstance(rules, Rule) else tuple(rules)
        for rule in given:
            if not isinstance(rule, Rule):
                raise PolicyError(
                    message(
                        f"{rule!r} among the rules",
                        "npusim.Rule",
                        "Build it with Rule(...), or the whole policy with Policy.from_dict.",
                    )
                )
        if target is not None and not isinstance(target, Target):
            raise PolicyError(
                message(f"target {target!r}", "npusim.Target or None", "Pass Target('950PR', ...).")
            )
        object.__setattr__(self, "rules", given)
        object.__setattr__(self, "target", target)
        _check_order(given)
        _check_target(given, target)

    @property
    def cast_target(self) -> Target:
        """The target that casts follow: the laboratory where none is set."""
        return LABORATORY if self.target is None else self.target

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, source: str = "policy") -> "Policy":
        """Build a policy from plain data, as a YAML file gives it.

        Args:
            data: ``{"target": null | {soc, api, overflow, level}, "rules": [...]}``.
            source: what messages call the data, e.g. the file's name.

        Raises:
            ConfigError: an unknown or missing key, named with its nearest valid one.
            PolicyError, UnknownNameError, UnsupportedCastError: as `Policy` and `Rule` raise them,
                with the key in front.

        Example:
            >>> Policy.from_dict({"rules": [{"input": {"dtype": "hif8"}}]}).rules
            (Rule(ops='matmul', input=CastSpec(hif8)),)
        """
        return _Reader(source).policy(data)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> "Policy":
        """Read a policy from a YAML file with the keys ``rules`` and, optionally, ``target``.

        Raises:
            ConfigError: the file cannot be read or is no YAML; the rest as `from_dict`, with the
                file's name.
        """
        import yaml

        name = os.fspath(path)
        try:
            with open(path, encoding="utf-8") as file:
                data = yaml.safe_load(file)
        except OSError as error:
            raise ConfigError(
                message(f"policy file {name} ({error.strerror})", "a YAML file", "Check the path.")
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())
            raise ConfigError(
                message(f"{name}, which is no YAML: {text}", "a YAML file", "Correct it.")
            ) from error
        return cls.from_dict(data, source=name)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain data that `from_dict` reads back."""
        target = None
        if self.target is not None:
            target = {key: str(getattr(self.target, key)) for key in _TARGET_KEYS}
        return {"target": target, "rules": [rule.to_dict() for rule in self.rules]}

    def hash(self) -> str:
        """Return 16 hexadecimal digits that are the same for the same rules, in any process.

        Example:
            >>> Policy([Rule(input="half")]).hash() == Policy([Rule(input="fp16")]).hash()
            True
        """
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find(self, operation: Operation) -> int | None:
        """Return the number of the first rule that matches, or None."""
        for number, rule in enumerate(self.rules):
            if rule.matches(operation):
                return number
        return None

    def __repr__(self) -> str:
        target = "" if self.target is None else f", target={self.target}"
        return f"Policy({list(self.rules)!r}{target})"


def _check_order(rules: tuple[Rule, ...]) -> None:
    """Refuse a rule that an earlier one leaves nothing to."""
    for number, rule in enumerate(rules):
        left = {(p, d) for p in rule.primitives for d in rule.directions}
        for earlier, other in enumerate(rules[:number]):
            if not _covers(other, rule):
                continue
            taken = {(p, d) for p in other.primitives for d in other.directions}
            if not left & taken:
                continue
            left -= taken
            if left:
                continue
            if _keys(other) == _keys(rule) and not _same(rule, other):
                raise PolicyError(
                    message(
                        f"rules {earlier + 1} and {number + 1}, which put different casts on the "
                        f"same operations ({_shown(rule)}, ops {rule.ops!r}, direction "
                        f"{rule.direction})",
                        "one rule for the same path, ops and direction",
                        "Merge them, or make the earlier path narrower.",
                    )
                )
            raise PolicyError(
                message(
                    f"rule {number + 1} ({_shown(rule)}), which rule {earlier + 1} "
                    f"({_shown(other)}) leaves nothing to",
                    "rules in the order in which they are tried: the first match wins",
                    f"Move rule {number + 1} before rule {earlier + 1}, or remove it.",
                )
            )


def _keys(rule: Rule) -> tuple[Any, ...]:
    """What the rule asks of an operation besides its primitive and direction."""
    return rule.path, rule.source, rule.function, *rule.types


def _covers(other: Rule, rule: Rule) -> bool:
    """Whether ``other`` speaks of all that ``rule`` does, as far as their texts tell."""
    path, source, function, *types = _keys(other)
    own_path, own_source, own_function, *own_types = _keys(rule)
    return (
        (path == own_path or path in _CATCH_ALL)
        and source in (None, own_source)
        and function in (None, own_function)
        and all(
            wide is None or (narrow is not None and narrow <= wide)
            for wide, narrow in zip(types, own_types, strict=True)
        )
    )


def _shown(rule: Rule) -> str:
    shown = [f"path {rule.path!r}"]
    shown += [f"{name} {getattr(rule, name)!r}" for name in KEYS if getattr(rule, name) is not None]
    return ", ".join(shown)


def _same(a: Rule, b: Rule) -> bool:
    if a.accumulate != b.accumulate or a.follow != b.follow:
        return False
    one, two = dict(a.casts()), dict(b.casts())
    if any(spec.traced for spec in (*one.values(), *two.values())):
        return one.keys() == two.keys() and all(one[role] is two[role] for role in one)
    return one == two


def _check_target(rules: tuple[Rule, ...], target: Target | None) -> None:
    if target is None or target.api == "numerics":
        return
    for number, rule in enumerate(rules):
        for role, spec in rule.casts():
            try:
                for step in check_cast(DT_FP32, spec, target):
                    warn_fallback(step, stacklevel=5)
            except NpusimError as error:
                text = str(error).removeprefix("Given: ")
                raise type(error)(f"Given: rule {number + 1}, {role}: {text}") from error


def check_cast(source: Any, spec: CastSpec, target: Target) -> list[ResolvedCast]:
    """Raise unless the target has the spec's cast from ``source``; what runs, step by step."""
    if spec.traced:
        raise PolicyError(
            message(
                f"traced FormatParams under the target {target}",
                "static formats where a target is set",
                "Name the format, or leave the target out: traced formats live in the laboratory.",
            )
        )
    steps: list[ResolvedCast] = []
    if spec.via is not None:
        if spec.via is not source:
            steps.append(resolve_cast(source, spec.via, None, None, target))
        source = spec.via
    if spec.dtype is not source:
        steps.append(resolve_cast(source, spec.dtype, spec.mode, spec.satmode, target))
    return steps


class _Reader:
    """Reads plain data and names the key that is wrong."""

    def __init__(self, source: str):
        self.source = source

    def policy(self, data: Any) -> Policy:
        keys = self.mapping("", data, ("rules", "target"))
        if not isinstance(keys.get("rules"), list | tuple):
            raise self.fail("rules", repr(keys.get("rules")), "a list of rules", "Write the list.")
        rules = [self.rule(f"rules[{i}]", rule) for i, rule in enumerate(keys["rules"])]
        target = keys.get("target")
        if target is not None and not isinstance(target, Target):
            given = self.mapping("target", target, _TARGET_KEYS)
            # YAML reads the chip 950 as a number.
            names = {k: str(v) if isinstance(v, int) else v for k, v in given.items()}
            target = self.build("target", Target, names)
        return self.build("rules", Policy, {"rules": rules, "target": target})

    def rule(self, key: str, data: Any) -> Rule:
        if isinstance(data, Rule):
            return data
        fields = dict(self.mapping(key, data, _RULE_KEYS))
        for role in ROLES:
            given = fields.get(role)
            if isinstance(given, Mapping):
                spec = self.mapping(f"{key}.{role}", given, _CAST_KEYS)
                if "dtype" not in spec:
                    raise self.fail(
                        f"{key}.{role}", "no key 'dtype'", ", ".join(_CAST_KEYS), "Add the dtype."
                    )
                fields[role] = self.build(f"{key}.{role}", CastSpec, spec)
        return self.build(key, Rule, fields)

    def mapping(self, key: str, data: Any, allowed: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise self.fail(key, repr(data), f"a mapping with {', '.join(allowed)}", "Correct it.")
        for name in data:
            if name not in allowed:
                hint = nearest(str(name), allowed)
                raise self.fail(
                    f"{key}.{name}" if key else str(name),
                    "an unknown key",
                    ", ".join(allowed),
                    f"{hint}Correct or remove it.",
                )
        return dict(data)

    def build(self, key: str, make: Any, fields: dict[str, Any]) -> Any:
        try:
            return make(**fields)
        except NpusimError as error:
            text = str(error).removeprefix("Given: ")
            raise type(error)(f"Given: {self.source}, key '{key}': {text}") from error

    def fail(self, key: str, given: str, allowed: str, remedy: str) -> ConfigError:
        place = f"{self.source}, key '{key}'" if key else self.source
        return ConfigError(message(f"{place}: {given}", allowed, remedy))
