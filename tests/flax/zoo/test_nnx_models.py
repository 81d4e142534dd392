"""Each NNX model of the zoo, unmodified, under a policy from a YAML file."""

import jax
import pytest
from flax import nnx

from npusim.flax.nnx import simulate
from tests.flax.zoo import checks
from tests.flax.zoo.nnx_cases import MAKE
from tests.helpers import same_arrays

IN_DEFAULT = ("nnx_encoder_of_one",)

LAYER = 8  # query, key, value, scores, mixture, output, up, down

# By hand: per product one site forward and one backward for each operand with a gradient.
COUNTS = {
    "nnx_mlp": (3, 5),
    "nnx_cnn": (3, 5),
    "nnx_lstm": (3, 5),
    "nnx_encoder": (2 * LAYER + 1, 2 * (2 * LAYER + 1)),
    "nnx_encoder_of_one": (LAYER + 1, 2 * (LAYER + 1)),
    "nnx_decoder": (2 * LAYER + 1, 2 * (2 * LAYER + 1)),
    "nnx_vit": (1 + 2 * LAYER + 1, 1 + 2 * (2 * LAYER + 1)),
    "nnx_vit_scanned": (1 + LAYER + 1, 1 + 2 * (LAYER + 1)),
    "nnx_moe": (2 * 3 + 1, 2 * (2 * 3 + 1)),
    "nnx_unet": (7 + 3 * 3, 2 * (7 + 3 * 3) - 2),
}
MODELS = [pytest.param(name, marks=() if name in IN_DEFAULT else pytest.mark.slow) for name in MAKE]


@pytest.mark.parametrize("name", MODELS)
def test_sites_are_those_of_the_architecture(name):
    told = checks.check_sites(MAKE[name](), checks.policy_file("fp8"))
    counted = checks.found(told.sites)
    forward = sum(n for (_, _, direction, *_), n in counted.items() if direction == "forward")
    assert (forward, counted.total() - forward) == COUNTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_identity_is_bitwise(name):
    """Loss, gradients and all state, in both orders."""
    case = MAKE[name]()
    inside = nnx.value_and_grad(simulate(case.loss, checks.NO_CASTS))
    same_arrays(case.run(inside), case.plain_run, "grad(simulate)")
    outside = simulate(case.step, checks.NO_CASTS)
    if name in IN_DEFAULT:
        # The same program gives the same bits; the slow tests look at them, too.
        assert program(outside, case) == program(case.step, case)
    else:
        same_arrays(case.run(outside), case.plain_run, "simulate(grad)")


def program(fn, case):
    """The traced program: state and inputs to results and state."""
    model, *inputs = case.args
    graph, state = nnx.split(model)

    def pure(state, *inputs):
        model = nnx.merge(graph, state)
        out = fn(model, *inputs)
        return out, nnx.state(model)

    return str(jax.make_jaxpr(pure)(state, *inputs))


@pytest.mark.parametrize("name", MODELS)
def test_under_fp8(name):
    checks.check_casts(MAKE[name](), checks.policy_file("fp8"))
