"""Composite operators: what enters and leaves the scope of a rule with ``ops="boundary"``.

The NPU runs a norm, a softmax or an attention as one operator: narrow operands, float32 inside, a
narrow result. The equations of one jaxpr that stand in the same scope are such an operator; a
value that one of them reads and none of them made enters, one that another equation reads leaves.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from npusim.inject import _compat
from npusim.inject.labels import GRAD, Label
from npusim.inject.paths import Place
from npusim.inject.policy import Policy
from npusim.inject.rules import Rule
from npusim.inject.spec import CastSpec

Scope = tuple[int, str, int]
"""Number of the rule, the path down to what it names, and the number of a function's call."""


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A value that enters or leaves a scope.

    Attributes:
        scope: the scope.
        position: the first equation that reads it, or the one that makes it.
        var: the variable.
        label: what the value is.
        place: where that equation stands.
        leaves: whether it leaves.
    """

    scope: Scope
    position: int
    var: Any
    label: Label | None
    place: Place
    leaves: bool

    @property
    def role(self) -> str:
        """The role whose spec casts the value; a gradient leaves as one, too."""
        if self.place.direction == "backward":
            return "grad"
        if self.leaves:
            return "output"
        return "weight" if self.label and self.label > 0 else "input"

    def casts(self, rule: Rule) -> Iterator[tuple[int | str, CastSpec]]:
        """Yield (slot, spec) of the casts of the value and of the cotangent that comes back."""
        spec = getattr(rule, self.role)
        if spec is not None and self.place.direction in rule.directions:
            yield ("output" if self.leaves else 0), spec
        if self.role != "grad" and rule.grad is not None and "backward" in rule.directions:
            yield "grad", rule.grad


def place_of(policy: Policy, outer: Place, eqn: Any) -> Place:
    """Return where an equation stands, given the place of the equation that has its jaxpr."""
    asked = any(rule.function is not None for rule in policy.rules)
    functions = _compat.functions_of(eqn) if asked else ()
    return outer.enter(_compat.stack_elements(eqn), _compat.source_line(eqn), functions)


def scope_of(policy: Policy, place: Place) -> Scope | None:
    """Return the scope that a place lies in: that of the first boundary rule that names it."""
    for number, rule in enumerate(policy.rules):
        if rule.boundary:
            path = rule.scope(place.path, place.functions)
            if path is not None:
                call = None if rule.function is None else rule.called(place.functions)
                return number, path, 0 if call is None else call.site
    return None


def scopes(policy: Policy, places: Sequence[Place], outer: Place) -> dict[int, Scope]:
    """Return the scope of each equation, by position, that ``outer`` does not lie in itself."""
    if not any(rule.boundary for rule in policy.rules):
        return {}
    around = scope_of(policy, outer)
    found = {position: scope_of(policy, place) for position, place in enumerate(places)}
    return {p: scope for p, scope in found.items() if scope is not None and scope != around}


def stays(policy: Policy, scope: Scope, eqn: Any, position: int, place: Place) -> bool:
    """Return whether all that a call does with one operand is done inside of ``scope``.

    A loop is split so that what its iterations share is computed before it: part of a scope then
    stands outside of the loop, and hands its values in.
    """
    inner = _body_by_operands(eqn)
    if inner is None or inner.invars[position] in [
        v for v in inner.outvars if not _compat.is_literal(v)
    ]:
        return False
    for reader in inner.eqns:
        here = place_of(policy, place, reader)
        for number, var in enumerate(reader.invars):
            if _compat.is_literal(var) or var is not inner.invars[position]:
                continue
            if scope_of(policy, here) != scope and not stays(policy, scope, reader, number, here):
                return False
    return True


def _body_by_operands(eqn: Any) -> Any:
    """The body of a call whose inputs are the call's operands, one by one; None: no such body."""
    name = _compat.name_of(eqn)
    if name not in (_compat.SCAN, _compat.JIT, _compat.REMAT):
        return None
    return _compat.opened(_compat.bodies(eqn)[0])


def crossings(
    policy: Policy,
    jaxpr: Any,
    members: dict[int, Scope],
    places: Sequence[Place],
    label: Callable[[Any], Label | None],
    saved: frozenset[int],
    inherited: dict[Any, Scope],
) -> Iterator[Crossing]:
    """Yield what enters and leaves the scopes of a jaxpr, each value once for each scope.

    Args:
        policy: the rules.
        jaxpr: the jaxpr, opened.
        members: scope of the equations that have one.
        places: of all equations.
        label: what a variable is.
        saved: numbers of the results that only a backward pass reads.
        inherited: inputs that a part of the scope outside of this jaxpr made.
    """
    made = {var: members.get(p) for p, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
    made |= inherited
    entered: set[tuple[Scope, Any]] = set()
    for position, scope in members.items():
        for var in jaxpr.eqns[position].invars:
            if _compat.is_literal(var) or made.get(var) == scope or (scope, var) in entered:
                continue
            if places[position].direction == "backward" and label(var) != GRAD:
                # As a rule what the forward equations saved inside of the scope: it stays. An
                # operand of the scope has entered already, and is cast for both.
                continue
            entered.add((scope, var))
            yield Crossing(scope, position, var, label(var), places[position], leaves=False)
    left: set[Any] = set()
    results = {v for i, v in enumerate(jaxpr.outvars) if i not in saved}
    for position, eqn in enumerate(jaxpr.eqns):
        for number, var in enumerate(eqn.invars):
            if _compat.is_literal(var):
                continue
            scope = made.get(var)
            if scope not in (None, members.get(position)) and not stays(
                policy, scope, eqn, number, places[position]
            ):
                left.add(var)
    left |= {v for v in results if not _compat.is_literal(v)}
    for position in members:
        for var in jaxpr.eqns[position].outvars:
            if var in left:
                place = places[position]
                yield Crossing(members[position], position, var, label(var), place, leaves=True)


def handed_in(
    policy: Policy, jaxpr: Any, position: int, places: Sequence[Place], members: dict[int, Scope]
) -> dict[Any, Scope]:
    """Return the inputs of a call's body that a scope made and that only the scope reads."""
    eqn = jaxpr.eqns[position]
    inner = _body_by_operands(eqn)
    if inner is None:
        return {}
    made = {var: members.get(p) for p, other in enumerate(jaxpr.eqns) for var in other.outvars}
    found = {}
    for number, var in enumerate(eqn.invars):
        scope = None if _compat.is_literal(var) else made.get(var)
        if scope is not None and stays(policy, scope, eqn, number, places[position]):
            found[inner.invars[number]] = scope
    return found


def saved_results(jaxpr: Any, position: int, places: Sequence[Place], saved: frozenset[int]):
    """Return the numbers of an equation's results that only backward equations read."""
    eqn = jaxpr.eqns[position]
    if places[position].direction == "backward":
        return frozenset()
    elsewhere = {v for i, v in enumerate(jaxpr.outvars) if i not in saved}
    elsewhere = {v for v in elsewhere if not _compat.is_literal(v)}
    for place, other in zip(places, jaxpr.eqns, strict=True):
        if place.direction == "forward":
            elsewhere |= {v for v in other.invars if not _compat.is_literal(v)}
    return frozenset(i for i, v in enumerate(eqn.outvars) if v not in elsewhere)
