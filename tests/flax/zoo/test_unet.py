"""What a U-Net has beside products: transposed convolutions, group norms, dropout, skips."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.flax.linen import simulate_apply
from npusim.inject import sites
from tests.flax.zoo import by_hand, cases, checks, more_models
from tests.flax.zoo.checks import Case
from tests.helpers import same_arrays

pytestmark = pytest.mark.slow

STATIC = checks.policy_file("fp8_unscaled")
IMAGES = cases.normal(5, (2, 4, 4, 4))
TIME = cases.normal(6, (2, 8))


class Upwards(nn.Module):
    """A level of the way up: a block with a shortcut, then twice the size."""

    @nn.compact
    def __call__(self, x, time):
        x = more_models.ResBlock(8, 0.0, name="block")(x, time, training=False)
        return nn.ConvTranspose(4, (2, 2), strides=(2, 2), name="double")(x)


def test_a_block_written_out():
    model = Upwards()
    params = cases.parameters(model, IMAGES, TIME)

    def square(apply):
        return lambda params, images, time: jnp.mean(apply(params, images, time) ** 2)

    def written(params, images, time):
        return by_hand.doubled(params["double"], by_hand.res_block(params["block"], images, time))

    loss = square(lambda params, *args: model.apply({"params": params}, *args))
    case = Case(loss, params, (IMAGES, TIME), ())
    want = jax.jit(jax.value_and_grad(square(written)))(*case.args)
    same_arrays(case.under(STATIC), want, "simulate(grad)")
    same_arrays(case.straight_through(STATIC), want, "grad(simulate)")


def test_dropout_draws_the_same_whatever_is_cast():
    model = nn.Dropout(0.5, deterministic=False)
    ones = np.full((64, 64), 1.01, np.float32)

    def drop(apply, seed=0):
        return np.asarray(jax.jit(apply)({}, ones, rngs={"dropout": jax.random.key(seed)}))

    plain = drop(model.apply)
    cast = drop(simulate_apply(model, checks.policy_file("bf16")))
    np.testing.assert_array_equal(cast == 0, plain == 0)
    assert not np.array_equal(drop(simulate_apply(model, checks.policy_file("bf16")), 1), cast)
    # What is kept is divided by one half: 1.01 as bf16 holds it, twice.
    assert set(np.unique(cast)) == {0.0, 2 * float(jnp.float32(1.01).astype(jnp.bfloat16))}


def test_shapes_of_the_way_down_and_up():
    case = cases.MAKE["unet"]()
    found = sites(case.step, checks.policy_file("fp8"), *case.args)
    forward = {s.path: s.shapes for s in found if s.direction == "forward"}
    assert forward["UNet/halve"][0] == (2, 8, 8, 4)
    assert forward["UNet/halve"][2] == (2, 4, 4, 8)
    assert forward["UNet/double"][2] == (2, 8, 8, 4)
    # Skip and upsampled features side by side.
    assert forward["UNet/up/conv_1"][0] == (2, 8, 8, 4 + 4)
