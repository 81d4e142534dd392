"""The second pass: emit a jaxpr again with the casts of its plan.

Equations the plan does not mention are bound unchanged. An equation whose body changes is rebuilt
with another signature: *feed* (formats that are data, one entry for each) goes in as further
operands, and a *tally* (one record per site, made by an `Observer`) comes out as further results.
Both pass through scan, while, cond, jit, remat and custom rules explicitly, never by closing over
a traced value of another trace, so the result can be differentiated, mapped and transformed again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim.casting import fake_cast
from npusim.inject import _compat, mesh
from npusim.inject.apply import apply_cast, cast_cotangent
from npusim.inject.bodies import EMIT, inline
from npusim.inject.feed import Feed as Feed
from npusim.inject.feed import Values as Values
from npusim.inject.feed import specs_in
from npusim.inject.observer import Observer as Observer
from npusim.inject.observer import Seen as Seen
from npusim.inject.plan import Body, Planned, Site
from npusim.modes import LABORATORY, Target
from npusim.ops.accumulate import normal_dims, ordered_dot

Tally = list[Any]
"""One record per site of a body, in the order of `Body.all_sites`."""


@dataclasses.dataclass(frozen=True)
class Walker:
    """Emits planned jaxprs.

    Attributes:
        target: the chip whose rules the casts follow.
        observer: makes the records of the tally; None: no tally.
    """

    target: Target = LABORATORY
    observer: Observer | None = None

    def run(
        self, body: Body, consts: Sequence[Any], args: Sequence[Any], feed: Feed
    ) -> tuple[Values, Tally]:
        """Evaluate the planned jaxpr on these values."""
        jaxpr = _compat.opened(body.jaxpr)
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env |= dict(zip(jaxpr.invars, args, strict=True))
        last = _last_uses(jaxpr)
        spread = {} if self.observer is None else mesh.spreads(jaxpr)
        at_site: dict[int, Any] = {}
        at_crossing: dict[Any, Any] = {}
        entered: dict[Any, Any] = {}  # by scope and variable: the value inside of the scope
        made: dict[Any, Any] = {}  # what a scope made, as it is inside of it
        at_call: dict[int, Tally] = {}

        def read(atom: Any, scope: Any = None) -> Any:
            if _compat.is_literal(atom):
                return atom.val
            if scope is None:
                return env[atom]
            key = (scope, atom)
            if key in made:
                return made[key]
            if key not in body.enters:
                return env[atom]
            if key not in entered:
                entered[key], at_crossing[key] = self.cross(
                    body.enters[key], env[atom], feed, _axes(spread, [atom])
                )
            return entered[key]

        for position, eqn in enumerate(jaxpr.eqns):
            scope = body.members.get(position)
            operands = [read(atom, scope) for atom in eqn.invars]
            with _compat.context_of(eqn):
                if position in body.sites:
                    planned = body.sites[position]
                    results, at_site[position] = self.site(eqn, planned, operands, feed, spread)
                elif position in body.calls:
                    bodies = body.calls[position]
                    emit = EMIT.get(_compat.name_of(eqn), inline)
                    # A forward rule is planned late and may need what the body does not.
                    inner = (
                        feed if emit is EMIT[_compat.CUSTOM_VJP] else feed.only(specs_in(bodies))
                    )
                    operands = [
                        _typed(atom, operand)
                        for atom, operand in zip(eqn.invars, operands, strict=True)
                    ]
                    results, at_call[position] = emit(self, eqn, bodies, operands, inner)
                else:
                    results = _compat.bind(eqn, operands)
            for var, result in zip(eqn.outvars, results, strict=True):
                if var in body.leaves:
                    made[scope, var] = result
                    with _compat.context_of(eqn):
                        result, at_crossing[var] = self.cross(
                            body.leaves[var], result, feed, _axes(spread, [var])
                        )
                if not _compat.is_dropped(var):
                    env[var] = result
            for var in last.get(position, ()):
                env.pop(var, None)
        outs = [read(atom) for atom in jaxpr.outvars]
        if self.observer is None:
            return outs, []
        calls = [record for position in body.calls for record in at_call[position]]
        crossings = [at_crossing[key] for key in (*body.enters, *body.leaves)]
        return outs, [at_site[position] for position in body.sites] + crossings + calls

    def cross(self, plan: Planned, value: Any, feed: Feed, differs: mesh.Axes) -> tuple[Any, Any]:
        """Cast a value where it enters or leaves a scope; its dtype stays."""
        value = jnp.asarray(value)
        out, seen = value, []
        for slot, given in plan.specs:
            spec = feed.resolve(given, plan.site)
            if slot == "grad":
                continue
            after = apply_cast(spec, out, target=self.target)
            seen.append(Seen(slot, spec, out, after, differs))
            out = _stored(after, value.dtype)
        for slot, given in plan.specs:
            if slot == "grad":
                spec = feed.resolve(given, plan.site)
                out = cast_cotangent(spec, out, target=self.target)
        return out, self.record(plan.site, seen)

    def record(self, site: Site, seen: Sequence[Seen]) -> Any:
        """The observer's record, None without one.

        Inside shard_map all records differ over all axes, so that branches and iterations agree.
        """
        if self.observer is None:
            return None
        return jax.tree.map(_compat.declared_different, self.observer.record(site, seen))

    def empty(self, bodies: Sequence[Body]) -> Tally:
        """The tally of bodies that did not run."""
        if self.observer is None:
            return []
        records = [self.observer.empty(p.site) for body in bodies for p in body.all_sites()]
        return jax.tree.map(_compat.declared_different, records)

    def join(self, a: Tally, b: Tally) -> Tally:
        """The tally of two runs."""
        if self.observer is None:
            return []
        return [self.observer.join(x, y) for x, y in zip(a, b, strict=True)]

    def site(
        self, eqn: Any, plan: Planned, operands: Values, feed: Feed, spread: mesh.Spread
    ) -> tuple[Values, Any]:
        """Emit one operation with its casts."""
        everywhere = _axes(spread, eqn.invars)
        casts = {slot: feed.resolve(spec, plan.site) for slot, spec in plan.specs}
        seen: list[Seen] = []
        wide = _is_narrow(eqn)
        converts = _compat.name_of(eqn) == _compat.CONVERT
        given = list(operands)
        for position, operand in enumerate(operands):
            if position in casts:
                operand = _typed(eqn.invars[position], operand)
                after = apply_cast(casts[position], operand, target=self.target)
                differs = _axes(spread, [eqn.invars[position]])
                seen.append(Seen(position, casts[position], operand, after, differs))
                given[position] = after
            if converts:
                if "output" in casts:
                    before = _typed(eqn.invars[position], given[position])
                    given[position] = apply_cast(casts["output"], before, target=self.target)
                    after = given[position]
                    seen.append(Seen("output", casts["output"], before, after, everywhere))
            elif wide or position in casts:
                given[position] = _carried(given[position], operand, wide)
        changed: dict[str, Any] = {}
        if wide and "update_jaxpr" in eqn.params:
            changed["update_jaxpr"] = _compat.combiner(eqn, np.float32)
        if wide and eqn.params.get("preferred_element_type") is not None:
            changed["preferred_element_type"] = np.dtype(np.float32)
        if eqn.params.get("precision", 0) is None and wide | bool(seen):
            # The operands are on a grid already: no accelerator may round them once more.
            changed["precision"] = _HIGHEST
        if converts:
            results = given
        elif plan.accumulate is not None:
            wide_operands = [_carried(x, x, True) for x in given]
            dims = normal_dims(eqn.params["dimension_numbers"])
            results = [ordered_dot(*wide_operands, dims, plan.accumulate)]
        else:
            results = _compat.bind(eqn, given, **changed)
        outs = []
        for var, result in zip(eqn.outvars, results, strict=True):
            dtype = var.aval.dtype
            if not jnp.issubdtype(dtype, jnp.floating):
                outs.append(result)
                continue
            if "output" in casts and not converts:
                after = apply_cast(casts["output"], result, target=self.target)
                seen.append(Seen("output", casts["output"], result, after, everywhere))
                result = after
            if "grad" in casts:
                result = cast_cotangent(casts["grad"], result, target=self.target)
            outs.append(_stored(result, dtype))
        return outs, self.record(plan.site, seen)


def _axes(spread: mesh.Spread, atoms: Sequence[Any]) -> mesh.Axes:
    """The mesh axes over which one of these values differs."""
    return mesh.Axes().union(*(spread.get(a, ()) for a in atoms if not _compat.is_literal(a)))


_HIGHEST = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
_NARROW = 4  # bytes: floats below this width are computed on float32 carriers


def _is_narrow(eqn: Any) -> bool:
    """Whether the operation has float operands or results of 16 bits or fewer, and no wider one."""
    atoms = (*eqn.invars, *eqn.outvars)
    dtypes = [a.aval.dtype for a in atoms if hasattr(a.aval, "dtype")]
    floats = [d for d in dtypes if jnp.issubdtype(d, jnp.floating)]
    return any(d.itemsize < _NARROW for d in floats) and "new_dtype" not in eqn.params


def _carried(value: Any, operand: Any, wide: bool) -> Any:
    """A cast operand in the dtype that the operation computes in."""
    dtype = jnp.result_type(operand)
    if not jnp.issubdtype(dtype, jnp.floating):
        return value
    if wide and dtype.itemsize < _NARROW:
        dtype = np.dtype(np.float32)
    return value if jnp.result_type(value) == dtype else lax.convert_element_type(value, dtype)


def _stored(result: Any, dtype: Any) -> Any:
    """A result in the operation's own dtype, rounded in integers where that is narrower.

    A plain convert pair may be removed by XLA on an accelerator; integer rounding cannot be.
    """
    if result.dtype == dtype:
        return result
    if np.dtype(dtype) in (np.dtype(jnp.bfloat16), np.dtype(np.float16)):
        result = fake_cast(result, dtype, "RINT", "OFF")
    return lax.convert_element_type(result, dtype)


def _typed(atom: Any, value: Any) -> Any:
    """A literal operand as an array of its own dtype: a bare number would follow x64's rules."""
    if _compat.is_literal(atom):
        return jnp.asarray(value, atom.aval.dtype)
    return value


def _last_uses(jaxpr: Any) -> dict[int, list[Any]]:
    """For each equation the variables that nobody reads after it, so that eager runs free them."""
    last: dict[Any, int] = {}
    for position, eqn in enumerate(jaxpr.eqns):
        for atom in eqn.invars:
            if not _compat.is_literal(atom):
                last[atom] = position
    for atom in jaxpr.outvars:
        if not _compat.is_literal(atom):
            last.pop(atom, None)
    uses: dict[int, list[Any]] = {}
    for atom, position in last.items():
        uses.setdefault(position, []).append(atom)
    return uses
