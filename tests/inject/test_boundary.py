"""Rules with ops="boundary": a composite operator is cast where values enter and leave it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim.inject import CastSpec, Policy, Rule, apply_cast, simulate, sites
from npusim.training import first_divergence
from tests.helpers import same_arrays

FP16 = CastSpec("fp16")
BF16 = CastSpec("bf16")
RULE = Rule("norm", "boundary", input=FP16, weight=BF16, output=FP16, grad=BF16)
SCALE = jnp.array([1.1, 0.9, 1.3, 0.7])
X = jnp.arange(8.0).reshape(2, 4) / 7
C = jnp.array([[0.3, -1.7, 0.9, 1.1], [2.3, 0.1, -0.4, 0.6]])


def inside(w, x):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-6) * w


def norm(w, x):
    with jax.named_scope("norm"), jax.named_scope("inner"):
        return inside(w, x)


def loss(w, x):
    return jnp.sum(norm(w, 2 * x) * C)


def crossings(fn, policy, *args):
    found = sites(fn, policy, *args)
    return [f"{s.path} {s.direction} {dict(s.casts)}" for s in found if s.op == "boundary"]


def test_what_enters_and_leaves_is_cast_and_the_inside_is_left_alone():
    got = simulate(norm, Policy([RULE]))(SCALE, X)
    want = apply_cast(FP16, inside(apply_cast(BF16, SCALE), apply_cast(FP16, X)))
    same_arrays(got, want, "norm")
    assert crossings(norm, Policy([RULE]), SCALE, X) == [
        "norm forward {'input 0': 'fp16', 'grad': 'bf16'}",
        "norm forward {'weight 0': 'bf16', 'grad': 'bf16'}",
        "norm forward {'output': 'fp16', 'grad': 'bf16'}",
    ]
    narrow = simulate(norm, Policy([RULE]))(SCALE.astype(jnp.bfloat16), X.astype(jnp.bfloat16))
    assert narrow.dtype == jnp.bfloat16


def test_gradients_are_cast_both_ways_in_either_order():
    w, x = apply_cast(BF16, SCALE), apply_cast(FP16, 2 * X)
    by_hand = jax.vjp(inside, w, x)[1](apply_cast(BF16, C))
    of_w, of_x = (apply_cast(BF16, part) for part in by_hand)
    for step in (
        simulate(jax.grad(loss, (0, 1)), Policy([RULE])),
        jax.grad(simulate(loss, Policy([RULE])), (0, 1)),
    ):
        got = step(SCALE, X)
        np.testing.assert_allclose(got[0], of_w, rtol=2**-8)
        np.testing.assert_allclose(got[1], 2 * of_x, rtol=2**-7, atol=1e-6)
        for part in (got[0], got[1] / 2):
            same_arrays(part, apply_cast(BF16, part), "on the grid")
    assert crossings(jax.grad(loss), Policy([RULE]), SCALE, X)[-2:] == [
        "norm forward {'output': 'fp16', 'grad': 'bf16'}",
        "norm backward {'output': 'bf16'}",
    ]


def test_the_derivative_of_rsqrt_survives_fp16():
    x = 1e-3 * X
    half = CastSpec("fp16", "RINT", "OFF")
    each = Policy([Rule(ops="all", input=half, weight=half, output=half, grad=half)])
    whole = Policy([Rule("norm", "boundary", input=half, output=half, grad=half), *each.rules])
    grads = {p: simulate(jax.grad(loss, 1), p)(SCALE, x) for p in (each, whole)}
    assert not np.isfinite(grads[each]).any()
    plain = jax.grad(loss, 1)(SCALE, x)
    assert np.abs(grads[whole] - plain).max() < 0.02 * np.abs(plain).max()


def layers(fn):
    def scanned(w, x):
        return jnp.sum(lax.scan(lambda x, w: (x + fn(w, x) * C, None), x, w)[0] ** 2)

    return scanned


@pytest.mark.parametrize("form", ["scan", "scan of remat", "jit"])
def test_what_a_loop_saves_inside_of_a_scope_stays(form):
    fn = {
        "scan": layers(norm),
        "scan of remat": layers(jax.checkpoint(norm)),
        "jit": lambda w, x: jnp.sum(jax.jit(lambda w, x: norm(w, x) * C)(w[0], x)),
    }[form]
    w = jnp.stack([SCALE, 2 * SCALE])
    policy = Policy([RULE, Rule(ops="matmul")])
    step = jax.value_and_grad(fn)
    with pytest.warns(UserWarning, match="rule 2"):
        got = jax.jit(simulate(step, policy))(w, X)
    plain = step(w, X)
    np.testing.assert_allclose(got[0], plain[0], rtol=1e-2)
    np.testing.assert_allclose(got[1], plain[1], rtol=5e-2, atol=0.3)
    # One result leaves in the forward direction, besides it only gradients.
    found = [s for s in sites(step, policy, w, X) if s.op == "boundary"]
    leaving = [s for s in found if not s.roles and s.direction == "forward" and not s.recomputed]
    assert len(leaving) == 1
    assert {s.roles for s in found if s.direction == "backward"} <= {("grad",), ()}


def test_an_earlier_rule_acts_inside_and_a_later_one_does_not():
    inner = Rule("norm", "rsqrt", output=FP16)
    (row,) = [
        s.casts
        for s in sites(norm, Policy([inner, RULE, Rule(ops="all", output=BF16)]), SCALE, X)
        if s.op != "boundary" and s.casts
    ]
    assert row == (("output", "fp16"),)
    got = simulate(norm, Policy([RULE, Rule(ops="all", output=BF16)]))
    with pytest.warns(UserWarning, match="rule 2"):
        same_arrays(got(SCALE, X), simulate(norm, Policy([RULE]))(SCALE, X), "norm")


def test_scopes_side_by_side_and_calls_in_them():
    def net(w, x):
        for i in range(2):
            with jax.named_scope(f"norm_{i}"):
                x = jax.nn.softmax(x * w)
        return x

    policy = Policy([Rule(r"norm_\d", "boundary", output=FP16)])
    assert crossings(net, policy, SCALE, X) == [
        f"norm_{i} forward {{'output': 'fp16'}}" for i in (0, 1)
    ]
    got = simulate(net, policy)(SCALE, X)
    want = apply_cast(FP16, jax.nn.softmax(X * SCALE))
    same_arrays(got, apply_cast(FP16, jax.nn.softmax(want * SCALE)), "softmax")


def test_without_casts_every_bit_stays():
    step = jax.value_and_grad(layers(norm))
    w = jnp.stack([SCALE, SCALE])
    run = jax.jit(simulate(step, Policy([Rule("norm", "boundary")])))
    same_arrays(run(w, X), jax.jit(step)(w, X), "identity")


def test_statistics_and_divergence_know_the_crossings():
    policy = Policy([RULE])
    _, stats = jax.jit(simulate(jax.grad(loss), policy, stats=True))(SCALE, X)
    rows = {(r["direction"], r["slot"]): r["inexact"] for r in stats.table()}
    assert rows["forward", "weight 0"] == 4
    assert {key for key in rows if key[0] == "backward"} == {
        ("backward", "grad 0"),
        ("backward", "output"),
    }
    other = Policy([Rule("norm", "boundary", input=FP16, weight=BF16, output="bf16", grad=BF16)])
    found = first_divergence(loss, policy, other, SCALE, X, threshold=1e-4)
    assert found is not None
    assert (found.path, found.op) == ("norm", "boundary")
