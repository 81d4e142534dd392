"""A decoder one token at a time: keys and values in a mutable cache, under a policy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.flax.linen import simulate_apply
from npusim.inject import CastSpec, Policy, Rule, sites
from tests.flax.zoo import cases, models
from tests.flax.zoo.cases import TOKENS
from tests.helpers import same_arrays

PREFIX = 5
E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")
SCALED = CastSpec("fp8_e4m3", "RINT", "ON", scale="amax")
# Products of e4m3 values have 8 significant bits: a float32 sums a few of them exactly, so that the
# shape of an operand, by which XLA picks the order, does not show in the result.
STATIC = Policy([Rule(input=E4M3, weight=E4M3)])
FULL = models.Decoder(layers=1)
STEP = models.Decoder(layers=1, decode=True)


@functools.cache
def params():
    return cases.parameters(FULL, TOKENS)


def empty_cache():
    """As ``STEP.init`` makes it for the whole length."""
    shapes = jax.eval_shape(STEP.init, jax.random.key(0), TOKENS)["cache"]
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def at_once(apply):
    """The logits of the whole sequence."""
    return jax.jit(apply)({"params": params()}, TOKENS)


def by_steps(apply):
    """Prefill as a scan over the prefix, then a step by itself for each further token."""

    def step(cache, tokens):
        variables = {"params": params(), "cache": cache}
        logits, changed = apply(variables, tokens[:, None], mutable=["cache"])
        return changed["cache"], logits[:, 0]

    @jax.jit
    def run(cache):
        cache, first = jax.lax.scan(step, cache, TOKENS[:, :PREFIX].T)
        rest = []
        for tokens in TOKENS[:, PREFIX:].T:
            cache, logits = step(cache, tokens)
            rest.append(logits)
        return jnp.stack([*first, *rest], axis=1), cache

    return run(empty_cache())


def test_the_steps_give_the_logits_of_the_whole_sequence():
    want = at_once(simulate_apply(FULL, STATIC))
    got, cache = by_steps(simulate_apply(STEP, STATIC))
    same_arrays(got, want, "element by element, the casts do not see how long the input is")
    assert cache["step"] == TOKENS.shape[1]


@pytest.mark.slow
def test_a_scale_by_tensor_sees_how_long_the_input_is():
    policy = Policy([Rule(input=SCALED, weight=SCALED)])
    want = at_once(simulate_apply(FULL, policy))
    got, _ = by_steps(simulate_apply(STEP, policy))
    # The amax of one token's activations is not that of all of them: other steps of the grid.
    assert np.abs(got - want).max() > 1e-3
    np.testing.assert_allclose(got, want, atol=0.5)
    # Weights have the same scale either way.
    weights = Policy([Rule(weight=SCALED)])
    np.testing.assert_allclose(
        by_steps(simulate_apply(STEP, weights))[0],
        at_once(simulate_apply(FULL, weights)),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.slow
def test_without_casts_a_step_is_the_plain_one():
    nothing = Policy([Rule()])
    same_arrays(by_steps(simulate_apply(STEP, nothing)), by_steps(STEP.apply), "cache included")


def test_sites_of_a_step():
    variables = {"params": params(), "cache": empty_cache()}
    found = sites(STEP.apply, STATIC, variables, TOKENS[:, :1], mutable=["cache"])
    layer = "Decoder/layer_0"
    attention = [f"{layer}/attn/{name}" for name in ("query", "key", "value")]
    attention += [f"{layer}/attn"] * 2 + [f"{layer}/attn/out"]
    want = [*attention, f"{layer}/mlp/up", f"{layer}/mlp/down", "Decoder/head"]
    assert [s.path for s in found] == want
    # What comes out of the cache is no parameter.
    products = [s for s in found if s.einsum]
    assert [s.roles for s in products] == [("input", "input")] * 2
    assert {s.roles for s in found if not s.einsum} == {("input", "weight")}
    assert products[0].shapes[1] == (2, TOKENS.shape[1], models.HEADS, 4)
