"""An NNX transformer and a BatchNorm CNN train under a policy from a YAML file."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from npusim.flax.nnx import annotate, simulate
from tests.flax.zoo import checks
from tests.flax.zoo import nnx_models as models
from tests.flax.zoo.nnx_cases import MAKE, cross_entropy

STEPS = 20
CUBE = checks.policy_file("fp8")


def tokens(key):
    """Sequences of tokens from one third of the vocabulary, and which one."""
    labels = jnp.arange(16) % 3
    return 3 * labels[:, None] + jax.random.randint(key, (16, models.LENGTH), 0, 3), labels


def images(key):
    """A bright third of the image, and which one."""
    labels = jnp.arange(16) % 3
    noise = 0.3 * jax.random.normal(key, (16, 8, 8, 1))
    bright = (jnp.arange(8) * 3 // 8)[None, :] == labels[:, None]
    return noise + bright[:, :, None, None], labels


def trained(make, batch, policy):
    """Losses of some steps; policy None: the plain function."""
    model = annotate(make(nnx.Rngs(0)))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    step = nnx.value_and_grad(cross_entropy)
    step = step if policy is None else simulate(step, policy)

    @nnx.jit
    def train(model, optimizer, inputs, labels):
        value, grads = step(model, inputs, labels)
        optimizer.update(model, grads)
        return value

    losses = [float(train(model, optimizer, *batch(jax.random.key(i)))) for i in range(STEPS)]
    return np.array(losses), model


@pytest.mark.slow
def test_a_transformer_trains():
    case = MAKE["nnx_encoder"]()
    told = checks.check_sites(case, CUBE)
    assert all(site.casts for site in told.sites if site.rule is not None)
    plain, _ = trained(models.Encoder, tokens, None)
    cast, _ = trained(models.Encoder, tokens, CUBE)
    assert cast[-5:].mean() < 0.6 * cast[:5].mean()
    assert np.all(np.abs(cast - plain) < 0.1)
    assert not np.array_equal(cast, plain)


@pytest.mark.slow
def test_a_cnn_with_batch_statistics_trains():
    told = checks.check_sites(MAKE["nnx_cnn"](), CUBE)
    assert all(site.casts for site in told.sites if site.rule is not None)
    plain, plain_model = trained(models.Cnn, images, None)
    cast, cast_model = trained(models.Cnn, images, CUBE)
    assert cast[-5:].mean() < 0.5 * cast[:5].mean()
    assert not np.array_equal(cast, plain)
    # Running statistics follow the batches, through rounded convolutions: near, not the same.
    for name in ("norm_1", "norm_2"):
        norm, other = getattr(cast_model, name), getattr(plain_model, name)
        assert not np.array_equal(norm.mean[...], other.mean[...])
        assert not np.allclose(norm.var[...], 1.0)
        np.testing.assert_allclose(norm.mean[...], other.mean[...], atol=0.3)
    assert int(cast_model.dropout.rngs.count[...]) == STEPS
