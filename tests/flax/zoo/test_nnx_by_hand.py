"""The NNX MLP against the same one in Linen, and against one with the casts written out."""

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from npusim.inject import simulate
from tests.flax import models as linen_models
from tests.flax.zoo import by_hand, checks
from tests.flax.zoo.nnx_cases import MAKE
from tests.helpers import same_arrays

NAMES = {"Dense_0": ("layers", 0), "Dense_1": ("layers", 1), "head": ("head",)}


def case():
    return MAKE["nnx_mlp"]()


def by_layer(state):
    """Kernels and biases of NNX parameters or gradients under the names that Linen gives them."""
    plain = nnx.to_pure_dict(state)

    def at(steps):
        found = plain
        for step in steps:
            found = found[step]
        return found

    return {name: at(steps) for name, steps in NAMES.items()}


def parameters():
    return by_layer(nnx.state(case().model(), nnx.Param))


def loss_of(logits):
    _, labels = case().inputs
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fp8", "bf16"])
def test_linen_and_nnx_give_the_same_bits(policy):
    policy = checks.policy_file(policy)
    rows, _ = case().inputs

    def loss(params):
        return loss_of(linen_models.MLP().apply({"params": params}, rows))

    orders = {
        "simulate(grad)": (simulate(jax.value_and_grad(loss), policy), case().under),
        "grad(simulate)": (jax.value_and_grad(simulate(loss, policy)), case().straight_through),
    }
    for order, (linen, of_nnx) in orders.items():
        value, grads = of_nnx(policy)
        same_arrays((value, by_layer(grads)), jax.jit(linen)(parameters()), order)


@pytest.mark.slow
def test_casts_written_out():
    policy = checks.policy_file("fp8_unscaled")
    rows, _ = case().inputs

    def loss(params):
        x = nnx.relu(by_hand.dense(params["Dense_0"], rows))
        x = nnx.relu(by_hand.dense(params["Dense_1"], x))
        return loss_of(by_hand.dense(params["head"], x))

    want = jax.jit(jax.value_and_grad(loss))(parameters())
    for got in (case().under(policy), case().straight_through(policy)):
        same_arrays((got[0], by_layer(got[1])), want, "fp8 by hand")
    assert not jnp.array_equal(want[0], case().plain[0])
