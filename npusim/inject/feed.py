"""`Feed`: the formats that are data, on their way into the bodies that need them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from npusim._errors import PolicyError, message
from npusim.inject.plan import Body, Site
from npusim.inject.spec import CastSpec

Values = list[Any]


@dataclasses.dataclass(frozen=True)
class Feed:
    """The formats that are data, with the operands they become inside a body.

    Attributes:
        specs: static part: the specs of the policy whose format is traced, by identity.
        values: their FormatParams at this level of nesting.
        layered: whether each still has its leading axis of layers.
    """

    specs: tuple[CastSpec, ...] = ()
    values: tuple[Any, ...] = ()
    layered: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, specs: Sequence[CastSpec]) -> "Feed":
        """Collect the traced formats of ``specs``."""
        traced = {id(spec): spec for spec in specs if spec.traced}
        kept = tuple(traced.values())
        return cls(kept, tuple(s.dtype for s in kept), tuple(s.layers for s in kept))

    def only(self, used: set[int]) -> "Feed":
        """The part that a body with these specs (by identity) needs."""
        keep = [i for i, spec in enumerate(self.specs) if id(spec) in used]
        return self._take(keep)

    def _take(self, keep: list[int]) -> "Feed":
        return Feed(
            tuple(self.specs[i] for i in keep),
            tuple(self.values[i] for i in keep),
            tuple(self.layered[i] for i in keep),
        )

    def divided(self, length: int) -> tuple["Feed", "Feed"]:
        """What a scan of this length shares between its iterations, and what it deals out."""
        dealt = [i for i, layers in enumerate(self.layered) if layers == length]
        shared = [i for i in range(len(self.specs)) if i not in dealt]
        return self._take(shared), self._take(dealt)

    def filled(self, leaves: Sequence[Any], sliced: bool = False) -> "Feed":
        """The same formats with these leaves, as a body receives them."""
        structure = jax.tree.structure(self.values)
        values = jax.tree.unflatten(structure, list(leaves))
        layered = tuple(None for _ in self.layered) if sliced else self.layered
        return dataclasses.replace(self, values=values, layered=layered)

    def merged(self, other: "Feed") -> "Feed":
        """Both together."""
        return Feed(
            self.specs + other.specs, self.values + other.values, self.layered + other.layered
        )

    @property
    def leaves(self) -> Values:
        """The arrays."""
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(self.values)]

    def resolve(self, spec: CastSpec, site: Site) -> CastSpec:
        """The spec with its format as it is at this level."""
        if not spec.traced:
            return spec
        for own, params, layers in zip(self.specs, self.values, self.layered, strict=True):
            if own is not spec:
                continue
            if layers is not None:
                raise PolicyError(
                    message(
                        f"a format for each of {layers} layers at {site.path or 'the top level'}, "
                        f"which stands in no scan of length {layers}",
                        "sites inside a scan over as many layers",
                        "Narrow the rule's path, or pass one format.",
                    )
                )
            return dataclasses.replace(spec, dtype=params)
        raise AssertionError(f"no feed for {spec}")


def specs_in(bodies: Sequence[Body]) -> set[int]:
    """The specs, by identity, that some bodies use."""
    planned = [p for body in bodies for p in body.all_sites()]
    return {id(spec) for p in planned for _, spec in p.specs}
