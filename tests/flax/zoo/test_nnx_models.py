"""Each NNX model of the zoo, unmodified, under a policy from a YAML file."""

import pytest
from flax import nnx

from npusim.flax.nnx import simulate
from tests.flax.zoo import checks
from tests.flax.zoo.nnx_cases import LAYER_PATHS, MAKE
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


@pytest.mark.slow
def test_what_a_scan_of_remat_computes_again():
    """All of a layer but its last product, which is added to the rest and needed no more."""
    case = MAKE["nnx_vit_scanned"]()
    told = checks.check_sites(case, checks.policy_file("fp8"))
    products = [s for s in told.sites if s.kind == "matmul" and s.direction == "forward"]
    again = [site for site in products if site.recomputed]
    want = [f"ViT/layers/{name}" for name in LAYER_PATHS if name != "down"]
    assert sorted(site.path for site in again) == sorted(want)
    casts = {site.path: site.casts for site in products if not site.recomputed}
    assert all(site.casts == casts[site.path] != () for site in again)
    assert {site.trips for site in again} == {3}


@pytest.mark.parametrize("name", MODELS)
def test_identity_is_bitwise(name):
    """Loss, gradients and all state, in both orders."""
    case = MAKE[name]()
    outside = simulate(case.step, checks.NO_CASTS)
    inside = nnx.value_and_grad(simulate(case.loss, checks.NO_CASTS))
    # The same program, state included, gives the same bits; the slow tests look at them, too.
    plain = lowered(case.step, case.args)
    assert lowered(outside, case.args) == plain
    assert lowered(inside, case.args) == plain
    if name not in IN_DEFAULT:
        same_arrays(case.run(outside), case.plain_run, "simulate(grad)")
        same_arrays(case.run(inside), case.plain_run, "grad(simulate)")


def lowered(step, args):
    """The program that goes to the compiler."""
    return nnx.jit(lambda *args: step(*args)).lower(*args).as_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_under_fp8(name):
    checks.check_casts(MAKE[name](), checks.policy_file("fp8"))


@pytest.mark.parametrize("name", IN_DEFAULT)
def test_under_unscaled_fp8(name):
    checks.check_casts(MAKE[name](), checks.policy_file("fp8_unscaled"))
