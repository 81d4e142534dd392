"""NNX models: instance paths by `annotate`, state kept, parameters recognised."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from npusim import _errors as errors
from npusim.casting import fake_cast
from npusim.flax import nnx as npu_nnx
from npusim.flax.nnx import annotate
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.flax import models
from tests.helpers import same_arrays

E4M3 = CastSpec("fp8_e4m3", "RINT", scale="amax")
CASTS = Policy([Rule(input=E4M3, weight=E4M3)])
NO_CASTS = Policy([Rule()])


def state_of(model):
    """All state, random keys as their words."""
    leaves = jax.tree.leaves(nnx.state(model))
    is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [jax.random.key_data(x) if key else x for x, key in zip(leaves, is_key, strict=True)]


def forward(model, x):
    return model(x)


def loss(model, x):
    return jnp.mean(model(x) ** 2)


def test_paths_are_the_attributes():
    model = annotate(models.NnxMLP(nnx.Rngs(0)))
    found = sites(forward, CASTS, model, models.ROWS)
    assert [s.path for s in found] == ["NnxMLP/layers/0", "NnxMLP/layers/1", "NnxMLP/head"]
    assert {s.roles for s in found} == {("input", "weight")}
    found = sites(nnx.grad(loss), CASTS, model, models.ROWS)
    assert sorted(s.path for s in found if s.direction == "backward") == [
        "NnxMLP/head",
        "NnxMLP/head",
        "NnxMLP/layers/0",
        "NnxMLP/layers/1",
        "NnxMLP/layers/1",
    ]


def test_attention_sequential_methods_and_tied_embeddings():
    model = annotate(models.NnxLM(nnx.Rngs(0)))
    found = sites(forward, CASTS, model, models.TOKENS)
    attn = ["query", "key", "value", None, None, "out"]
    assert [s.path for s in found] == [
        *("NnxLM/block/attn" + (f"/{name}" if name else "") for name in attn),
        "NnxLM/block/mlp/layers/0",
        "NnxLM/block/mlp/layers/2",
        "NnxLM/embed",
    ]
    assert found[-1].method == "attend"
    assert [s.roles for s in found].count(("input", "weight")) == 7


def test_without_annotate_there_are_no_paths():
    found = sites(forward, NO_CASTS, models.NnxMLP(nnx.Rngs(0)), models.ROWS)
    assert [s.path for s in found] == ["", "", ""]


def test_annotate_leaves_the_model_alone_and_shares_its_variables():
    model = models.NnxLM(nnx.Rngs(0))
    twin = annotate(model, name="lm")
    assert type(model.block) is models.NnxBlock
    assert type(twin.block) is not models.NnxBlock
    assert isinstance(twin.block, models.NnxBlock)
    assert type(twin.block).__name__ == "NnxBlock"
    assert twin.block.attn.query.kernel is model.block.attn.query.kernel
    assert sites(forward, NO_CASTS, twin, models.TOKENS)[0].path == "lm/block/attn/query"
    same_arrays(nnx.state(twin, nnx.Param), nnx.state(model, nnx.Param), "state")
    compiled = nnx.jit(forward)
    same_arrays(compiled(twin, models.TOKENS), compiled(model, models.TOKENS), "nnx.jit")
    # Twins of one class share one class, so nothing is compiled twice.
    assert type(annotate(model).block) is type(twin.block)
    clone = nnx.clone(twin)
    assert sites(forward, NO_CASTS, clone, models.TOKENS)[0].path == "lm/block/attn/query"


def test_a_pytree_of_callables():
    tree = {"up": nnx.Linear(4, 4, rngs=nnx.Rngs(0)), "acts": [jnp.tanh], "scale": 2.0}
    named = annotate(tree, name="net")
    assert named["scale"] == 2.0

    def run(tree, x):
        return tree["acts"][0](tree["up"](x)) @ x.T

    found = sites(lambda x: run(named, x), Policy([Rule(ops=["tanh", "matmul"])]), models.ROWS)
    assert [s.path for s in found] == ["net/up", "net/acts/0", ""]


def test_state_is_kept_and_identity_is_bitwise():
    plain, same = models.NnxMLP(nnx.Rngs(0)), models.NnxMLP(nnx.Rngs(0))
    for _ in range(2):
        want = plain(models.ROWS)
        got = npu_nnx.simulate(same, NO_CASTS)(models.ROWS)
        same_arrays(got, want, "identity")
    same_arrays(state_of(same), state_of(plain), "statistics and rng counters")
    step = nnx.value_and_grad(loss)
    want = nnx.jit(step)(plain, models.ROWS)
    got = nnx.jit(npu_nnx.simulate(step, NO_CASTS))(same, models.ROWS)
    same_arrays(got[0], want[0], "loss")
    same_arrays(jax.tree.leaves(got[1]), jax.tree.leaves(want[1]), "gradient")
    same_arrays(state_of(same), state_of(plain), "statistics after the gradient")


def test_casts_reach_the_model_in_both_orders():
    model = annotate(models.NnxMLP(nnx.Rngs(0)))
    model.eval()
    plain = nnx.jit(nnx.value_and_grad(loss))(model, models.ROWS)
    outside = nnx.jit(npu_nnx.simulate(nnx.value_and_grad(loss), CASTS))(model, models.ROWS)
    inside = nnx.jit(nnx.value_and_grad(npu_nnx.simulate(loss, CASTS)))(model, models.ROWS)
    assert outside[0] == inside[0]
    assert outside[0] != plain[0]
    for a, b in zip(jax.tree.leaves(outside[1]), jax.tree.leaves(inside[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_plain_simulate_reads_modules_but_does_not_write_them():
    model = annotate(models.NnxMLP(nnx.Rngs(0)))
    model.eval()
    want = npu_nnx.simulate(forward, CASTS)(model, models.ROWS)
    same_arrays(simulate(forward, CASTS)(model, models.ROWS), want, "no state to write")


def test_training_with_an_optimizer():
    model = annotate(models.NnxMLP(nnx.Rngs(0)))
    optimizer = nnx.Optimizer(model, optax.sgd(0.05), wrt=nnx.Param)
    step = npu_nnx.simulate(nnx.value_and_grad(loss), CASTS)

    @nnx.jit
    def train(model, optimizer, x):
        value, grads = step(model, x)
        optimizer.update(model, grads)
        return value

    losses = [float(train(model, optimizer, models.ROWS)) for _ in range(8)]
    assert losses[-1] < losses[0]


def test_static_arguments_by_name():
    def sized(model, rows, training):
        assert training is True
        return model(jnp.ones((rows, 4)))

    model = models.NnxMLP(nnx.Rngs(0))
    run = npu_nnx.simulate(sized, NO_CASTS, static_argnames=("rows",))
    assert run(model, 2, training=True).shape == (2, 3)
    assert run(model, rows=3, training=True).shape == (3, 3)


class Tied(nnx.Module):
    """One layer in two places, what it saw on the way, and a counter that is no Variable."""

    def __init__(self, rngs):
        self.first = nnx.Linear(4, 4, rngs=rngs)
        self.second = self.first
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        h = self.first(x)
        self.seen = nnx.Intermediate(h)
        return self.second(h)

    def half(self, x, times):
        for _ in range(times):
            x = self.first(x)
        return x


def test_annotating_again_names_anew():
    model = Tied(nnx.Rngs(0))
    once = annotate(model)
    for twin, root in (
        (annotate(once), "Tied"),
        (annotate(once, name="net"), "net"),
        (annotate(annotate(once), name="net"), "net"),
    ):
        assert [s.path for s in sites(forward, NO_CASTS, twin, models.ROWS)] == [
            f"{root}/first"
        ] * 2
        assert type(twin).__mro__[1] is Tied
    part = annotate(once.first)
    assert [s.path for s in sites(forward, NO_CASTS, part, models.ROWS)] == ["Linear"]
    # A model that has its paths keeps them when it is simulated.
    policy = Policy([Rule("^net/first$", weight="fp4_e2m1")])
    named = npu_nnx.simulate(annotate(model, name="net"), policy)(models.ROWS)
    rounded = npu_nnx.simulate(model, Policy([Rule(weight="fp4_e2m1")]))(models.ROWS)
    same_arrays(named, rounded, "by name and by kind")


def test_a_call_changes_the_model_as_it_does_without_simulate():
    plain, same = Tied(nnx.Rngs(0)), Tied(nnx.Rngs(0))
    run = npu_nnx.simulate(same, NO_CASTS)
    for _ in range(2):
        same_arrays(run(models.ROWS), plain(models.ROWS), "identity")
    assert (plain.calls, same.calls) == (2, 2)
    same_arrays(same.seen[...], plain.seen[...], "an attribute that the call made")
    assert type(same) is Tied
    assert type(same.first) is nnx.Linear
    assert same.first is same.second
    assert nnx.graphdef(same) == nnx.graphdef(plain)


def test_modules_come_back_as_they_went_in():
    model = annotate(Tied(nnx.Rngs(0)))
    made, (again, part) = npu_nnx.simulate(
        lambda m, x: (nnx.Linear(4, 2, rngs=nnx.Rngs(1)), [m, m.first]), Policy([])
    )(model, models.ROWS)
    assert again is model
    assert part is model.first
    assert made(models.ROWS).shape == (6, 2)


def test_a_bound_method_is_simulated_with_its_module():
    model = Tied(nnx.Rngs(0))
    policy = Policy([Rule("Tied/first", weight="fp4_e2m1")])
    got = npu_nnx.simulate(model.half, policy, static_argnames=("times",))(models.ROWS, 1)
    twin = Tied(nnx.Rngs(0))
    twin.first.kernel[...] = fake_cast(twin.first.kernel[...], "fp4_e2m1")
    same_arrays(got, twin.half(models.ROWS, 1), "weights in fp4")


def test_a_shared_layer_keeps_one_gradient():
    model = annotate(Tied(nnx.Rngs(0)))
    want = nnx.grad(loss)(model, models.ROWS)
    got = npu_nnx.simulate(nnx.grad(loss), NO_CASTS)(model, models.ROWS)
    same_arrays(jax.tree.leaves(got), jax.tree.leaves(want), "one gradient")
    assert len(jax.tree.leaves(got)) == 2
    # As a plain pytree the layer would be two, each with half of the gradient.
    with pytest.raises(errors.InputError, match=r"npusim\.flax\.nnx\.simulate, which keeps"):
        simulate(nnx.grad(loss), NO_CASTS)(model, models.ROWS)


def test_two_policies_on_one_model_do_not_mix():
    model = annotate(Tied(nnx.Rngs(0)))
    compiled = nnx.jit(forward)
    plain = compiled(model, models.ROWS)
    low, high = (
        npu_nnx.simulate(compiled, Policy([Rule(weight=name)])) for name in ("fp4_e2m1", "bf16")
    )
    a, b = low(model, models.ROWS), high(model, models.ROWS)
    same_arrays(low(model, models.ROWS), a, "the first again")
    same_arrays(high(model, models.ROWS), b, "the second again")
    same_arrays(compiled(model, models.ROWS), plain, "the plain function again")
    assert len({float(out[0, 0]) for out in (plain, a, b)}) == 3


def test_statistics_beside_the_state():
    model = annotate(Tied(nnx.Rngs(0)))
    policy = Policy([Rule(weight="bf16")])
    run = nnx.jit(npu_nnx.simulate(forward, policy, stats=True))
    out, stats = run(model, models.ROWS)
    assert out.shape == (6, 4)
    table = [(r["path"], r["slot"], r["elements"]) for r in stats.table()]
    assert table == [("Tied/first", "weight 1", 16)] * 2
    assert model.calls == 1


def test_a_module_that_looks_through_its_attributes_finds_nothing_new():
    """As the bridge to Linen does, whose layers stand below it."""
    module = nnx.bridge.ToNNX(linen.Dense(3, use_bias=False), rngs=nnx.Rngs(0))
    module.lazy_init(models.ROWS)
    policy = Policy([Rule("ToNNX/Dense", weight="fp4_e2m1")])
    want = models.ROWS @ fake_cast(module.kernel[...], "fp4_e2m1")
    np.testing.assert_allclose(npu_nnx.simulate(module, policy)(models.ROWS), want, rtol=1e-5)
    assert vars(annotate(module)).keys() == vars(module).keys()


def test_what_a_call_does_not_change_is_not_written():
    """So a model without state may be closed over, as without simulate."""
    model = nnx.Linear(4, 3, use_bias=False, rngs=nnx.Rngs(0))
    kernel = model.kernel.get_raw_value()
    run = jax.jit(npu_nnx.simulate(model, Policy([Rule(weight="fp4_e2m1")])))
    want = models.ROWS @ fake_cast(kernel, "fp4_e2m1")
    np.testing.assert_allclose(run(models.ROWS), want, rtol=1e-5)
    assert model.kernel.get_raw_value() is kernel
