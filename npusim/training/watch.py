"""What every site puts out, in one run: the measuring half of `first_divergence`.

A planner that makes a site of every watched operation, cast or not, and a walker whose records are
the results. In a loop they are kept in a buffer with a row for each execution.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npusim._errors import PolicyError
from npusim.inject import OP_KINDS, CastSpec, Policy, Rule, Site, _compat, labels
from npusim.inject.arguments import Call
from npusim.inject.kinds import CUBE_KINDS
from npusim.inject.mesh import Axes, Spread
from npusim.inject.paths import Place
from npusim.inject.plan import Body, Planned, Planner
from npusim.inject.walker import Feed, Seen, Values, Walker

_WATCHED = "watched"
_NOTHING = CastSpec("fp32")
_KINDS = ("float", "bfloat", "int", "uint", "complex", "bool")


class Outputs(NamedTuple):
    """The record of a site.

    Attributes:
        runs: executions so far.
        values: for each result that is a number, ``[executions, ...]``, zeros where there is none.
    """

    runs: jax.Array
    values: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class Run:
    """One function under one policy, watched.

    Attributes:
        out: what the function returned.
        sites: each watched site, where it stands in the program, and what it put out.
    """

    out: Any
    sites: list[tuple[Site, "Nest", Outputs]]


@dataclasses.dataclass(frozen=True)
class Nest:
    """Where a site stands in the nesting of jaxprs.

    Attributes:
        levels: from the outside: a position in a body, or the length of a loop as a tuple of one;
            None in the place of a length that is not known.
    """

    levels: tuple[int | tuple[int | None], ...] = ()

    def moment(self, execution: int) -> tuple[int, ...]:
        """Return a key that sorts executions of all sites into the order they ran in.

        The iteration of each loop is a digit of the execution's number. Exact for scans and for a
        while loop that is not inside of another loop; a branch that runs in some iterations only is
        placed as if it had run in the first ones.

        Example:
            >>> Nest((4, (2,), 0, (3,), 7)).moment(5)
            (4, 1, 0, 2, 7)
        """
        key: list[int] = []
        for level in reversed(self.levels):
            if isinstance(level, int):
                key.append(level)
                continue
            (length,) = level
            key.append(execution if length is None else execution % length)
            execution = 0 if length is None else execution // length
        return tuple(reversed(key))


def watch(fn: Callable[..., Any], policy: Policy, call: Call, ops: Sequence[str], most: int) -> Run:
    """Run ``fn`` under ``policy`` with every operation in ``ops`` watched.

    Args:
        fn: the function.
        policy: its rules.
        call: its arguments.
        ops: primitives.
        most: executions of a site that are kept.
    """

    def flat(*arrays: Any) -> Any:
        args, kwargs = call.restored(arrays)
        return fn(*args, **kwargs)

    closed, shape = _compat.trace(flat, *call.arrays)
    planner = _Planner(_watching(policy, ops))
    given = [labels.WEIGHT if is_param else labels.INPUT for is_param in call.params]
    body = planner.body(closed, given, Place())
    feed = Feed.of([spec for rule in policy.rules for _, spec in rule.casts()])
    walker = _Walker(policy.cast_target, _Recorder(most))
    leaves, tally = walker.run(body, _compat.constants(closed), call.arrays, feed)
    placed = list(_places(body))
    sites = [(site, nest, record) for (site, nest), record in zip(placed, tally, strict=True)]
    return Run(jax.tree.unflatten(jax.tree.structure(shape), leaves), sites)


def watched_ops(*policies: Policy) -> list[str]:
    """Return the primitives that rules of these policies speak of, and those of the Cube."""
    named = [p for policy in policies for rule in policy.rules for p in sorted(rule.primitives)]
    return list(dict.fromkeys([*(p for kind in CUBE_KINDS for p in OP_KINDS[kind]), *named]))


def _watching(policy: Policy, ops: Sequence[str]) -> Policy:
    """The policy with a last rule that gives every watched operation a site and casts nothing."""
    try:
        return Policy([*policy.rules, Rule(ops=tuple(ops))], policy.target)
    except PolicyError:
        return policy  # its own rules speak of all of them already


class _Planner(Planner):
    """Keeps the sites without casts as well."""

    def site(self, *args: Any, **kwargs: Any) -> Planned | None:
        planned = super().site(*args, **kwargs)
        if planned is None or planned.active:
            return planned
        return Planned(planned.site, ((_WATCHED, _NOTHING),))


@dataclasses.dataclass(frozen=True)
class _Recorder:
    """The observer: its records are made by the walker, which sees the results."""

    most: int

    def rows(self, site: Site) -> int:
        return self.most if site.trips is None else max(1, min(site.trips, self.most))

    def empty(self, site: Site) -> Outputs:
        first = len(site.roles)
        results = zip(site.shapes[first:], site.dtypes[first:], strict=True)
        rows = self.rows(site)
        values = [
            jnp.zeros((rows, *shape), jnp.dtype(dtype)) for shape, dtype in results if _plain(dtype)
        ]
        return Outputs(jnp.zeros((), jnp.int32), tuple(values))

    def record(self, site: Site, seen: Sequence[Seen]) -> Any:
        return None

    def results(self, site: Site, outs: Values) -> Outputs:
        rows = self.rows(site)
        kept = [jnp.asarray(out) for out in outs if _plain(str(jnp.asarray(out).dtype))]
        values = [jnp.zeros((rows, *x.shape), x.dtype).at[0].set(x) for x in kept]
        return Outputs(jnp.ones((), jnp.int32), tuple(values))

    def join(self, a: Outputs, b: Outputs) -> Outputs:
        def place(x: jax.Array, y: jax.Array) -> jax.Array:
            taken = jnp.arange(len(x)) < a.runs
            return jnp.where(taken.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.roll(y, a.runs, 0))

        return Outputs(a.runs + b.runs, tuple(map(place, a.values, b.values)))


class _Walker(Walker):
    """Records what each site puts out; a site without casts is bound unchanged."""

    def site(
        self, eqn: Any, plan: Planned, operands: Values, feed: Feed, spread: Spread
    ) -> tuple[Values, Any]:
        if plan.site.casts:
            outs, _ = super().site(eqn, plan, operands, feed, spread)
        else:
            outs = _compat.bind(eqn, operands)
        assert isinstance(self.observer, _Recorder)
        return outs, self.observer.results(plan.site, outs)

    def cross(self, plan: Planned, value: Any, feed: Feed, differs: Axes) -> tuple[Any, Any]:
        out, _ = super().cross(plan, value, feed, differs)
        assert isinstance(self.observer, _Recorder)
        return out, self.observer.results(plan.site, [out])


def _plain(dtype: str) -> bool:
    return dtype.startswith(_KINDS)


def _places(body: Body, outside: Nest = Nest()) -> Iterator[tuple[Site, Nest]]:
    """The sites in the order of their records, each with its place."""
    for position, planned in body.own_sites():
        yield planned.site, Nest((*outside.levels, position))
    equations = _compat.opened(body.jaxpr).eqns
    for position, bodies in body.calls.items():
        eqn = equations[position]
        name = _compat.name_of(eqn)
        loop: tuple[Any, ...] = ()
        if name in (_compat.SCAN, _compat.WHILE):
            # A scan's length is a parameter of it; a while loop's is not known.
            loop = ((eqn.params.get("length"),),)
        for number, inner in enumerate(bodies):
            yield from _places(inner, Nest((*outside.levels, position, *loop, number)))


def rows_of(outputs: Outputs) -> tuple[int, list[np.ndarray]]:
    """Return how many executions were kept, and the values on the host."""
    values = [np.asarray(value) for value in outputs.values]
    kept = min(int(outputs.runs), len(values[0])) if values else 0
    return kept, values
