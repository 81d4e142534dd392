"""Linen's lifted transforms: vmap over members, while, cond, jit, custom_vjp, scan with state."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim.flax.linen import simulate_apply
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.flax.zoo import cases, checks
from tests.flax.zoo.checks import FIRST, Product
from tests.helpers import same_arrays

pytestmark = pytest.mark.slow

E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")
CASTS = Policy([Rule(input=E4M3, weight=E4M3, grad=CastSpec("fp8_e5m2", "RINT", "ON"))])
X = cases.normal(7, (6, 4))


def dense(params, x):
    """A layer with its casts written out."""
    x, kernel = (npu.fake_cast(a, "fp8_e4m3", "RINT", "ON") for a in (x, params["kernel"]))
    return jnp.dot(x, kernel) + params["bias"]


class Ensemble(nn.Module):
    """Three heads with weights of their own, on the same rows."""

    @nn.compact
    def __call__(self, x):
        heads = nn.vmap(
            nn.Dense,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=None,
            axis_size=3,
        )
        return heads(5, name="heads")(x)


def test_an_ensemble_is_one_product_with_a_kernel_for_each_member():
    model = Ensemble()
    params = cases.parameters(model, X)
    found = sites(model.apply, CASTS, {"params": params}, X)
    assert [(s.path, s.roles, s.shapes[1]) for s in found] == [
        ("Ensemble/heads", ("input", "weight"), (3, 4, 5))
    ]
    got = jax.jit(simulate_apply(model, CASTS))({"params": params}, X)
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], params["heads"]) for i in range(3)]
    want = jnp.stack([dense(member, X) for member in members])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    # A scale by tensor is one for all of them: a loud member costs the others their bits.
    scaled = CastSpec("fp8_e4m3", "RINT", "ON", scale="amax")
    apply = jax.jit(simulate_apply(model, Policy([Rule(weight=scaled)])))
    loud = jax.tree.map(np.array, params)
    loud["heads"]["kernel"][2] *= 1e6
    quiet, beside = (apply({"params": p}, X)[0] for p in (params, loud))
    np.testing.assert_array_equal(beside, np.broadcast_to(params["heads"]["bias"][0], (6, 5)))
    assert not np.array_equal(quiet, beside)


class Repeats(nn.Module):
    """A layer until the rows are large, then one of two heads by what came out."""

    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4, name="layer")
        left, right = nn.Dense(2, name="left"), nn.Dense(2, name="right")
        if self.is_initializing():  # loops and branches make no parameters
            return layer(x), left(x), right(x)

        def go_on(module, state):
            return (state[0] < 4) & (jnp.max(jnp.abs(state[1])) < 1e3)

        def body(module, state):
            return state[0] + 1, layer(state[1]) * 2

        _, x = nn.while_loop(go_on, body, self, (0, x), broadcast_variables="params")
        return nn.cond(jnp.sum(x) > 0, lambda _, x: left(x), lambda _, x: right(x), self, x)


def test_while_and_cond():
    model = Repeats()
    params = cases.parameters(model, X)
    found = sites(model.apply, CASTS, {"params": params}, X)
    assert sorted((s.path, s.trips, s.roles) for s in found) == [
        (f"Repeats/{name}", None, ("input", "weight")) for name in ("layer", "left", "right")
    ]
    plain = jax.jit(model.apply)({"params": params}, X)
    same = jax.jit(simulate_apply(model, checks.NO_CASTS))
    same_arrays(same({"params": params}, X), plain, "identity")
    steps, x = 0, X
    while steps < 4 and np.max(np.abs(x)) < 1e3:
        steps, x = steps + 1, dense(params["layer"], x) * 2
    want = dense(params["left" if np.sum(x) > 0 else "right"], x)
    got = jax.jit(simulate_apply(model, CASTS))({"params": params}, X)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert not np.allclose(got, plain, rtol=1e-3)


class Marked(nn.Module):
    """A layer with a derivative of its own, seven times the true one."""

    @nn.compact
    def __call__(self, x):
        def forward(module, x):
            return nn.vjp(lambda module, x: module(x), module, x)

        def backward(pull, cotangent):
            return jax.tree.map(lambda g: 7 * g, pull(cotangent))

        layer = nn.Dense(4, name="layer")
        layer(x)
        own = nn.custom_vjp(lambda module, x: module(x), forward, backward)
        return nn.Dense(3, name="head")(own(layer, x))


def test_a_custom_derivative_is_kept_in_both_orders():
    model = Marked()
    case = cases.classifier(model, X, np.arange(6) % 3, [])
    checks.check_identity(case, compiled=True)
    true = cases.classifier(Chain(), X, np.arange(6) % 3, [])
    ratio = case.plain[1]["layer"]["kernel"] / true.plain[1]["layer"]["kernel"]
    np.testing.assert_allclose(ratio, 7, rtol=1e-4)
    for grads in (case.under(CASTS)[1], case.straight_through(CASTS)[1]):
        assert not np.array_equal(grads["layer"]["kernel"], case.plain[1]["layer"]["kernel"])
        assert not np.allclose(grads["layer"]["kernel"], case.plain[1]["layer"]["kernel"] / 7)


class Chain(nn.Module):
    """`Marked` without the mark, a jitted layer twice: shared weights."""

    twice: bool = False

    @nn.compact
    def __call__(self, x):
        layer = nn.jit(nn.Dense)(4, name="layer")
        x = layer(x)
        return nn.Dense(3, name="head")(layer(x) if self.twice else x)


def test_a_jitted_layer_applied_twice():
    products = [Product("Chain/layer", differentiated=FIRST), Product("Chain/layer")]
    products += [Product("Chain/head")]
    case = cases.classifier(Chain(twice=True), X, np.arange(6) % 3, products)
    checks.check_sites(case, CASTS)
    checks.check_identity(case, compiled=True)
    checks.check_casts(case, CASTS)


class Stateful(nn.Module):
    """A layer with running averages, a mask of its own and a value on the side."""

    @nn.compact
    def __call__(self, x, _):
        h = nn.BatchNorm(use_running_average=False, name="norm")(nn.Dense(4, name="up")(x))
        h = nn.Dropout(0.5, deterministic=False)(nn.gelu(h))
        self.sow("intermediates", "size", jnp.mean(h**2))
        return x + h, None


class Stack(nn.Module):
    """A scan over rematerialised layers with state; the head's kernel is computed from two."""

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            nn.remat(Stateful, prevent_cse=False),
            variable_axes={"params": 0, "batch_stats": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            length=3,
        )
        x, _ = layers(name="layers")(x, None)
        return nn.WeightNorm(nn.Dense(3, name="head"), name="normed")(x)


def test_state_and_dropout_in_a_scan_of_remat():
    model = Stack()
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = dict(model.init(rngs, X))
    params, stats = variables["params"], variables["batch_stats"]

    def loss(params, stats, key):
        logits, new = model.apply(
            {"params": params, "batch_stats": stats},
            X,
            mutable=["batch_stats", "intermediates"],
            rngs={"dropout": key},
        )
        return jnp.mean((logits - 1) ** 2), new

    step = jax.value_and_grad(loss, has_aux=True)
    args = params, stats, jax.random.key(2)
    plain = jax.jit(step)(*args)
    same_arrays(jax.jit(simulate(step, checks.NO_CASTS))(*args), plain, "state included")
    inner = jax.value_and_grad(simulate(loss, CASTS), has_aux=True)
    outer = simulate(step, CASTS)
    got, straight = jax.jit(outer)(*args), jax.jit(inner)(*args)
    same_arrays(got[0], straight[0], "loss and state, both orders")
    new = got[0][1]
    assert new["intermediates"]["layers"]["size"][0].shape == (3,)
    for after, before, without in zip(
        *(jax.tree.leaves(s) for s in (new["batch_stats"], stats, plain[0][1]["batch_stats"])),
        strict=True,
    ):
        assert not np.array_equal(after, before)
        assert not np.array_equal(after, without)
    found = [s for s in sites(step, CASTS, *args) if not s.recomputed]
    assert [(s.path, s.roles, s.trips) for s in found if s.direction == "forward"] == [
        ("Stack/layers/up", ("input", "weight"), 3),
        # Computed from a direction and a length, and so no parameter itself.
        ("Stack/normed/head", ("input", "input"), 1),
    ]
