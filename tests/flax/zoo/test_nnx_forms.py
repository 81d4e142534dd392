"""NNX models as programs use them: caches, optimizers, nnx's own transforms; state throughout."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from npusim.flax.nnx import annotate, simulate
from npusim.inject import sites
from tests.flax.zoo import checks
from tests.flax.zoo import nnx_models as models
from tests.flax.zoo.nnx_cases import LAYER_PATHS, MAKE, ROWS, TOKENS, cross_entropy, state_of
from tests.helpers import same_arrays

CUBE = checks.policy_file("fp8")


@pytest.mark.slow
def test_decoding_one_token_at_a_time():
    """Keys and values, their index and the position are Variables that every call moves on."""
    plain, same, cast = (models.Decoder(nnx.Rngs(0)) for _ in range(3))
    for model in (plain, same, cast):
        model.start(TOKENS.shape[0])
    steps = {
        "plain": (plain, nnx.jit(models.Decoder.next)),
        "same": (same, nnx.jit(simulate(models.Decoder.next, checks.NO_CASTS))),
        "cast": (cast, nnx.jit(simulate(models.Decoder.next, CUBE))),
    }
    out = {name: [] for name in steps}
    for i in range(models.LENGTH):
        for name, (model, step) in steps.items():
            out[name].append(step(model, TOKENS[:, i : i + 1]))
    same_arrays(out["same"], out["plain"], "logits")
    same_arrays(state_of(same), state_of(plain), "caches")
    assert int(cast.step[...]) == models.LENGTH
    assert [int(layer.attn.cache_index[...]) for layer in cast.layers] == [models.LENGTH] * 2
    whole = nnx.jit(lambda model, tokens: model(tokens))
    together = jnp.concatenate(out["plain"], axis=1)
    np.testing.assert_allclose(together, whole(plain, TOKENS), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(together, jnp.concatenate(out["cast"], axis=1))
    # The bound method, eager, is the same call.
    again = models.Decoder(nnx.Rngs(0))
    again.start(TOKENS.shape[0])
    got = simulate(again.next, CUBE)(TOKENS[:, :1])
    np.testing.assert_allclose(got, out["cast"][0], rtol=1e-5, atol=1e-6)
    assert int(again.step[...]) == 1


@pytest.mark.slow
def test_sites_of_decoding():
    model = models.Decoder(nnx.Rngs(0))
    model.start(TOKENS.shape[0])
    found = sites(lambda m, x: m.next(x), CUBE, annotate(model), TOKENS[:, :1])
    want = [f"Decoder/layers/{i}/{name}" for i in range(2) for name in LAYER_PATHS]
    assert sorted(s.path for s in found) == sorted([*want, "Decoder/head"])
    assert {s.roles for s in found if s.path.endswith("attn")} == {("input", "input")}
    # Scores and mixture are products of the row with what is in the cache.
    attention = {s.shapes[1] for s in found if s.path.endswith("attn")}
    assert all(models.LENGTH in shape for shape in attention)


def trained(wrap_step, wrap_loss, make, steps=3):
    """State of model and optimizer after some steps."""
    model = annotate(make(nnx.Rngs(0)))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    def step(model, optimizer, x, labels):
        value, grads = nnx.value_and_grad(wrap_loss(cross_entropy))(model, x, labels)
        optimizer.update(model, grads)
        return value

    step = nnx.jit(wrap_step(step))
    _, labels = MAKE["nnx_mlp"]().inputs
    losses = [step(model, optimizer, ROWS, labels) for _ in range(steps)]
    return losses, state_of(model), state_of(optimizer)


def untouched(fn):
    return fn


@pytest.mark.slow
def test_a_training_step_inside_or_around():
    """The optimizer's state and count as in the plain step, with simulate at either place."""

    def without(fn):
        return simulate(fn, checks.NO_CASTS)

    def with_casts(fn):
        return simulate(fn, CUBE)

    plain = trained(untouched, untouched, models.Mlp)
    same_arrays(trained(without, untouched, models.Mlp), plain, "around the step")
    same_arrays(trained(untouched, without, models.Mlp), plain, "around the loss")
    assert int(plain[2]["step"]) == 3
    around, inside = (
        trained(with_casts, untouched, models.Mlp),
        trained(untouched, with_casts, models.Mlp),
    )
    assert around[0][0] == inside[0][0] != plain[0][0]
    assert around[0][-1] < around[0][0]


class Gated(nnx.Module):
    """nnx.cond with one of two layers, each with statistics of its own."""

    def __init__(self, rngs):
        self.one = nnx.Linear(4, 4, rngs=rngs)
        self.two = nnx.Linear(4, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)

    def __call__(self, x):
        def first(self, x):
            return self.norm(self.one(x))

        def second(self, x):
            return self.two(x)

        return nnx.cond(x[0, 0] > 0, first, second, self, x)


class Ensemble(nnx.Module):
    """nnx.vmap over modules that are stacked, called through nnx.jit and nnx.remat."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs):
            return nnx.Linear(4, 2, rngs=rngs)

        self.members = make(rngs)

    @nnx.jit
    def __call__(self, x):
        @nnx.remat
        @nnx.vmap(in_axes=(0, None), out_axes=0)
        def answer(member, x):
            return jnp.tanh(member(x))

        return answer(self.members, x).mean(0)


def square(model, x):
    return jnp.mean(model(x) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "paths"),
    [(Gated, {"Gated/one", "Gated/two"}), (Ensemble, {"Ensemble/members"})],
    ids=["cond", "vmap"],
)
@pytest.mark.parametrize("x", [ROWS, -ROWS], ids=["first", "second"])
def test_other_transforms(make, paths, x):
    def run(fn):
        model = annotate(make(nnx.Rngs(0)))
        return nnx.jit(fn)(model, x), state_of(model)

    step = nnx.value_and_grad(square)
    plain = run(step)
    same_arrays(run(simulate(step, checks.NO_CASTS)), plain, "simulate(grad)")
    inside = nnx.value_and_grad(simulate(square, checks.NO_CASTS))
    same_arrays(run(inside), plain, "grad(simulate)")
    (loss, _), _ = run(simulate(step, CUBE))
    assert np.isfinite(loss)
    assert loss != plain[0][0]
    found = sites(step, CUBE, annotate(make(nnx.Rngs(0))), x)
    assert {s.path for s in found} == paths
    assert {s.roles for s in found if s.direction == "forward"} == {("input", "weight")}
    assert {"input", "grad"} in [set(s.roles) for s in found if s.direction == "backward"]


@pytest.mark.slow
def test_split_and_merge_around():
    """A functional training loop: graph and state apart, simulate on the merged model."""
    model = annotate(models.Mlp(nnx.Rngs(0)))
    graph, params = nnx.split(model, nnx.Param)

    def loss(params, x):
        return square(nnx.merge(graph, params), x)

    want = jax.jit(jax.value_and_grad(loss))(params, ROWS)
    got = jax.jit(simulate(jax.value_and_grad(loss), checks.NO_CASTS))(params, ROWS)
    same_arrays(got, want, "state as an argument")
    found = sites(loss, CUBE, params, ROWS)
    assert [(s.path, s.roles) for s in found] == [
        (f"Mlp/{name}", ("input", "weight")) for name in ("layers/0", "layers/1", "head")
    ]
