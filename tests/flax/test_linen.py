"""Linen models: sites against what the structure implies, identity bitwise, state kept."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import _errors as errors
from npusim.casting import FormatParams
from npusim.flax.linen import simulate_apply
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.flax import models
from tests.helpers import same_arrays

E4M3 = CastSpec("fp8_e4m3", "RINT", scale="amax")
CASTS = Policy([Rule(ops=["matmul", "conv"], input=E4M3, weight=E4M3)])
NO_CASTS = Policy([Rule(ops=["matmul", "conv"])])


def paths(found, direction="forward", **where):
    return [
        s.path
        for s in found
        if s.direction == direction and all(getattr(s, k) == v for k, v in where.items())
    ]


def test_mlp():
    model = models.MLP()
    variables = model.init(jax.random.key(0), models.ROWS)
    found = sites(model.apply, CASTS, variables, models.ROWS)
    assert paths(found) == ["MLP/Dense_0", "MLP/Dense_1", "MLP/head"]
    assert {s.roles for s in found} == {("input", "weight")}
    plain = jax.jit(model.apply)(variables, models.ROWS)
    same = jax.jit(simulate_apply(model, NO_CASTS))(variables, models.ROWS)
    same_arrays(same, plain, "identity")
    cast = jax.jit(simulate_apply(model, CASTS))(variables, models.ROWS)
    assert not np.array_equal(cast, plain)
    np.testing.assert_allclose(cast, plain, atol=0.4)


def test_the_head_may_stay_in_high_precision():
    model = models.MLP()
    variables = model.init(jax.random.key(0), models.ROWS)
    policy = Policy([Rule("head"), Rule(input="bf16", weight="bf16")])
    found = sites(model.apply, policy, variables, models.ROWS)
    assert [(s.path, s.rule, len(s.casts)) for s in found] == [
        ("MLP/Dense_0", 1, 2),
        ("MLP/Dense_1", 1, 2),
        ("MLP/head", 0, 0),
    ]


def test_cnn_with_batch_statistics_and_dropout():
    model = models.CNN()
    key = jax.random.key(5)
    variables = model.init(jax.random.key(0), models.IMAGES, training=False)

    def step(apply, variables):
        return apply(
            variables,
            models.IMAGES,
            training=True,
            mutable=["batch_stats"],
            rngs={"dropout": key},
        )

    plain = step(model.apply, variables)
    same = step(simulate_apply(model, NO_CASTS), variables)
    same_arrays(same, plain, "identity, state included")
    cast, state = step(simulate_apply(model, CASTS), variables)
    assert jax.tree.structure(state) == jax.tree.structure(plain[1])
    assert not np.array_equal(cast, plain[0])

    def loss(params, stats):
        out, _ = step(model.apply, {"params": params, "batch_stats": stats})
        return jnp.sum(out**2)

    params, stats = variables["params"], variables["batch_stats"]
    found = sites(jax.grad(loss), CASTS, params, stats)
    assert paths(found, kind="conv") == ["CNN/stem", "CNN/body"]
    assert paths(found, kind="matmul") == ["CNN/head"]
    # The image needs no gradient, so the stem has one backward convolution.
    backward = collections.Counter(paths(found, "backward"))
    assert backward == {"CNN/stem": 1, "CNN/body": 2, "CNN/head": 2}
    roles = {(s.path, s.roles) for s in found if s.direction == "backward"}
    assert ("CNN/stem", ("input", "grad")) in roles
    assert ("CNN/body", ("grad", "weight")) in roles
    same_arrays(
        jax.jit(simulate(jax.grad(loss), NO_CASTS))(params, stats),
        jax.jit(jax.grad(loss))(params, stats),
        "gradient of identity",
    )


def test_attention_and_tied_embeddings():
    model = models.Decoder()
    variables = model.init(jax.random.key(0), models.TOKENS)
    found = sites(model.apply, CASTS, variables, models.TOKENS)
    block = ["attn/query", "attn/key", "attn/value", "attn", "attn", "attn/out", "up", "down"]
    want = [f"Decoder/block_{i}/{name}" for i in range(2) for name in block]
    assert paths(found) == [*want, "Decoder/embed"]
    assert [s.einsum for s in found if s.einsum][:2] == [
        "...qhd,...khd->...hqk",
        "...hqk,...khd->...qhd",
    ]
    assert found[-1].method == "attend"
    weights = [s.path for s in found if s.roles == ("input", "weight")]
    assert len(weights) == len(found) - 4
    assert {s.roles for s in found if s.einsum} == {("input", "input")}

    def loss(params):
        return jnp.sum(model.apply({"params": params}, models.TOKENS) ** 2)

    back = paths(sites(jax.grad(loss), CASTS, variables["params"]), "backward")
    assert len(back) == 2 * len(found)


def loss_of(model, x):
    def loss(params):
        return jnp.sum(model.apply({"params": params}, x) ** 2)

    return jax.value_and_grad(loss)


@pytest.mark.slow
def test_scan_of_remat():
    model = models.ScannedDecoder()
    params = model.init(jax.random.key(0), models.SEQUENCE)["params"]
    step = loss_of(model, models.SEQUENCE)
    found = sites(step, CASTS, params)
    forward = [s for s in found if s.direction == "forward" and not s.recomputed]
    assert len(forward) == 8 + 1
    assert {s.trips for s in forward if "layers" in s.path} == {3}
    assert forward[0].path == "ScannedDecoder/layers/attn/query"
    assert forward[0].roles == ("input", "weight")
    again = [s for s in found if s.recomputed]
    assert {s.path for s in again} <= {s.path for s in forward}
    backward = [s for s in found if s.direction == "backward"]
    assert len(backward) == 2 * len(forward)
    assert {s.path for s in backward} == {s.path for s in forward}
    same_arrays(
        jax.jit(simulate(step, NO_CASTS))(params), jax.jit(step)(params), "identity of scan(remat)"
    )


@pytest.mark.slow  # tests/inject/test_per_layer.py has a scan of remat by default
def test_layers_of_a_linen_scan_have_their_own_formats():
    model = models.ScannedDecoder()
    params = model.init(jax.random.key(0), models.SEQUENCE)["params"]
    names = ["fp32", "fp8_e4m3", "fp32"]
    one = FormatParams.of("fp8_e4m3")
    stacked = jax.tree.map(lambda *p: jnp.stack(p), *[FormatParams.of(n) for n in names])

    def out(params, formats):
        spec = CastSpec(formats)
        policy = Policy([Rule("layers", input=spec, weight=spec)])
        return simulate_apply(model, policy)({"params": params}, models.SEQUENCE)

    out = jax.jit(out)
    plain = jax.jit(model.apply)({"params": params}, models.SEQUENCE)
    mixed, everywhere = out(params, stacked), out(params, one)
    off = jax.tree.map(lambda leaf: leaf[jnp.array([0, 0, 0])], stacked)
    np.testing.assert_allclose(out(params, off), plain, rtol=1e-5, atol=1e-5)
    assert np.abs(plain - mixed).max() > 1e-3
    assert np.abs(plain - everywhere).max() > 1e-3
    assert not np.array_equal(mixed, everywhere)


def test_training_in_a_scan_keeps_the_roles():
    model = models.MLP()
    params = model.init(jax.random.key(0), models.ROWS)["params"]
    step = loss_of(model, models.ROWS)

    def train(params, steps):
        def one(params, _):
            loss, grads = step(params)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

        return jax.lax.scan(one, params, steps)

    found = sites(train, CASTS, params, jnp.arange(3))
    forward = [s.roles for s in found if s.direction == "forward"]
    assert forward == [("input", "weight")] * 3
    backward = {s.roles for s in found if s.direction == "backward"}
    assert backward == {("grad", "weight"), ("grad", "input")}
    _, losses = jax.jit(simulate(train, CASTS))(params, jnp.arange(3))
    assert losses[2] < losses[0]


def test_bfloat16_modules():
    import flax.linen as nn

    model = nn.Dense(8, dtype=jnp.bfloat16)
    variables = model.init(jax.random.key(0), models.ROWS)
    policy = Policy([Rule(input="fp8_e4m3", weight="fp8_e4m3", output="fp16")])
    out = jax.jit(simulate_apply(model, policy))(variables, models.ROWS)
    assert out.dtype == jnp.bfloat16
    found = sites(model.apply, policy, variables, models.ROWS)
    assert found[0].roles == ("input", "weight")
    assert found[0].dtypes == ("bfloat16", "bfloat16", "bfloat16")


def test_not_a_module():
    with pytest.raises(errors.InputError, match=r"Pass the module itself, e\.g\. MLP\(\)"):
        simulate_apply(models.MLP, CASTS)
