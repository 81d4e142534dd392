"""A complex state-space model: real layers are cast, complex arithmetic is listed, never cast."""

import functools

import jax
import numpy as np
import optax
import pytest

from npusim.inject import Policy, Rule, report
from tests.flax.zoo import by_hand, cases, checks
from tests.helpers import same_arrays

STATIC = checks.policy_file("fp8_unscaled")


@functools.cache
def everything():
    """The training step under a policy that speaks of every operation."""
    case = cases.MAKE["state_space_scanned"]()
    return report(case.step, checks.policy_file("bf16"), *case.args)


@pytest.mark.slow
def test_complex_products_are_sites_without_a_cast():
    found = [s for s in everything().sites if s.kind == "matmul"]
    is_complex = ["complex64" in s.dtypes for s in found]
    # Per layer: the input's and the output's matrix forward, and the two gradients of each.
    assert sum(is_complex) == 2 * (2 + 2 * 2)
    assert {s.path for s, z in zip(found, is_complex, strict=True) if z} == {
        "Lru/ssm_0",
        "Lru/ssm_1",
    }
    for site, z in zip(found, is_complex, strict=True):
        assert site.rule == 0
        assert bool(site.casts) != z


@pytest.mark.slow
def test_what_is_not_cast_is_said():
    told = everything()
    assert told.unmatched == ()
    assert told.opaque == ()
    by_op = {site.op for site in told.complex}
    # The turn, the recurrence and the matrices' products; the pairs' sums.
    assert by_op >= {"exp", "mul", "add", "dot_general"}
    inside = [s for s in told.complex if s.trips == 5]
    # One step of the recurrence forward: a product and a sum, in each of two layers.
    forward = [s.op for s in inside if s.direction == "forward"]
    assert sorted(forward) == ["add", "add", "mul", "mul"]
    assert not any(s.casts for s in inside)
    assert any(note.startswith("complex, never cast:") for note in str(told).splitlines())
    # Everything real is cast: parameters as weights, what they meet as inputs.
    for site in told.sites:
        if site not in told.complex and site.kind != "convert":
            assert site.casts, site


@pytest.mark.slow
def test_a_policy_over_the_complex_part_alone_changes_nothing():
    case = cases.MAKE["state_space_scanned"]()
    policy = Policy([Rule("ssm", input="fp8_e4m3", weight="fp8_e4m3", grad="fp8_e5m2")])
    same_arrays(case.under(policy), case.plain, "complex products")


@pytest.mark.slow
def test_the_casts_are_those_of_a_model_written_out():
    case = cases.MAKE["state_space_scanned"]()

    def loss(params, x):
        logits = by_hand.lru(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, cases.CLASSES).mean()

    want = jax.jit(jax.value_and_grad(loss))(*case.args)
    same_arrays(case.under(STATIC), want, "simulate(grad)")


@pytest.mark.slow
def test_both_forms_of_the_recurrence_agree():
    one, other = (cases.MAKE[name]() for name in ("state_space", "state_space_scanned"))
    np.testing.assert_allclose(one.plain[0], other.plain[0], rtol=1e-5)
    policy = checks.policy_file("fp8")
    for case in (one, other):
        loss, _ = case.under(policy)
        assert loss != case.plain[0]
        np.testing.assert_allclose(loss, case.plain[0], rtol=0.1)
