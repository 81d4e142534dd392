"""What may be recorded at a site: the `Observer` protocol."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import jax

from npusim.inject.plan import Site, Slot
from npusim.inject.spec import CastSpec


@dataclasses.dataclass(frozen=True)
class Seen:
    """What one cast did: where, the spec, the value before and the value after.

    Attributes:
        slot: the operand's position, or ``output``.
        spec: the cast.
        before: the value before.
        after: the value after.
        differs: inside shard_map the mesh axes over which the value differs; along the others the
            devices hold it alike.
    """

    slot: Slot
    spec: CastSpec
    before: jax.Array
    after: jax.Array
    differs: frozenset[str] = frozenset()


class Observer(Protocol):
    """Makes a record at every site. Records are pytrees of arrays, one structure per site.

    Records of the iterations of a loop are joined; a branch not taken counts as `empty`; a
    recomputed site (`Site.recomputed`) is told apart so that it need not count twice.
    """

    def empty(self, site: Site) -> Any:
        """The record of a site that did not run."""
        ...

    def record(self, site: Site, seen: Sequence[Seen]) -> Any:
        """The record of one execution."""
        ...

    def join(self, a: Any, b: Any) -> Any:
        """The record of two executions."""
        ...
