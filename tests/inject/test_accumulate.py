"""Accumulation orders in rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import ops
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.helpers import same_arrays
from tests.inject.programs import PROGRAMS, W, X

LONG = jnp.concatenate([jnp.full(1, 2.0**24), jnp.ones(40)])[None]
ONES = jnp.ones((41, 1))


def matmul(w, x):
    return x @ w


@pytest.mark.parametrize("form", ["sequential", ("blocked", 8), "fast"])
def test_sums_in_the_order_of_ops(form):
    run = simulate(matmul, Policy([Rule(accumulate=form)]))
    dims = (((1,), (0,)), ((), ()))
    same_arrays(jax.jit(run)(ONES, LONG), ops.ordered_dot(LONG, ONES, dims, form), str(form))
    if form == "sequential":
        assert float(run(ONES, LONG)[0, 0]) == 2.0**24
    grad = jax.grad(lambda w: jnp.sum(run(w, LONG)))(ONES)
    same_arrays(grad, LONG.T, "gradient")


def test_beside_casts_and_on_float32_carriers():
    rule = Rule(input="e4m3", output="fp16", accumulate="sequential")
    (site,) = sites(matmul, Policy([rule]), W[0], X)
    assert site.casts[1:] == (("output", "fp16"), ("accumulate", "sequential"))
    narrow = simulate(matmul, Policy([rule]))(W[0].astype(jnp.bfloat16), X.astype(jnp.bfloat16))
    assert narrow.dtype == jnp.bfloat16
    _, stats = simulate(matmul, Policy([rule]), stats=True)(W[0], X)
    assert [row["slot"] for row in stats.table()] == ["input 0", "output"]
    _, none = simulate(matmul, Policy([Rule(accumulate="sequential")]), stats=True)(W[0], X)
    assert none.table() == []
    assert not bool(none.overflow)


@pytest.mark.parametrize("name", ["scan_of_remat", "mapped", "attention"])
def test_through_control_flow(name):
    step = jax.value_and_grad(PROGRAMS[name])
    got = jax.jit(simulate(step, Policy([Rule(accumulate=("blocked", 2))])))(W, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, step(W, X))


def test_fast_alone_changes_nothing():
    step = jax.value_and_grad(PROGRAMS["scanned"])
    run = simulate(step, Policy([Rule(accumulate="fast")]))
    same_arrays(jax.jit(run)(W, X), jax.jit(step)(W, X), "fast")
    wide = simulate(lambda w, x: x @ w, Policy([Rule(accumulate="sequential")]))
    same_arrays(wide(jnp.eye(2, dtype=int), jnp.eye(2, dtype=int)), jnp.eye(2, dtype=int), "int")


def test_plain_form():
    rule = Rule(input=CastSpec("e4m3"), accumulate=["blocked", 16])
    policy = Policy([rule])
    assert rule.to_dict()["accumulate"] == ["blocked", 16]
    assert Policy.from_dict(policy.to_dict()).rules[0].accumulate == ("blocked", 16)
    assert policy.hash() != Policy([Rule(input="e4m3")]).hash()
    assert repr(rule).endswith("accumulate=('blocked', 16))")
