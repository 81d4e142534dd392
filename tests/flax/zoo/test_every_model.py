"""Each model of the zoo, unmodified, under policies from YAML files."""

import pytest

from tests.flax.zoo import checks
from tests.flax.zoo.cases import MAKE

IN_DEFAULT = ("lstm", "decoder", "moe")


def cases(default=IN_DEFAULT):
    return [pytest.param(name, marks=() if name in default else pytest.mark.slow) for name in MAKE]


# By hand: per product one site forward and one backward for each operand with a gradient.
COUNTS = {
    "lstm": (3, 5),
    "lstm_both_ways": (5, 8),
    "encoder": (8 * 2 + 1, 2 * (8 * 2 + 1)),
    "decoder": (8 + 1, 2 * (8 + 1)),
    "decoder_of_two": (8 * 2 + 1, 2 * (8 * 2 + 1)),
    "vit": (1 + 8 * 3 + 1, 2 * (8 * 3 + 1) + 1),
    "vit_scanned": (1 + 8 + 1, 2 * (8 + 1) + 1),
    "moe": (3 + 1, 2 * (3 + 1)),
    "moe_of_two": (3 * 2 + 1, 2 * (3 * 2 + 1)),
    "state_space": (3 * 2 + 2, 2 * (3 * 2 + 1) + 1),
    "state_space_scanned": (3 * 2 + 2, 2 * (3 * 2 + 1) + 1),
    "unet": (7 + 3 * 3, 2 * (7 + 3 * 3) - 2),
}


@pytest.mark.parametrize("name", cases())
def test_sites_are_those_of_the_architecture(name):
    told = checks.check_sites(MAKE[name](), checks.policy_file("fp8"))
    counted = checks.found(told.sites)
    forward = sum(n for (_, _, direction, *_), n in counted.items() if direction == "forward")
    assert (forward, counted.total() - forward) == COUNTS[name]


@pytest.mark.parametrize("name", cases())
def test_identity_is_bitwise(name):
    checks.check_identity(MAKE[name](), compiled=name not in IN_DEFAULT)


@pytest.mark.parametrize("name", cases(default=("lstm", "moe")))
def test_under_fp8(name):
    checks.check_casts(MAKE[name](), checks.policy_file("fp8"))


def test_a_decoder_without_scales():
    # Twice as fast to compile as with them.
    checks.check_casts(MAKE["decoder"](), checks.policy_file("fp8_unscaled"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "decoder", "moe", "state_space_scanned", "unet"])
def test_under_bf16_everywhere(name):
    checks.check_casts(MAKE[name](), checks.policy_file("bf16"))
