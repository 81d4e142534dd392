"""What a plan is made of: sites, and a `Body` for each jaxpr."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from npusim.inject.boundary import Scope
from npusim.inject.labels import Label
from npusim.inject.spec import CastSpec
from npusim.ops.accumulate import Accumulate


@dataclasses.dataclass(frozen=True)
class Site:
    """One operation that a rule can speak of: plain data, comparable and hashable.

    Attributes:
        path: normalised module path.
        op: primitive.
        kind: op kind in rules.
        direction: ``forward`` or ``backward``.
        rule: number of the rule that matches, from 0; None where none does.
        roles: role of each operand.
        shapes: shapes of the operands, then of the results.
        dtypes: dtypes of the operands, then of the results.
        casts: pairs of where and what: ``("weight 1", "fp8_e4m3 RINT")``; besides the operands
            there are ``output``, ``grad``, the cotangent that comes back, and ``accumulate``.
        recomputed: whether rematerialisation repeats a forward operation here.
        trips: how often it runs in one call, None where a while loop decides.
        einsum: einsum subscripts, if it came from one.
        method: Linen method of the module, if not ``__call__``.
        source: the user's line that made it.
        formats: the formats it takes and leaves: ``fp16``, ``fp8_e4m3, fp8_e5m2 -> bf16``.
        why: the rule's reason and what it went by, empty where the rule has none.
    """

    path: str
    op: str
    kind: str
    direction: str
    rule: int | None
    roles: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    casts: tuple[tuple[str, str], ...]
    recomputed: bool
    trips: int | None
    einsum: str | None
    method: str | None
    source: str
    formats: str = ""
    why: str = ""

    def __str__(self) -> str:
        casts = ", ".join(f"{where}: {what}" for where, what in self.casts)
        return f"{self.path} {self.op} {self.direction} [{casts or 'no cast'}]"


Slot = int | str
"""Position of an operand, ``output`` or ``grad``."""


@dataclasses.dataclass(frozen=True, eq=False)
class Planned:
    """A site with the specs that apply at it, and the order it sums in where that is not XLA's."""

    site: Site
    specs: tuple[tuple[Slot, CastSpec], ...]
    accumulate: Accumulate | None = None

    @property
    def active(self) -> bool:
        """Whether the operation has to change."""
        return bool(self.specs) or self.accumulate is not None


@dataclasses.dataclass(frozen=True, eq=False)
class Crossed(Planned):
    """A value that is cast where it enters or leaves a scope, at the equation there."""

    position: int = 0


@dataclasses.dataclass(eq=False)
class Body:
    """The plan of one jaxpr.

    Attributes:
        jaxpr: the jaxpr itself, open or closed.
        sites: the operations in it that are cast, by position.
        calls: the equations whose bodies have something to do, by position.
        members: scope of the equations that lie in a boundary rule's, by position.
        enters: what is cast on its way into a scope.
        leaves: what is cast on its way out of the scope it was made in.
        results: labels of its results.
        again: for a function with a custom VJP: plans its forward rule, which is traced late.
    """

    jaxpr: Any
    sites: dict[int, Planned] = dataclasses.field(default_factory=dict)
    calls: dict[int, list["Body"]] = dataclasses.field(default_factory=dict)
    members: dict[int, Scope] = dataclasses.field(default_factory=dict)
    enters: dict[tuple[Scope, Any], Crossed] = dataclasses.field(default_factory=dict)
    leaves: dict[Any, Crossed] = dataclasses.field(default_factory=dict)
    results: list[Label | None] = dataclasses.field(default_factory=list)
    again: Callable[[Any], "Body"] | None = None

    @property
    def active(self) -> bool:
        """Whether anything in it has to change."""
        return bool(self.sites or self.calls or self.enters or self.leaves)

    def own_sites(self) -> Iterator[tuple[int, Planned]]:
        """Every cast in it, with the position of its equation."""
        yield from self.sites.items()
        for crossed in (*self.enters.values(), *self.leaves.values()):
            yield crossed.position, crossed

    def all_sites(self) -> Iterator[Planned]:
        """Every cast operation in it and in what it contains."""
        yield from (planned for _, planned in self.own_sites())
        for bodies in self.calls.values():
            for body in bodies:
                yield from body.all_sites()
