"""`report`: what a policy does to a function, site by site, from shapes alone."""

import collections
import csv
import dataclasses
import html
import io
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from npusim.inject.arguments import Params
from npusim.inject.kinds import CUBE_KINDS, OP_KINDS
from npusim.inject.plan import Site
from npusim.inject.policy import Policy
from npusim.inject.transform import planned

COLUMNS: tuple[str, ...] = (
    "path",
    "op",
    "kind",
    "direction",
    "rule",
    "casts",
    "operands",
    "results",
    "computes",
    "formats",
    "why",
    "trips",
    "recomputed",
    "source",
)
_SHOWN = ("path", "op", "direction", "rule", "casts", "operands", "results")
_WITH_REASONS = ("path", "op", "direction", "rule", "formats", "why")


def report(
    fn: Callable[..., Any],
    policy: Policy,
    *args: Any,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    **kwargs: Any,
) -> "Report":
    """Return what `simulate` would do to ``fn`` at these arguments, without computing anything.

    Args:
        fn: the function as it is given to `simulate`.
        policy: the rules.
        *args: its arguments; `jax.ShapeDtypeStruct` will do, so a model too large to run can be
            checked.
        params: as in `simulate`.
        static_argnames: as in `simulate`.
        **kwargs: its keyword arguments.

    Raises:
        PolicyError: as `simulate`. Nothing is warned of: the report says it.

    Example:
        >>> import jax
        >>> from npusim.inject import CastSpec, Rule
        >>> shape = jax.ShapeDtypeStruct((2, 2), jnp.float32)
        >>> policy = Policy([Rule(weight=CastSpec("fp8_e4m3")), Rule("head", "exp")])
        >>> found = report(lambda w, x: jnp.tanh(x @ w), policy, shape, shape)
        >>> [(row["op"], row["rule"], row["casts"]) for row in found.rows()]
        [('dot_general', 1, 'weight 1: fp8_e4m3'), ('tanh', '', '')]
        >>> found.unused
        ((2, "Rule(path='head', ops='exp')"),)
    """
    planner = planned(
        fn, policy, args, kwargs, params, static_argnames, listed=tuple(OP_KINDS)
    ).planner
    unused = tuple(
        (number + 1, repr(rule))
        for number, rule in enumerate(policy.rules)
        if number not in planner.hit and not rule.optional
    )
    others = collections.Counter(planner.others)
    return Report(
        tuple(planner.sites), tuple(sorted(others.items())), unused, tuple(planner.opaque)
    )


@dataclasses.dataclass(frozen=True)
class Report:
    """What a policy does to a function.

    Attributes:
        sites: every operation of an op kind and every one that a rule matches, in program order.
        others: float operations of no op kind that no rule names: (primitive, how many).
        unused: rules that match nothing: (number from 1, the rule).
        opaque: kernels that cannot be looked into: (name, path).
    """

    sites: tuple[Site, ...]
    others: tuple[tuple[str, int], ...]
    unused: tuple[tuple[int, str], ...]
    opaque: tuple[tuple[str, str], ...]

    @property
    def unmatched(self) -> tuple[Site, ...]:
        """The sites that no rule matches."""
        return tuple(site for site in self.sites if site.rule is None)

    @property
    def complex(self) -> tuple[Site, ...]:
        """The sites that compute with complex numbers: no rule casts those."""
        return tuple(
            site
            for site in self.sites
            if not site.casts and any(dtype.startswith("complex") for dtype in site.dtypes)
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each site, with the keys `COLUMNS`; rules are numbered from 1."""
        return [_row(site) for site in self.sites]

    def to_csv(self) -> str:
        """Return the rows as CSV, with a header; after the sites what the policy leaves out.

        The column ``kind`` tells these rows: ``none`` for an operation of no op kind, ``opaque``
        for a kernel, ``unused rule`` for a rule, whose text stands under ``casts``.
        """
        left: list[dict[str, Any]] = [
            {"op": op, "kind": "none", "operands": f"{count} of them"} for op, count in self.others
        ]
        left += [{"path": path, "op": name, "kind": "opaque"} for name, path in self.opaque]
        left += [
            {"kind": "unused rule", "rule": number, "casts": rule} for number, rule in self.unused
        ]
        file = io.StringIO()
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*self.rows(), *left])
        return file.getvalue()

    def to_html(self) -> str:
        """Return one self-contained page: every site, and what the policy leaves out."""
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "\n".join(
            f'<tr class="{"on" if row["casts"] else "off" if row["rule"] == "" else "kept"}">'
            + "".join(f"<td>{_cell(row[name])}</td>" for name in COLUMNS)
            + "</tr>"
            for row in self.rows()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self._notes())
        return _PAGE.format(summary=html.escape(self._summary()), notes=notes, head=head, body=body)

    def _summary(self) -> str:
        cast = sum(1 for site in self.sites if site.casts)
        protected = sum(1 for site in self.sites if site.rule is not None and not site.casts)
        return (
            f"{len(self.sites)} sites: {cast} with casts, {protected} matched without a cast, "
            f"{len(self.unmatched)} matched by no rule"
        )

    def _notes(self) -> list[str]:
        counts = collections.Counter(site.op for site in self.unmatched)
        left = [f"{count} {op}" for op, count in sorted(counts.items())]
        others = [f"{count} {op}" for op, count in self.others]
        notes = [f"no rule: {', '.join(left)}"] if left else []
        notes += [f"of no op kind: {', '.join(others)}"] if others else []
        whole = collections.Counter(site.op for site in self.complex)
        made = [f"{count} {op}" for op, count in sorted(whole.items())]
        notes += [f"complex, never cast: {', '.join(made)}"] if made else []
        notes += [f"unused: rule {number}, {rule}" for number, rule in self.unused]
        notes += [f"opaque: {name} at {path or 'the top level'}" for name, path in self.opaque]
        return notes

    def __str__(self) -> str:
        """The sites that a rule matches and all of the Cube as a table; the others as counts."""
        rows = [
            _row(site) for site in self.sites if site.rule is not None or site.kind in CUBE_KINDS
        ]
        shown = _WITH_REASONS if any(row["why"] for row in rows) else _SHOWN
        lines = [list(shown), *([str(row[name]) for name in shown] for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
        table = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([self._summary(), *(table if rows else []), *self._notes()])


def _row(site: Site) -> dict[str, Any]:
    first = len(site.roles)
    types = [
        f"{dtype}[{','.join(map(str, shape))}]"
        for dtype, shape in zip(site.dtypes, site.shapes, strict=True)
    ]
    values = {
        "path": site.path,
        "op": site.op,
        "kind": site.kind,
        "direction": site.direction,
        "rule": "" if site.rule is None else site.rule + 1,
        "casts": ", ".join(f"{where}: {what}" for where, what in site.casts),
        "operands": ", ".join(
            f"{role} {kind}" for role, kind in zip(site.roles, types[:first], strict=True)
        ),
        "results": ", ".join(types[first:]),
        "computes": _computes(site),
        "formats": site.formats,
        "why": site.why,
        "trips": "?" if site.trips is None else site.trips,
        "recomputed": "yes" if site.recomputed else "",
        "source": site.source,
    }
    assert tuple(values) == COLUMNS
    return values


def _cell(value: Any) -> str:
    """A cell of the page: each cast and each operand on a line of its own."""
    return html.escape(str(value)).replace(", ", ",\n")


def _computes(site: Site) -> str:
    """The type that a cast operation computes in: a 16-bit one runs on float32 carriers."""
    floats = [jnp.dtype(d) for d in site.dtypes if d.startswith(("float", "bfloat"))]
    if not site.casts or not floats or site.kind == "convert":
        return ""
    return max(floats, key=lambda d: (d.itemsize, d.name)).name if _is_wide(floats) else "float32"


def _is_wide(floats: Sequence[Any]) -> bool:
    return all(dtype.itemsize >= 4 for dtype in floats)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Report of a policy</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: .25em .6em; border-bottom: 1px solid #ddd }}
th {{ position: sticky; top: 0; background: #f4f4f4 }}
td {{ font: 12px/1.4 ui-monospace, monospace; white-space: pre; vertical-align: top }}
.kept td {{ color: #555; background: #f6f6f0 }}
.off td {{ color: #888 }}
</style></head><body>
<h1>Report of a policy</h1>
<p>{summary}</p>
<ul>{notes}</ul>
<p>Black: with casts. Shaded: matched by a rule without a cast. Grey: matched by no rule.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table>
</body></html>
"""
