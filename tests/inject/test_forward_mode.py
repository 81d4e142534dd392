"""Forward-mode differentiation of simulated functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import _errors as errors
from npusim.inject import CastSpec, Policy, Rule, apply_cast, simulate

W = jnp.array([[0.3, 1.7], [-2.2, 0.9]])
X = jnp.array([[1.1, 0.4], [0.7, -3.1]])
E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")


def product(w, x):
    return x @ w


def test_tangents_pass_straight_through_the_casts():
    run = simulate(product, Policy([Rule(input=E4M3, weight=E4M3, output="bf16")]))
    w, x = apply_cast(E4M3, W), apply_cast(E4M3, X)
    out, tangent = jax.jvp(run, (W, X), (X, W))
    np.testing.assert_array_equal(out, apply_cast(CastSpec("bf16"), x @ w))
    np.testing.assert_allclose(tangent, W @ w + x @ X, rtol=1e-6)
    assert jax.jacfwd(run)(W, X).shape == (2, 2, 2, 2)


def test_a_rule_with_grad_refuses_in_words():
    rules = [Rule("head", input="bf16"), Rule(input=E4M3, grad="fp8_e5m2")]
    run = simulate(product, Policy(rules))
    for push in (lambda: jax.jvp(run, (W, X), (X, W)), lambda: jax.jacfwd(run)(W, X)):
        with (
            pytest.raises(errors.PolicyError) as caught,
            pytest.warns(errors.UnusedRuleWarning, match="rule 1"),
        ):
            push()
        assert str(caught.value) == (
            "Given: forward-mode differentiation (jvp, jacfwd) under rules with grad: [2]. "
            "Allowed: reverse mode (grad, vjp, jacrev), or rules without grad. Leave grad out of "
            "the policy: no cotangent comes back in forward mode."
        )


def test_a_users_own_error_stays_his():
    def wrong(w, x):
        raise TypeError("a custom_vjp of mine")

    with pytest.raises(TypeError, match="of mine"):
        simulate(wrong, Policy([Rule(grad="bf16")]))(W, X)

    @jax.custom_vjp
    def own(x):
        return x

    own.defvjp(lambda x: (x, None), lambda _, g: (g,))
    run = simulate(lambda w, x: own(x @ w), Policy([Rule(input=E4M3)]))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(run, (W, X), (X, W))
