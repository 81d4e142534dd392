"""Results added to bodies: counting what runs and what saturates, exactly, through control flow."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim.inject import CastSpec, Policy, Rule, observe, simulate
from tests.helpers import same_arrays
from tests.inject import programs
from tests.inject.programs import PROGRAMS, W, X


@dataclasses.dataclass(frozen=True)
class Counter:
    """Counts executions, elements seen by casts, elements the cast saturated, and the largest."""

    once: bool = True  # a recomputed site counts once

    def empty(self, site):
        zero = jnp.zeros((), jnp.int32)
        return {"runs": zero, "elements": zero, "saturated": zero, "amax": jnp.float32(0)}

    def record(self, site, seen):
        if self.once and site.recomputed:
            return self.empty(site)
        saturated = sum(jnp.sum(jnp.abs(s.before) > jnp.abs(s.after)) for s in seen)
        amax = jnp.stack([jnp.max(jnp.abs(s.before)) for s in seen]).max()
        return {
            "runs": jnp.int32(1),
            "elements": jnp.int32(sum(s.before.size for s in seen)),
            "saturated": jnp.asarray(saturated, jnp.int32),
            "amax": lax.stop_gradient(amax),
        }

    def join(self, a, b):
        out = jax.tree.map(jnp.add, a, b)
        return out | {"amax": jnp.maximum(a["amax"], b["amax"])}


# TRUNC keeps what is representable and lowers the rest; int8's step of 1 leaves only integers.
INPUT = CastSpec("int8", "TRUNC")
POLICY = Policy([Rule(input=INPUT)])


def totals(records, field="runs", **where):
    chosen = [
        r[field] for site, r in records if all(getattr(site, k) == v for k, v in where.items())
    ]
    return int(sum(chosen))


def test_runs_are_counted_through_scan_remat_cond_and_while():
    def model(w, x, flag):
        def layer(x, w):
            def yes(x):
                with jax.named_scope("yes"):
                    return x @ w

            x = lax.cond(flag, yes, lambda x: x + 0.0, x)
            with jax.named_scope("always"):
                return x @ w, None

        x, _ = lax.scan(jax.checkpoint(layer), x, w)

        def body(i, x):
            with jax.named_scope("loop"):
                return x @ w[0]

        x = lax.fori_loop(0, 5, body, x)
        x = lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, body(0, s[1])), (0, x))[1]
        return jax.jit(lambda x: jnp.sum(body(0, x)))(x)

    run = jax.jit(observe(model, POLICY, Counter()))
    plain = jax.jit(model)
    for flag in (True, False):
        value, records = run(W, X, flag)
        assert {site.path for site, _ in records} == {"yes", "always", "loop"}
        assert totals(records, path="yes") == (3 if flag else 0)
        assert totals(records, path="always") == 3
        assert totals(records, path="loop") == 5 + 4 + 1
        assert totals(records, "elements", path="always") == 3 * 16
        assert value.shape == plain(W, X, flag).shape


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


# By default one program: test_stats.py counts all of them.
@pytest.mark.parametrize(
    "name", ["scan_of_remat", *map(slow, ("nested_scans", "conditional", "remat"))]
)
def test_a_recomputed_site_counts_once(name):
    program = PROGRAMS[name]
    step = jax.value_and_grad(program)
    _, once = jax.jit(observe(step, POLICY, Counter()))(W, X)
    _, every = jax.jit(observe(step, POLICY, Counter(once=False)))(W, X)
    forward = jax.jit(observe(program, POLICY, Counter()))(W, X)[1]
    assert totals(once, direction="forward") == totals(forward) > 0
    if name != "conditional":
        assert totals(every, direction="forward") > totals(forward)
    # Under grad(simulate) the forward pass is walked once, and its recomputation returns nothing.
    loss = observe(program, POLICY, Counter())
    (_, records), _ = jax.jit(jax.value_and_grad(loss, has_aux=True))(W, X)
    assert totals(records) == totals(forward)


def test_saturated_elements_are_counted_exactly():
    spec = CastSpec("fp8_e4m3", "RINT", "ON")
    x = jnp.array([[449.0, 1.0, -1000.0, 448.0]] * 4)

    def model(w, x):
        def layer(x, w):
            return jnp.where(jnp.eye(4, dtype=bool), x @ w, x), None

        return lax.scan(jax.checkpoint(layer), x, w)[0]

    eyes = jnp.stack([jnp.eye(4)] * 3)
    _, records = jax.jit(observe(model, Policy([Rule(input=spec)]), Counter()))(eyes, x)
    ((site, record),) = records
    # Each layer saturates the two large columns; on the diagonal the result replaces the input.
    by_hand, saturated = np.array(x), 0
    for _ in range(3):
        cast = np.clip(by_hand, -448, 448)
        saturated += int((np.abs(by_hand) > np.abs(cast)).sum())
        by_hand = np.where(np.eye(4, dtype=bool), cast, by_hand)
    assert int(record["saturated"]) == saturated
    assert int(record["runs"]) == site.trips == 3
    assert float(record["amax"]) == 1000.0


def test_a_condition_with_sites_is_counted_too():
    value, records = jax.jit(observe(programs.while_loop, POLICY, Counter()))(W, X)
    iterations = int(value[0])
    assert totals(records, path="net/body") == iterations
    assert totals(records, path="net/test") == iterations + 1
    same_arrays(value, jax.jit(simulate(programs.while_loop, POLICY))(W, X), "value")


def test_custom_rules_return_records_and_keep_their_derivative():
    for program in (programs.custom_vjp, programs.custom_jvp):
        loss = observe(program, POLICY, Counter())
        (_, records), grads = jax.jit(jax.value_and_grad(loss, 1, has_aux=True))(W, X)
        assert [int(r["runs"]) for _, r in records] == [1] * len(records.sites)
        want = jax.jit(jax.grad(simulate(program, POLICY), 1))(W, X)
        np.testing.assert_allclose(grads, want, rtol=1e-6)


def test_records_under_vmap_are_those_of_each_example():
    run = functools.partial(observe(programs.scanned, POLICY, Counter()), W)

    x = jnp.stack([X, 3 * X])
    (record,) = jax.vmap(run)(x)[1].values
    np.testing.assert_array_equal(record["runs"], [3, 3])
    for i in range(2):
        (alone,) = run(x[i])[1].values
        np.testing.assert_allclose(record["amax"][i], alone["amax"], rtol=1e-6)


def test_values_are_those_of_simulate():
    for name in ("scan_of_remat", "conditional", "jitted"):
        step = jax.value_and_grad(PROGRAMS[name])
        value, _ = jax.jit(observe(step, POLICY, Counter()))(W, X)
        same_arrays(value, jax.jit(simulate(step, POLICY))(W, X), name)
