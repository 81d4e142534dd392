"""What a plan says of a site: the formats that meet there and why."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from npusim.dtypes import dtype as dtype_of
from npusim.inject import _compat
from npusim.inject.body import Planned, Slot
from npusim.inject.held import Held
from npusim.inject.paths import Place
from npusim.inject.rules import Rule
from npusim.inject.spec import CARRIERS, CastSpec


def maker_of(eqn: Any, place: Place) -> str:
    """The operation, as the one that follows it names it."""
    return f"{_compat.name_of(eqn)} at {place.path}" if place.path else _compat.name_of(eqn)


def output_of(planned: Planned | None) -> str | None:
    """The format that a site's result is cast to."""
    spec = None if planned is None else dict(planned.specs).get("output")
    return None if spec is None else named(spec)


def named(spec: CastSpec | None) -> str:
    """The short name of a cast's format."""
    return "traced" if spec is None or spec.traced else spec.dtype.short


def formats_of(eqn: Any, specs: dict[Slot, CastSpec]) -> str:
    """The formats that an operation takes and leaves."""

    def names(atoms: Any, spec_of: Any) -> str:
        found = []
        for position, atom in enumerate(atoms):
            dtype = getattr(atom.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
                spec = spec_of(position)
                short = dtype_of(np.dtype(dtype)).short if dtype in CARRIERS else str(dtype)
                found.append(short if spec is None else named(spec))
        return ", ".join(dict.fromkeys(found))

    taken = names(eqn.invars, specs.get)
    left = names(eqn.outvars, lambda _: specs.get("output"))
    return taken or left if left in (taken, "") or not taken else f"{taken} -> {left}"


def why(rule: Rule, place: Place, by: Held) -> str:
    """Why these casts: the rule's reason, the function that it means, the operation it follows."""
    called = None if rule.function is None else rule.called(place.functions)
    words = [rule.reason] if rule.reason else []
    words += [called.name] if called else []
    if rule.follow is not None and by.format is not None:
        words.append(f"follows {by.maker} ({by.format})")
    return ": ".join(words)
