"""The second pass: emit a jaxpr again with the casts of its plan.

Equations the plan does not mention are bound unchanged. An equation whose body changes is rebuilt
with another signature: *feed* (formats that are data, one entry for each) goes in as further
operands, and a *tally* (one record per site, made by an `Observer`) comes out as further results.
Both pass through scan, while, cond, jit, remat and custom rules explicitly, never by closing over
a traced value of another trace, so the result can be differentiated, mapped and transformed again.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim._errors import PolicyError, message
from npusim.casting import fake_cast
from npusim.inject import _compat
from npusim.inject.plan import Body, Planned, Site, Slot
from npusim.inject.spec import CastSpec, apply_cast, cast_cotangent
from npusim.modes import LABORATORY, Target

Values = list[Any]
Tally = list[Any]
"""One record per site of a body, in the order of `Body.all_sites`."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What one cast did: where, the spec, the value before and the value after."""

    slot: Slot
    spec: CastSpec
    before: jax.Array
    after: jax.Array


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
        at_site: dict[int, Any] = {}
        at_call: dict[int, Tally] = {}

        def read(atom: Any) -> Any:
            return atom.val if _compat.is_literal(atom) else env[atom]

        for position, eqn in enumerate(jaxpr.eqns):
            operands = [read(atom) for atom in eqn.invars]
            with _compat.context_of(eqn):
                if position in body.sites:
                    planned = body.sites[position]
                    results, at_site[position] = self.site(eqn, planned, operands, feed)
                elif position in body.calls:
                    bodies = body.calls[position]
                    emit = _EMIT.get(_compat.name_of(eqn), _inline)
                    # A forward rule is planned late and may need what the body does not.
                    inner = feed if emit is _custom_vjp else feed.only(_specs(bodies))
                    operands = [
                        _typed(atom, operand)
                        for atom, operand in zip(eqn.invars, operands, strict=True)
                    ]
                    results, at_call[position] = emit(self, eqn, bodies, operands, inner)
                else:
                    results = _compat.bind(eqn, operands)
            for var, result in zip(eqn.outvars, results, strict=True):
                if not _compat.is_dropped(var):
                    env[var] = result
            for var in last.get(position, ()):
                env.pop(var, None)
        outs = [read(atom) for atom in jaxpr.outvars]
        if self.observer is None:
            return outs, []
        calls = [record for position in body.calls for record in at_call[position]]
        return outs, [at_site[position] for position in body.sites] + calls

    def empty(self, bodies: Sequence[Body]) -> Tally:
        """The tally of bodies that did not run."""
        if self.observer is None:
            return []
        return [self.observer.empty(p.site) for body in bodies for p in body.all_sites()]

    def join(self, a: Tally, b: Tally) -> Tally:
        """The tally of two runs."""
        if self.observer is None:
            return []
        return [self.observer.join(x, y) for x, y in zip(a, b, strict=True)]

    def site(self, eqn: Any, plan: Planned, operands: Values, feed: Feed) -> tuple[Values, Any]:
        """Emit one operation with its casts."""
        casts = {slot: feed.resolve(spec, plan.site) for slot, spec in plan.specs}
        seen: list[Seen] = []
        wide = _is_narrow(eqn)
        given = list(operands)
        for position, operand in enumerate(operands):
            if position in casts:
                operand = _typed(eqn.invars[position], operand)
                after = apply_cast(casts[position], operand, target=self.target)
                seen.append(Seen(position, casts[position], operand, after))
                given[position] = after
            if wide or position in casts:
                given[position] = _carried(given[position], operand, wide)
        changed: dict[str, Any] = {}
        if wide and eqn.params.get("preferred_element_type") is not None:
            changed["preferred_element_type"] = np.dtype(np.float32)
        if eqn.params.get("precision", 0) is None and wide | bool(seen):
            # The operands are on a grid already: no accelerator may round them once more.
            changed["precision"] = _HIGHEST
        results = _compat.bind(eqn, given, **changed)
        outs = []
        for var, result in zip(eqn.outvars, results, strict=True):
            dtype = var.aval.dtype
            if not jnp.issubdtype(dtype, jnp.floating):
                outs.append(result)
                continue
            if "output" in casts:
                after = apply_cast(casts["output"], result, target=self.target)
                seen.append(Seen("output", casts["output"], result, after))
                result = after
            if "grad" in casts:
                result = cast_cotangent(casts["grad"], result, target=self.target)
            outs.append(_stored(result, dtype))
        record = None if self.observer is None else self.observer.record(plan.site, seen)
        return outs, record


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


def _specs(bodies: Sequence[Body]) -> set[int]:
    planned = [p for body in bodies for p in body.all_sites()]
    return {id(spec) for p in planned for _, spec in p.specs}


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


def _retraced(
    walker: Walker, body: Body, feed: Feed, everything: Sequence[Body] | None = None
) -> tuple[Any, int]:
    """Trace a body with the signature (feed, old operands) -> (old results, tally).

    ``everything`` are the bodies whose tally it returns, for branches that must agree on it.
    """
    jaxpr = _compat.opened(body.jaxpr)
    leaves = feed.leaves
    extra = len(leaves)
    added: list[int] = []

    def call(*args: Any) -> tuple[Any, ...]:
        inner = feed.filled(args[:extra])
        outs, tally = walker.run(body, _compat.constants(body.jaxpr), args[extra:], inner)
        tallies = [tally if b is body else walker.empty([b]) for b in everything or [body]]
        records = jax.tree.leaves(tallies)
        added.append(len(records))
        return (*outs, *records)

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    closed, _ = _compat.trace(call, *shapes, *(var.aval for var in jaxpr.invars))
    return closed, added[-1]


def _untallied(walker: Walker, bodies: Sequence[Body], leaves: Sequence[Any]) -> Tally:
    """Rebuild the tally of bodies from its leaves."""
    if walker.observer is None:
        return []
    structure = jax.tree.structure(jax.eval_shape(lambda: walker.empty(bodies)))
    return jax.tree.unflatten(structure, list(leaves))


def _split(values: Sequence[Any], *counts: int) -> list[list[Any]]:
    out, rest = [], list(values)
    for count in counts:
        out.append(rest[:count])
        rest = rest[count:]
    return [*out, rest]


Emit = Callable[[Walker, Any, list[Body], Values, Feed], tuple[Values, Tally]]


def _inline(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    return walker.run(bodies[0], _compat.constants(bodies[0].jaxpr), operands, feed)


def _jit(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    closed, added = _retraced(walker, bodies[0], feed)
    leaves = feed.leaves
    out = _compat.rebuild_jit(eqn, closed, len(leaves), added, [*leaves, *operands])
    outs, records = _split(out, len(out) - added)
    return outs, _untallied(walker, bodies, records)


def _remat(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    closed, added = _retraced(walker, bodies[0], feed)
    out = _compat.rebuild_remat(eqn, closed, [*feed.leaves, *operands])
    outs, records = _split(out, len(out) - added)
    return outs, _untallied(walker, bodies, records)


def _cond(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    index, *rest = operands
    traced = [_retraced(walker, body, feed, bodies) for body in bodies]
    branches = [closed for closed, _ in traced]
    out = _compat.rebuild_cond(eqn, index, branches, [*feed.leaves, *rest])
    outs, records = _split(out, len(out) - traced[0][1])
    return outs, _untallied(walker, bodies, records)


def _scan(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    body = bodies[0]
    consts, carry, xs = _split(operands, *_compat.scan_layout(eqn))
    shared, dealt = feed.divided(eqn.params["length"])

    def step(carried: Any, sliced: Any) -> tuple[Any, Any]:
        (carries, tally), (own, leaves) = carried, sliced
        inner = shared.merged(dealt.filled(leaves, sliced=True))
        args = [*consts, *carries, *own]
        outs, new = walker.run(body, _compat.constants(body.jaxpr), args, inner)
        carries, ys = _split(outs, len(carries))
        return (carries, walker.join(tally, new)), ys

    start = (carry, walker.empty(bodies))
    (carries, tally), ys = _compat.rebuild_scan(eqn, step, start, (xs, dealt.leaves))
    return [*carries, *ys], tally


def _while(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    test, repeat = bodies
    of_test, of_repeat, carry = _split(operands, *_compat.while_layout(eqn))

    def run_test(carries: Values) -> tuple[Any, Tally]:
        consts = _compat.constants(test.jaxpr)
        outs, tally = walker.run(test, consts, [*of_test, *carries], feed)
        return outs[0], tally

    def run_repeat(carries: Values) -> tuple[Values, Tally]:
        consts = _compat.constants(repeat.jaxpr)
        return walker.run(repeat, consts, [*of_repeat, *carries], feed)

    if walker.observer is None or not any(True for _ in test.all_sites()):

        def step(state: Any) -> Any:
            carries, tally = state
            carries, new = run_repeat(carries)
            return carries, walker.join(tally, new)

        start = (carry, walker.empty([repeat]))
        carries, tally = lax.while_loop(lambda s: run_test(s[0])[0], step, start)
        return carries, [*walker.empty([test]), *tally]

    # A condition returns nothing but a boolean, so one with sites is evaluated in the body.
    def tested_step(state: Any) -> Any:
        _, carries, of_tests, tally = state
        carries, new = run_repeat(carries)
        go_on, newer = run_test(carries)
        return go_on, carries, walker.join(of_tests, newer), walker.join(tally, new)

    go_on, first = run_test(carry)
    state = (go_on, carry, first, walker.empty([repeat]))
    _, carries, of_tests, tally = lax.while_loop(lambda s: s[0], tested_step, state)
    return carries, [*of_tests, *tally]


def _custom_jvp(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    """Cast inside the function and keep the user's rule for its derivative."""
    body = bodies[0]
    rule = _compat.custom_jvp_rule(eqn)

    @jax.custom_jvp
    def call(leaves: Values, args: Values) -> tuple[Values, Tally]:
        return walker.run(body, _compat.constants(body.jaxpr), args, feed.filled(leaves))

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        out = call(*primals)
        _, moved = rule(primals[1], tangents[1])
        return out, (moved, jax.tree.map(_no_tangent, out[1]))

    return call(feed.leaves, operands)


def _custom_vjp(walker: Walker, eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    """Cast inside the function and its forward rule; the user's backward rule stays as it is."""
    body = bodies[0]
    forward, backward = _compat.custom_vjp_rules(eqn)

    @jax.custom_vjp
    def call(leaves: Values, args: Values) -> tuple[Values, Tally]:
        return walker.run(body, _compat.constants(body.jaxpr), args, feed.filled(leaves))

    def call_forward(leaves: Values, args: Values) -> Any:
        inner = feed.filled(leaves)
        # The forward rule is a function of its own; its sites are cast like those of the body.
        closed, shapes = _compat.trace(lambda *a: forward(*a), *args)
        assert body.again is not None
        plan = body.again(closed)
        flat, _ = walker.run(plan, _compat.constants(closed), args, inner)
        outs, residuals = jax.tree.unflatten(jax.tree.structure(shapes), flat)
        _, tally = walker.run(body, _compat.constants(body.jaxpr), args, inner)
        return (outs, tally), residuals

    def call_backward(residuals: Any, cotangents: Any) -> Any:
        return None, list(backward(residuals, cotangents[0]))

    call.defvjp(call_forward, call_backward)
    return call(feed.leaves, operands)


def _no_tangent(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        return jnp.zeros_like(leaf)
    return np.zeros(leaf.shape, jax.dtypes.float0)


_EMIT: dict[str, Emit] = {
    _compat.SCAN: _scan,
    _compat.WHILE: _while,
    _compat.COND: _cond,
    _compat.JIT: _jit,
    _compat.REMAT: _remat,
    _compat.CUSTOM_JVP: _custom_jvp,
    _compat.CUSTOM_VJP: _custom_vjp,
}
