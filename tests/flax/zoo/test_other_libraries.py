"""Models of Equinox and Haiku under a policy from a YAML file."""

import equinox as eqx
import jax
import pytest

from npusim.casting import fake_cast
from npusim.inject import Policy, Rule, simulate
from tests.flax.zoo import checks, other_libraries
from tests.helpers import same_arrays

MODELS = [
    pytest.param(other_libraries.equinox, id="equinox"),
    pytest.param(other_libraries.haiku, id="haiku", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("make", MODELS)
def test_sites_are_those_of_the_architecture(make):
    checks.check_sites(make(), checks.policy_file("fp8"))


@pytest.mark.parametrize("make", MODELS)
def test_identity_is_bitwise(make):
    checks.check_identity(make(), compiled=make is not other_libraries.equinox)


@pytest.mark.slow
@pytest.mark.parametrize("make", MODELS)
def test_under_fp8(make):
    checks.check_casts(make(), checks.policy_file("fp8"))


def test_under_unscaled_fp8():
    checks.check_casts(other_libraries.equinox(), checks.policy_file("fp8_unscaled"))


def test_equinox_model_as_it_is():
    """Not taken apart: rates, pooling's limits and functions in it stay what they are."""
    args = (other_libraries.equinox_model(), *other_libraries.equinox().inputs)
    step = eqx.filter_value_and_grad(other_libraries.equinox_loss)

    def lowered(step):
        return eqx.filter_jit(lambda *args: step(*args)).lower(*args).as_text()

    assert lowered(simulate(step, checks.NO_CASTS)) == lowered(step)
    _, grads = eqx.filter_eval_shape(simulate(step, checks.NO_CASTS), *args)
    assert grads.head.layers[0].bias.shape == (8,)
    assert grads.dropout.p is None


@pytest.mark.slow
def test_equinox_rules_by_instance():
    """The one layer that a rule names is rounded: as with that weight rounded beforehand."""
    model = other_libraries.equinox_model()
    image, key = other_libraries.IMAGES[0], other_libraries.KEY
    policy = Policy([Rule("head/.*/layers/1", weight="fp4_e2m1")])
    got = simulate(lambda model, *args: model(*args), policy)(model, image, key)
    weight = policy.rules[0].weight

    def where(model):
        return model.head.layers[1].weight

    rounded = eqx.tree_at(where, model, fake_cast(where(model), weight.dtype))
    same_arrays(got, rounded(image, key), "weights in fp4")


@pytest.mark.slow
def test_haiku_state_is_that_of_the_plain_call():
    params, state = other_libraries.haiku_variables()
    args = (params, state, other_libraries.KEY, other_libraries.SERIES)

    def train(*args):
        return other_libraries.haiku_net.apply(*args, True)

    want = jax.jit(train)(*args)
    same_arrays(jax.jit(simulate(train, checks.NO_CASTS))(*args), want, "logits and state")
    before, after = jax.tree.leaves(state), jax.tree.leaves(want[1])
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
