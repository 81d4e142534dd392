"""Equations with bodies: emitted again with feed going in and tally coming out.

Each function takes the walker, the equation, the plans of its bodies, its operands and the feed,
and returns the equation's results and the tally of the bodies.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npusim.inject import _compat
from npusim.inject.feed import Feed, Values
from npusim.inject.plan import Body

if TYPE_CHECKING:
    from npusim.inject.walker import Tally, Walker


def _retraced(
    walker: "Walker", body: Body, feed: Feed, everything: Sequence[Body] | None = None
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

    closed, _ = _compat.trace(call, *map(jax.typeof, leaves), *(var.aval for var in jaxpr.invars))
    return closed, added[-1]


def _untallied(walker: "Walker", bodies: Sequence[Body], leaves: Sequence[Any]) -> "Tally":
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


Emit = Callable[["Walker", Any, list[Body], Values, Feed], tuple[Values, "Tally"]]


def inline(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    """Emit a call by emitting what it calls."""
    return walker.run(bodies[0], _compat.constants(bodies[0].jaxpr), operands, feed)


def _jit(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    closed, added = _retraced(walker, bodies[0], feed)
    leaves = feed.leaves
    out = _compat.rebuild_jit(eqn, closed, len(leaves), added, [*leaves, *operands])
    outs, records = _split(out, len(out) - added)
    return outs, _untallied(walker, bodies, records)


def _remat(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    closed, added = _retraced(walker, bodies[0], feed)
    out = _compat.rebuild_remat(eqn, closed, [*feed.leaves, *operands])
    outs, records = _split(out, len(out) - added)
    return outs, _untallied(walker, bodies, records)


def _cond(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    index, *rest = operands
    traced = [_retraced(walker, body, feed, bodies) for body in bodies]
    branches = [closed for closed, _ in traced]
    out = _compat.rebuild_cond(eqn, index, branches, [*feed.leaves, *rest])
    outs, records = _split(out, len(out) - traced[0][1])
    return outs, _untallied(walker, bodies, records)


def _scan(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
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


def _while(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    test, repeat = bodies
    of_test, of_repeat, carry = _split(operands, *_compat.while_layout(eqn))

    def run_test(carries: Values) -> tuple[Any, "Tally"]:
        consts = _compat.constants(test.jaxpr)
        outs, tally = walker.run(test, consts, [*of_test, *carries], feed)
        return outs[0], tally

    def run_repeat(carries: Values) -> tuple[Values, "Tally"]:
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


def _custom_jvp(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    """Cast inside the function and keep the user's rule for its derivative."""
    body = bodies[0]
    rule = _compat.custom_jvp_rule(eqn)

    @jax.custom_jvp
    def call(leaves: Values, args: Values) -> tuple[Values, "Tally"]:
        return walker.run(body, _compat.constants(body.jaxpr), args, feed.filled(leaves))

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        out = call(*primals)
        _, moved = rule(primals[1], tangents[1])
        return out, (moved, jax.tree.map(_no_tangent, out[1]))

    return call(feed.leaves, operands)


def _custom_vjp(walker: "Walker", eqn: Any, bodies: list[Body], operands: Values, feed: Feed):
    """Cast inside the function and its forward rule; the user's backward rule stays as it is."""
    body = bodies[0]
    forward, backward = _compat.custom_vjp_rules(eqn)

    @jax.custom_vjp
    def call(leaves: Values, args: Values) -> tuple[Values, "Tally"]:
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


EMIT: dict[str, Emit] = {
    _compat.SCAN: _scan,
    _compat.WHILE: _while,
    _compat.COND: _cond,
    _compat.JIT: _jit,
    _compat.REMAT: _remat,
    _compat.CUSTOM_JVP: _custom_jvp,
    _compat.CUSTOM_VJP: _custom_vjp,
}
