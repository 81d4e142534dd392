"""Unmodified models train under a policy from a YAML file, with every site accounted for."""

import jax
import numpy as np
import optax
import pytest

from npusim.inject import Policy, report, simulate
from tests.flax import models as small
from tests.flax.zoo import cases, checks

pytestmark = pytest.mark.slow

STEPS = 20
LABELS = np.array([2, 0, 1, 1])
IMAGES = cases.normal(11, (4, 8, 8, 1))


def train(policy, loss, state):
    """The losses of a few steps of Adam: forward, backward and update under the policy."""
    optimizer = optax.adam(1e-2)

    def step(params, moments, rest, key):
        (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(params, rest, key)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, rest, value

    params, rest = state
    moments = optimizer.init(params)
    told = report(step, policy, params, moments, rest, jax.random.key(0))
    run = jax.jit(simulate(step, policy))
    losses = []
    for i in range(STEPS):
        params, moments, rest, value = run(params, moments, rest, jax.random.key(i))
        losses.append(float(value))
    return told, losses, rest


def account(told, policy):
    """Nothing that the policy could speak of is left over."""
    named = {primitive for rule in policy.rules for primitive in rule.primitives}
    assert [s for s in told.unmatched if s.op in named] == []
    assert told.unused == ()
    assert told.opaque == ()
    assert told.complex == ()


def check(policy, loss, state):
    told, losses, rest = train(policy, loss, state)
    account(told, policy)
    _, plain, plain_rest = train(checks.NO_CASTS, loss, state)
    assert np.isfinite(losses).all()
    assert losses != plain
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(losses[-1], plain[-1], rtol=0.3)
    return told, rest, plain_rest


@pytest.mark.parametrize("name", ["fp8", "mixed"])
def test_a_transformer(name):
    model = cases.models.Encoder(layers=2, dropout=0.1)
    params = model.init(jax.random.key(0), cases.TOKENS)["params"]

    def loss(params, rest, key):
        logits = model.apply({"params": params}, cases.TOKENS, training=True, rngs={"dropout": key})
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, cases.CLASSES)
        return losses.mean(), rest

    policy = Policy.from_yaml(checks.POLICIES / f"{name}.yaml")
    told, _, _ = check(policy, loss, (params, ()))
    # 17 products forward (see the encoder's case), two backward for each; Adam has none.
    products = [s for s in told.sites if s.kind == "matmul"]
    assert len(products) == 17 * 3
    for site in products:
        assert bool(site.casts) != (name == "mixed" and site.path == "Encoder/head"), site


def test_a_policy_over_all_kinds_leaves_nothing_unmatched():
    case = cases.MAKE["encoder"]()
    optimizer = optax.adam(1e-2)

    def step(params, moments, tokens):
        loss, grads = jax.value_and_grad(case.loss)(params, tokens)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    moments = jax.eval_shape(optimizer.init, case.params)
    told = report(step, checks.policy_file("bf16"), case.params, moments, *case.inputs)
    assert (told.unmatched, told.unused, told.opaque, told.complex) == ((), (), (), ())
    ops = {site.op for site in told.sites}
    # The optimizer's operations are among them, as are norms, softmax and the loss.
    assert ops >= {"dot_general", "exp", "rsqrt", "sqrt", "div", "reduce_max", "gather", "log"}


def test_a_cnn_with_batch_statistics():
    model = small.CNN()
    variables = model.init(jax.random.key(0), IMAGES, training=False)

    def loss(params, stats, key):
        logits, new = model.apply(
            {"params": params, "batch_stats": stats},
            IMAGES,
            training=True,
            mutable=["batch_stats"],
            rngs={"dropout": key},
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, LABELS)
        return losses.mean(), new["batch_stats"]

    policy = Policy.from_yaml(checks.POLICIES / "fp8.yaml")
    state = variables["params"], variables["batch_stats"]
    told, stats, plain_stats = check(policy, loss, state)
    # stem, body, head: three forward, and the stem's input needs no gradient.
    assert len([s for s in told.sites if s.kind in ("matmul", "conv")]) == 3 + 5
    # The running averages are state like any other: they moved, and by what was computed.
    for got, plain, start in zip(
        *map(jax.tree.leaves, (stats, plain_stats, state[1])), strict=True
    ):
        assert not np.array_equal(got, start)
        assert not np.array_equal(got, plain)
        assert np.isfinite(got).all()
