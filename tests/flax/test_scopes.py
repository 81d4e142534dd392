"""Scopes in pytrees of callables that are no NNX modules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.flax.nnx import annotate
from npusim.inject import Policy, Rule, simulate, sites
from tests.flax import models

ALL = Policy([Rule(ops="all")])


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "act"], meta_fields=[])
class Layer:
    """A callable node as other libraries have them: parameters, and a function as a setting."""

    def __init__(self, w, act):
        self.w, self.act = w, act

    def __call__(self, x):
        assert self.act is jnp.tanh
        return self.act(x @ self.w)

    def only(self, x):
        return x @ self.w


def stack():
    return {
        "layers": [Layer(jnp.eye(4), jnp.tanh), Layer(2 * jnp.eye(4), jnp.tanh)],
        "out": jnp.sin,
    }


def run(tree, x):
    for layer in tree["layers"]:
        x = layer(x)
    return tree["out"](tree["layers"][0].only(x))


@pytest.mark.parametrize("times", [1, 2])
def test_nodes_and_functions_have_their_places(times):
    named = tree = stack()
    for _ in range(times):
        named = annotate(named, name="net")
    found = sites(run, ALL, named, models.ROWS)
    assert [(s.path, s.op, s.method) for s in found] == [
        ("net/layers/0", "dot_general", None),
        ("net/layers/0", "tanh", None),
        ("net/layers/1", "dot_general", None),
        ("net/layers/1", "tanh", None),
        ("net/layers/0", "dot_general", "only"),
        ("net/out", "sin", None),
    ]
    assert named["layers"][1].w is tree["layers"][1].w


def test_a_rule_reaches_one_instance():
    policy = Policy([Rule("layers/1", weight="fp4_e2m1")])
    tree = {"layers": [Layer(jnp.full((4, 4), 0.3), jnp.tanh) for _ in range(2)], "out": jnp.sin}
    got = simulate(run, policy)(annotate(tree), models.ROWS)
    x = jnp.tanh(models.ROWS @ tree["layers"][0].w)
    x = jnp.tanh(x @ jnp.full((4, 4), 0.5))  # 0.3 lies nearer to 0.5 than to 0
    np.testing.assert_allclose(got, jnp.sin(x @ tree["layers"][0].w), rtol=1e-6)


def test_a_named_function_is_equal_to_itself_for_jit():
    assert annotate([jnp.tanh], name="a") == annotate([jnp.tanh], name="a")
    assert annotate([jnp.tanh], name="a") != annotate([jnp.tanh], name="b")
    assert annotate(jnp.tanh).__wrapped__ is jnp.tanh
