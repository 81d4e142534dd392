"""How the bodies of calls are planned: what their inputs are, and what a loop makes of its carries.

Each function takes the planner, the equation, the labels of its operands, its place, how often it
runs and whether its sites are recorded, and returns the plans of the bodies and the labels of the
results.
"""

from typing import TYPE_CHECKING, Any

from npusim.inject import _compat, labels
from npusim.inject.body import Body
from npusim.inject.labels import Label
from npusim.inject.paths import Place

if TYPE_CHECKING:
    from npusim.inject.plan import Planner


def _plain(planner: "Planner", eqn: Any, operands: Any, place: Place, trips: Any, record: bool):
    """Bodies that run once, with the equation's operands: jit, remat, custom rules, calls."""
    inner, held = _compat.bodies(eqn)[0], planner.formats.given

    def plan(jaxpr: Any, record: bool) -> Body:
        planner.formats.enter(_compat.opened(jaxpr).invars, held)
        return planner.body(jaxpr, operands, place, trips, record=record)

    body = plan(inner, record)
    body.again = lambda jaxpr: plan(jaxpr, False)
    planner.formats.leave(eqn.outvars, [_compat.opened(inner).outvars])
    return [body], body.results


def _scan(planner: "Planner", eqn: Any, operands: Any, place: Place, trips: Any, record: bool):
    consts, carry = _compat.scan_layout(eqn)
    jaxpr, formats = _compat.bodies(eqn)[0], planner.formats
    inner = _compat.opened(jaxpr)
    formats.enter(inner.invars, formats.given)

    def step(carries: list[Label | None]) -> list[Label | None]:
        given = [*operands[:consts], *carries, *operands[consts + carry :]]
        return planner.body(jaxpr, given, place, trips, record=False).results[:carry]

    carries = labels.fixpoint(step, operands[consts : consts + carry])
    while formats.widened(inner.invars[consts : consts + carry], inner.outvars[:carry]):
        step(carries)
    given = [*operands[:consts], *carries, *operands[consts + carry :]]
    inside = None if trips is None else trips * eqn.params["length"]
    body = planner.body(jaxpr, given, place, inside, record=record)
    formats.leave(eqn.outvars, [inner.outvars])
    return [body], [*carries, *body.results[carry:]]


def _while(planner: "Planner", eqn: Any, operands: Any, place: Place, trips: Any, record: bool):
    of_cond, of_body = _compat.while_layout(eqn)
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    fixed = operands[of_cond : of_cond + of_body]
    formats, held = planner.formats, planner.formats.given
    inner, test = _compat.opened(body), _compat.opened(cond)
    formats.enter(inner.invars, held[of_cond:])

    def step(carries: list[Label | None]) -> list[Label | None]:
        return planner.body(body, [*fixed, *carries], place, None, record=False).results

    carries = labels.fixpoint(step, operands[of_cond + of_body :])
    while formats.widened(inner.invars[of_body:], inner.outvars):
        step(carries)
    formats.enter(test.invars[:of_cond], held[:of_cond])
    if formats.on:
        formats.enter(test.invars[of_cond:], [formats.read(v) for v in inner.invars[of_body:]])
    tested = planner.body(cond, [*operands[:of_cond], *carries], place, None, record=record)
    repeated = planner.body(body, [*fixed, *carries], place, None, record=record)
    formats.leave(eqn.outvars, [inner.invars[of_body:]])
    return [tested, repeated], carries


def _cond(planner: "Planner", eqn: Any, operands: Any, place: Place, trips: Any, record: bool):
    formats, held, bodies = planner.formats, planner.formats.given, []
    for branch in eqn.params["branches"]:
        formats.enter(_compat.opened(branch).invars, held[1:])
        bodies.append(planner.body(branch, operands[1:], place, None, record=record))
    formats.leave(eqn.outvars, [_compat.opened(b).outvars for b in eqn.params["branches"]])
    results = bodies[0].results
    for body in bodies[1:]:
        results = [labels.join(a, b) for a, b in zip(results, body.results, strict=True)]
    return bodies, results


CALLS: dict[str, Any] = {
    _compat.SCAN: _scan,
    _compat.WHILE: _while,
    _compat.COND: _cond,
    **dict.fromkeys(
        (
            _compat.JIT,
            _compat.REMAT,
            _compat.CUSTOM_JVP,
            _compat.CUSTOM_VJP,
            *_compat.INLINED,
        ),
        _plain,
    ),
}
"""Equations whose bodies are walked. Another one with a body is opaque."""
