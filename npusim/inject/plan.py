"""The first pass: which operations a policy touches, found from shapes alone.

A plan mirrors the nesting of the jaxpr: a `Body` for each, with the equations in it that are sites
or have bodies. Nothing is computed, so a model too large to run can be planned, and the second
pass (`npusim.inject.walker`) binds every equation that the plan does not mention unchanged.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from npusim._errors import NpusimError, OpaqueKernelWarning
from npusim.dtypes import dtype as dtype_of
from npusim.inject import _compat, boundary, labels
from npusim.inject.body import Body as Body
from npusim.inject.body import Crossed
from npusim.inject.body import Planned as Planned
from npusim.inject.body import Site as Site
from npusim.inject.body import Slot as Slot
from npusim.inject.boundary import Scope
from npusim.inject.calls import CALLS
from npusim.inject.explain import formats_of, maker_of, named, output_of, why
from npusim.inject.held import COMPUTES, NOTHING, Formats, Held, followed
from npusim.inject.keys import Operation
from npusim.inject.kinds import BOUNDARY, CUBE_KINDS, kind_of
from npusim.inject.labels import Label
from npusim.inject.paths import Place
from npusim.inject.policy import Policy, check_cast
from npusim.inject.spec import CARRIERS, CastSpec
from npusim.ops.accumulate import Accumulate

_GENERATORS = """
    ball bernoulli beta binomial binomial_inversion btrs categorical cauchy chisquare choice
    dirichlet double_sided_maxwell exponential f gamma generalized_normal geometric gumbel laplace
    loggamma logistic lognormal maxwell multivariate_normal normal normal_real orthogonal pareto
    permutation poisson poisson_knuth poisson_rejection rademacher randint rayleigh shuffle t
    triangular truncated_normal uniform wald weibull_min
"""
GENERATORS = frozenset(f"_{name}" for name in _GENERATORS.split())
"""Jitted functions of jax.random. bf16 inside a normal generator makes inf: never cast."""


@dataclasses.dataclass
class Planner:
    """Plans jaxprs for one policy.

    Attributes:
        policy: the policy.
        sites: every site seen, cast or not, in program order.
        hit: numbers of the rules that matched something.
        opaque: what could not be looked into, by name, with its path.
        listed: op kinds that are listed even where no rule speaks of them.
        others: primitives of float operations that are not listed, one entry for each.
        saved: by identity of a jaxpr that is being planned: the numbers of the results that only a
            backward pass reads.
        inherited: inputs of such a jaxpr that a part of a scope outside of it made.
    """

    policy: Policy
    sites: list[Site] = dataclasses.field(default_factory=list)
    hit: set[int] = dataclasses.field(default_factory=set)
    opaque: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    listed: tuple[str, ...] = CUBE_KINDS
    others: list[str] = dataclasses.field(default_factory=list)
    saved: dict[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    inherited: dict[Any, Scope] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.formats = Formats(any(rule.follow is not None for rule in self.policy.rules))

    def body(
        self,
        jaxpr: Any,
        given: Sequence[Label | None],
        place: Place,
        trips: int | None = 1,
        *,
        record: bool = True,
    ) -> Body:
        """Plan one jaxpr whose inputs have these labels."""
        plan = Body(jaxpr)
        inner = _compat.opened(jaxpr)
        known: dict[Any, Label | None] = dict.fromkeys(inner.constvars, labels.INPUT)
        known |= dict(zip(inner.invars, given, strict=True))
        formats = self.formats
        formats.start(inner.invars, given)
        formats.constants(inner.constvars)

        def read(atom: Any) -> Label | None:
            return None if _compat.is_literal(atom) else known[atom]

        places = [boundary.place_of(self.policy, place, eqn) for eqn in inner.eqns]
        scopes = boundary.scopes(self.policy, places, place)
        chosen: dict[tuple[Scope, str], Held] = {}  # what the boundary rules that follow go by
        saved = self.saved.get(id(inner), frozenset())
        for position, eqn in enumerate(inner.eqns):
            here, scope = places[position], scopes.get(position)
            operands = [read(atom) for atom in eqn.invars]
            self._choose(chosen, eqn, operands, scope, here)
            handler = CALLS.get(_compat.name_of(eqn))
            if handler is not None and eqn.params.get("name") not in GENERATORS:
                formats.call(eqn, scope)
                with self._around(inner, position, places, scopes, saved):
                    bodies, results = handler(self, eqn, operands, here, trips, record)
                if any(body.active for body in bodies):
                    plan.calls[position] = bodies
            else:
                results = labels.results(eqn, operands, here.direction)
                planned = None
                if handler is None:
                    planned = self.site(eqn, operands, here, trips, record, scope)
                    if planned is not None and planned.active:
                        plan.sites[position] = planned
                formats.made(eqn, scope, output_of(planned), maker_of(eqn, here))
            if scope is not None and formats.on:
                formats.left(eqn.outvars, scope, *self._leaves(chosen, scope, here))
            known |= dict(zip(eqn.outvars, results, strict=True))
        plan.results = [read(atom) for atom in inner.outvars]
        if scopes:
            plan.members = scopes
            for crossing in boundary.crossings(
                self.policy, inner, scopes, places, read, saved, self.inherited
            ):
                self._cross(plan, crossing, trips, record, chosen)
        return plan

    def _held(self, eqn: Any, operands: list[Label | None], scope: Scope | None) -> list[Held]:
        """How the operands are held; gradients first, as the NPU's gradient operators take them."""
        order = sorted(range(len(operands)), key=lambda i: operands[i] != labels.GRAD)
        return [self.formats.read(eqn.invars[i], scope) for i in order]

    def _choose(
        self,
        chosen: dict[tuple[Scope, str], Held],
        eqn: Any,
        operands: list[Label | None],
        scope: Scope | None,
        place: Place,
    ) -> None:
        """Note what a boundary rule that follows goes by: what is read first and computed with."""
        if scope is None or (scope, place.direction) in chosen:
            return
        if _compat.name_of(eqn) not in COMPUTES and not _compat.bodies(eqn):
            return
        follow = self.policy.rules[scope[0]].follow
        if follow is None:
            return
        held = self._held(eqn, operands, scope)
        found = followed(follow, held)
        if found.format is not None and not all(operand.fixed for operand in held):
            chosen[scope, place.direction] = found

    def _leaves(
        self, chosen: dict[tuple[Scope, str], Held], scope: Scope, place: Place
    ) -> tuple[str | None, str]:
        """The format that the results of a scope are cast to, if they are, and by whom."""
        rule = self.policy.rules[scope[0]]
        spec = rule.grad if place.direction == "backward" else rule.output
        casts = spec is not None and place.direction in rule.directions
        if rule.follow is not None:
            casts &= chosen.get((scope, place.direction), NOTHING).narrow
        return (named(spec) if casts else None), scope[1]

    @contextlib.contextmanager
    def _around(
        self,
        jaxpr: Any,
        position: int,
        places: list[Place],
        scopes: dict[int, Scope],
        saved: frozenset[int],
    ) -> Iterator[None]:
        """Tell the bodies of an equation what scopes outside of them make and read."""
        if not any(rule.boundary for rule in self.policy.rules):
            yield
            return
        before = self.saved, self.inherited
        inside = [id(_compat.opened(body)) for body in _compat.bodies(jaxpr.eqns[position])]
        numbers = boundary.saved_results(jaxpr, position, places, saved)
        self.saved = self.saved | dict.fromkeys(inside, numbers)
        self.inherited = self.inherited | boundary.handed_in(
            self.policy, jaxpr, position, places, scopes
        )
        yield
        self.saved, self.inherited = before

    def _cross(
        self,
        plan: Body,
        crossing: boundary.Crossing,
        trips: int | None,
        record: bool,
        chosen: dict[tuple[Scope, str], Held],
    ) -> None:
        """Plan the casts of one value that enters or leaves a scope."""
        number, path, _ = crossing.scope
        aval, place = crossing.var.aval, crossing.place
        rule = self.policy.rules[number]
        by = chosen.get((crossing.scope, place.direction), NOTHING)
        if rule.follow is not None and not by.narrow:
            if record:
                self.hit.add(number)
            return
        specs = tuple(
            (slot, spec)
            for slot, spec in crossing.casts(rule)
            if self._applies(spec, aval, rule=number, role=crossing.role)
        )
        if not specs:
            return
        roles = () if crossing.leaves else (crossing.role,)
        copies = 1 if crossing.leaves else 2
        site = Site(
            path=path,
            op=BOUNDARY,
            kind=BOUNDARY,
            direction=place.direction,
            rule=number,
            roles=roles,
            shapes=(tuple(aval.shape),) * copies,
            dtypes=(str(aval.dtype),) * copies,
            casts=tuple((s if isinstance(s, str) else f"{roles[s]} {s}", str(c)) for s, c in specs),
            recomputed=place.recomputed,
            trips=trips,
            einsum=None,
            method=None,
            source=place.source,
            formats=", ".join(dict.fromkeys(named(spec) for slot, spec in specs if slot != "grad")),
            why=why(rule, place, by),
        )
        crossed = Crossed(site, specs, position=crossing.position)
        if crossing.leaves:
            plan.leaves[crossing.var] = crossed
        else:
            plan.enters[crossing.scope, crossing.var] = crossed
        if record:
            self.sites.append(site)
            self.hit.add(number)

    def site(
        self,
        eqn: Any,
        operands: list[Label | None],
        place: Place,
        trips: int | None,
        record: bool,
        scope: Scope | None = None,
    ) -> Planned | None:
        """Return the site that an equation is, None where no rule or kind speaks of it."""
        name = _compat.name_of(eqn)
        if name in _compat.OPAQUE or (_compat.bodies(eqn) and name not in _compat.COMBINERS):
            if record:
                self.opaque.append((_kernel_name(eqn, name), place.path))
            return None
        operation = _operation(eqn, name, place)
        number = self.policy.find(operation)
        kind = kind_of(name)
        back = self._back(operation)
        if kind not in CUBE_KINDS and not _computes_floats(eqn, kind):
            return None
        if number is None and back is None and kind not in self.listed:
            if record:
                self.others.append(name)
            return None
        avals = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
        roles = labels.roles(operands, place.direction)
        rule = None if number is None else self.policy.rules[number]
        by = NOTHING
        if rule is not None and rule.follow is not None and not rule.boundary:
            by = followed(rule.follow, self._held(eqn, operands, scope))
        stays = rule is not None and (rule.boundary or (rule.follow is not None and not by.narrow))
        specs = () if stays else self._specs(eqn, number, back, roles)
        casts = tuple((s if isinstance(s, str) else f"{roles[s]} {s}", str(c)) for s, c in specs)
        accumulate = self._accumulate(eqn, number)
        if accumulate is not None:
            form = accumulate if isinstance(accumulate, str) else " ".join(map(str, accumulate))
            casts += (("accumulate", form),)
        site = Site(
            path=place.path,
            op=name,
            kind=kind,
            direction=place.direction,
            rule=number,
            roles=roles,
            shapes=tuple(getattr(aval, "shape", ()) for aval in avals),
            dtypes=tuple(str(getattr(aval, "dtype", "")) for aval in avals),
            casts=casts,
            recomputed=place.recomputed,
            trips=trips,
            einsum=place.einsum,
            method=place.method,
            source=place.source,
            formats=formats_of(eqn, dict(specs)),
            why="" if rule is None else why(rule, place, by),
        )
        if record:
            self.sites.append(site)
            # Casts that meet nothing but complex numbers or integers have hit nothing.
            if number is not None and rule and (_any_real(eqn) or not any(rule.casts())):
                self.hit.add(number)
        return Planned(site, specs, accumulate)

    def _accumulate(self, eqn: Any, number: int | None) -> Accumulate | None:
        """The order of a float product's sum, None where it is XLA's."""
        if number is None or _compat.name_of(eqn) != _compat.MATMUL:
            return None
        form = self.policy.rules[number].accumulate
        carried = [np.dtype(atom.aval.dtype) in CARRIERS for atom in eqn.invars]
        wide = any(np.dtype(atom.aval.dtype) == np.float64 for atom in eqn.invars)
        return None if form == "fast" or wide or not all(carried) else form

    def _back(self, operation: Operation) -> int | None:
        """The rule whose ``grad`` casts the cotangent that will come back to a forward site."""
        if operation.direction != "forward":
            return None
        back = self.policy.find(dataclasses.replace(operation, direction="backward"))
        rule = None if back is None else self.policy.rules[back]
        return None if rule is None or rule.grad is None or rule.boundary else back

    def _specs(
        self, eqn: Any, number: int | None, back: int | None, roles: tuple[str, ...]
    ) -> tuple[tuple[Slot, CastSpec], ...]:
        # A conversion's result is cast from its operand: rounding twice would be another value.
        made = eqn.invars if _compat.name_of(eqn) == _compat.CONVERT else eqn.outvars
        found: list[tuple[Slot, CastSpec]] = []
        if number is not None:
            rule = self.policy.rules[number]
            for position, (atom, role) in enumerate(zip(eqn.invars, roles, strict=True)):
                spec = getattr(rule, role)
                if spec is not None and self._applies(spec, atom.aval, rule=number, role=role):
                    found.append((position, spec))
            if rule.output is not None and any(
                self._applies(rule.output, var.aval, rule=number, role="output") for var in made
            ):
                found.append(("output", rule.output))
        if back is not None:
            spec = self.policy.rules[back].grad
            if any(self._applies(spec, var.aval, rule=back, role="grad") for var in eqn.outvars):
                found.append(("grad", spec))
                self.hit.add(back)
        return tuple(found)

    def _applies(self, spec: CastSpec, aval: Any, rule: int | None, role: str) -> bool:
        """Whether the spec does anything to a value of this type; checks the target on the way."""
        dtype = getattr(aval, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating) or not spec.casts(dtype):
            return False
        target = self.policy.target
        if target is not None and target.api != "numerics" and role in ("input", "weight"):
            try:
                check_cast(dtype_of(np.dtype(dtype)), spec, target)
            except NpusimError as error:
                text = str(error).removeprefix("Given: ")
                raise type(error)(f"Given: rule {(rule or 0) + 1}, {role}: {text}") from error
        return True

    def warn(self) -> None:
        """Warn of kernels that could not be looked into, by name."""
        for name, path in dict.fromkeys(self.opaque):
            warnings.warn(
                f"{name} at {path or 'the top level'} is opaque: its inside is not simulated. "
                "Apply simulate inside of it, or write that part in plain JAX.",
                OpaqueKernelWarning,
                stacklevel=4,
            )


def _operation(eqn: Any, name: str, place: Place) -> Operation:
    operands, results = (
        frozenset(str(getattr(atom.aval, "dtype", "")) for atom in atoms)
        for atoms in (eqn.invars, eqn.outvars)
    )
    return Operation(
        place.path, name, place.direction, place.source, operands, results, place.functions
    )


def _computes_floats(eqn: Any, kind: str) -> bool:
    """Whether floats go in or come out, complex ones included: those are listed and never cast.

    A conversion counts where real floats do both and differ.
    """
    atoms = (*eqn.invars, *eqn.outvars)
    dtypes = [atom.aval.dtype for atom in atoms if hasattr(atom.aval, "dtype")]
    if kind == "convert":
        floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
        return len(floats) == 2 and floats[0] != floats[1]
    return any(jnp.issubdtype(dtype, jnp.inexact) for dtype in dtypes)


def _any_real(eqn: Any) -> bool:
    """Whether a real float goes in or comes out."""
    dtypes = [getattr(atom.aval, "dtype", np.bool_) for atom in (*eqn.invars, *eqn.outvars)]
    return any(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes)


def _kernel_name(eqn: Any, name: str) -> str:
    for key in ("name", "call_target_name", "target_name"):
        given = eqn.params.get(key)
        if isinstance(given, str) and given and given != name:
            return f"{name} {given!r}"
    return name
