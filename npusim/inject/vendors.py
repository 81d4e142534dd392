"""Presets: the vendors' own mixed-precision settings as policies, each a row with its source."""

import csv
import dataclasses
import functools
import importlib.resources
from collections.abc import Iterator, Mapping
from typing import Any

from npusim._errors import PolicyError, UnknownNameError, UnsupportedCastError, message, nearest
from npusim.inject.policy import Policy
from npusim.modes import SoC, Target, chip

NETWORK = "."
"""Default of ``path``: whatever stands in a named module. A loss outside of it stays float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """One setting of a vendor.

    Attributes:
        name: its name.
        aliases: other names, among them the vendor's own.
        what: what it does.
        chips: where it exists.
        missing: why it cannot be run yet; empty: it can.
        grade: how well it is known: ``documented``, ``implementation`` or ``assumed``.
        sources: repository and path of the vendor's pages and code.
        recipe: which rules it has; empty where it is missing.
        formats: what stands for the formats in the recipe.
    """

    name: str
    aliases: tuple[str, ...]
    what: str
    chips: tuple[SoC, ...]
    missing: str
    grade: str
    sources: tuple[str, ...]
    recipe: str
    formats: Mapping[str, Mapping[str, Any]]

    @property
    def available(self) -> bool:
        """Whether it can be run."""
        return not self.missing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """One entry of a vendor's list of operators.

    Attributes:
        list: whose list.
        part: ``low``, ``fp32``, ``previous``, ``widest`` or another part of it.
        operator: the operator as the vendor spells it.
        key: ``op``, ``function``, or ``-``: nothing in JAX shows it.
        match: op kinds and primitives, or a regular expression for a function's name.
        grade: how well that is known.
    """

    list: str
    part: str
    operator: str
    key: str
    match: str
    grade: str


def presets() -> tuple[Preset, ...]:
    """Return all presets, those that are not available yet included.

    Example:
        >>> row = next(row for row in presets() if row.name == "mindspore_o2_fp16")
        >>> row.what, row.available
        ('amp O2: all but BatchNorm and LayerNorm in fp16', True)
    """
    return tuple(_read()[0].values())


def preset(name: str, target: Target | None = None, *, path: str = NETWORK) -> Policy:
    """Return the policy of a vendor's mixed-precision setting.

    Rules know composite operators (norms, softmax, GELU, losses) by the functions of JAX, Flax,
    Haiku, Equinox and optax whose calls make them; `npusim.report` says for every operation which
    format it has and why.

    Args:
        name: a name or alias of `presets`; a vendor's own spelling, such as
            ``allow_mix_precision``, is one.
        target: the chip and entry point that the casts are held to; ``Target("A2A3", "numerics")``
            names the chip alone. None: the laboratory.
        path: regular expression for the modules that it speaks of. The default is all that stand
            in a named scope; plain JAX functions have none and need ``".*"``.

    Raises:
        UnknownNameError: no such preset.
        PolicyError: it is not available yet; the message says why.
        UnsupportedCastError: the target's chip does not have it.

    Example:
        >>> policy = preset("allow_mix_precision")
        >>> policy.rules[5]
        Rule(path='.', ops=('matmul', 'conv'), input=CastSpec(fp16 RINT sat=OFF), \
weight=CastSpec(fp16 RINT sat=OFF), output=CastSpec(fp16 RINT sat=OFF), \
grad=CastSpec(fp16 RINT sat=OFF), reason='white list')
    """
    row = find_preset(name)
    if not row.available:
        raise PolicyError(
            message(
                f"preset {name!r}, which is not available yet: {row.missing}",
                "one of the presets that are",
                "`npusim presets` lists them.",
            )
        )
    if target is not None and not isinstance(target, Target):
        raise PolicyError(
            message(
                f"target {target!r}",
                "npusim.Target or None",
                "Pass Target('950PR', 'numerics') to name the chip alone.",
            )
        )
    if target is not None and target.soc not in row.chips:
        raise UnsupportedCastError(
            message(
                f"preset {name!r} for {target.soc.value}",
                ", ".join(soc.value for soc in row.chips),
                "Name that chip, or another preset.",
            )
        )
    rules = [rule for entry in _read()[1][row.recipe] for rule in _rules(entry, row, target, path)]
    return Policy.from_dict({"rules": rules, "target": target}, source=f"preset {row.name}")


def find_preset(name: str) -> Preset:
    """Return the row of a name or alias.

    Raises:
        UnknownNameError: no such preset.

    Example:
        >>> find_preset("mixed_float16").name
        'cann_allow_mix_precision_fp16'
    """
    rows, _ = _read()
    for row in rows.values():
        if name in (row.name, *row.aliases):
            return row
    known = [known for row in rows.values() for known in (row.name, *row.aliases)]
    raise UnknownNameError(
        message(
            f"preset {name!r}",
            ", ".join(rows),
            f"{nearest(str(name), known)}`npusim presets` lists them with their aliases.",
        )
    )


def _rules(
    entry: Mapping[str, Any], row: Preset, target: Target | None, path: str
) -> Iterator[dict[str, Any]]:
    """The rules that an entry of a recipe is; none where its formats or its list are empty."""
    rule: dict[str, Any] = {"path": path, "reason": entry.get("reason", "")}
    if not entry.get("needed"):
        rule["optional"] = True
    if "scope" in entry:
        rule |= {"ops": "boundary", "function": _functions(entry["scope"])}
    else:
        rule["ops"] = [name for given in entry["ops"] for name in _operations(given)]
        if "functions" in entry:
            rule["function"] = _functions(entry["functions"])
    if entry.get("follow"):
        rule["follow"] = entry["follow"]
    asked = entry.get("casts", {})
    if asked == "all":
        asked = dict.fromkeys(("input", "weight", "output", "grad"), "low")
    casts = {
        role: _format(row.formats[key], target) for role, key in asked.items() if key in row.formats
    }
    if casts or not asked:
        yield rule | casts


def _format(spec: Mapping[str, Any], target: Target | None) -> dict[str, Any]:
    """A cast as the target's entry point takes it: aclnn has neither mode nor saturation."""
    if target is None or target.api != "aclnn":
        return dict(spec)
    return {key: value for key, value in spec.items() if key not in ("mode", "satmode")}


def _functions(given: list[str]) -> str:
    """One regular expression for functions named themselves or by list/part."""
    found: dict[str, None] = {}
    for name in given:
        if "/" in name:
            found |= dict.fromkeys(e.match for e in _part(name) if e.key == "function")
        else:
            found[name] = None
    return "|".join(found)


def _operations(given: str) -> list[str]:
    if "/" not in given:
        return [given]
    return list(dict.fromkeys(w for e in _part(given) if e.key == "op" for w in e.match.split()))


def _part(name: str) -> list[Listed]:
    whose, _, part = name.partition("/")
    return [entry for entry in listed() if (entry.list, entry.part) == (whose, part)]


@functools.cache
def listed() -> tuple[Listed, ...]:
    """Return the vendors' lists, entry by entry."""
    lines = (line for line in _text("lists.csv").splitlines() if not line.startswith("#"))
    return tuple(Listed(**row) for row in csv.DictReader(lines))


@functools.cache
def _read() -> tuple[dict[str, Preset], dict[str, list[dict[str, Any]]]]:
    """Rows by name, and recipes."""
    import yaml

    data = yaml.safe_load(_text("presets.yaml"))
    known = {f.name for f in dataclasses.fields(Preset)}
    rows = {}
    for given in data["presets"]:
        formats = {key: value for key, value in given.items() if key not in known}
        rows[given["name"]] = Preset(
            name=given["name"],
            aliases=tuple(given.get("aliases", ())),
            what=given["what"],
            chips=tuple(chip(name) for name in given.get("chips", [soc.value for soc in SoC])),
            missing=given.get("missing", ""),
            grade=given["grade"],
            sources=tuple(given["sources"]),
            recipe=given.get("recipe", ""),
            formats=formats,
        )
    return rows, data["recipes"]


def _text(name: str) -> str:
    file = importlib.resources.files("npusim.inject") / "data" / name
    return file.read_text("utf-8")
