"""What `simulate` makes of arguments: static ones, pytrees, parameters, and shapes alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim import _errors as errors
from npusim.casting import fake_cast
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.inject import programs
from tests.inject.programs import W, X

E4M3 = CastSpec("fp8_e4m3", "RINT", scale="amax")
CASTS = Policy([Rule(input=E4M3, weight=E4M3)])
GRAD = CastSpec("fp8_e5m2", "RINT")


def test_static_and_pytree_arguments():
    def f(model, x, *, scale, act, training, name=None):
        assert training is True
        assert act is jnp.tanh
        assert name in (None, "a")
        return {"y": act(x["a"] @ model["params"]["w"]) * scale, "none": None}

    policy = Policy([Rule(weight="fp8_e4m3")])
    g = simulate(f, policy)
    model = {"params": {"w": W[0]}, "stats": jnp.ones(3)}
    got = g(model, {"a": X}, scale=2.0, act=jnp.tanh, training=True, name="a")
    assert got["none"] is None
    dot = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    want = jnp.tanh(dot(X, fake_cast(W[0], "fp8_e4m3"))) * 2
    np.testing.assert_allclose(got["y"], want, rtol=1e-6)

    def sized(w, x, n):
        return jnp.ones((n, 4)) @ w

    assert simulate(sized, policy, static_argnames="n")(W[0], X, 3).shape == (3, 4)
    assert simulate(sized, policy, static_argnames=("n",))(W[0], X, n=3).shape == (3, 4)


def test_which_arguments_are_parameters():
    def f(a, b):
        return a @ b["w"]

    policy = Policy([Rule()])

    def roles(**kwargs):
        return sites(f, policy, X, {"w": W[0]}, **kwargs)[0].roles

    assert roles() == ("weight", "input")
    assert roles(params=1) == ("input", "weight")
    assert roles(params=(0, 1)) == ("weight", "weight")
    assert roles(params=()) == ("input", "input")
    by_key = roles(params=lambda path, leaf: jax.tree_util.keystr(path) == "[1]['w']")
    assert by_key == ("input", "weight")
    named = sites(f, policy, X, {"params": {"w": W[0]}}["params"])[0].roles
    assert named == ("weight", "input")
    g = lambda x, state: x @ state["params"]["w"]  # noqa: E731
    assert sites(g, policy, X, {"params": {"w": W[0]}})[0].roles == ("input", "weight")
    with pytest.raises(errors.InputError, match="numbers of positional arguments"):
        roles(params=2)


def test_what_is_no_policy_or_function():
    with pytest.raises(errors.PolicyError, match="Pass the function, not its result"):
        simulate(programs.plain(W, X), CASTS)
    with pytest.raises(errors.PolicyError, match=r"Policy\.from_dict"):
        simulate(programs.plain, [Rule()])


def test_shapes_alone_will_do_for_sites():
    big = jax.ShapeDtypeStruct((3, 40000, 40000), jnp.float32)
    x = jax.ShapeDtypeStruct((4, 40000), jnp.float32)
    found = sites(jax.grad(programs.scanned), CASTS, big, x)
    assert [s.path for s in found] == ["net/layer"] * 3
    assert [s.trips for s in found] == [3, 3, 3]
    assert found[0].shapes == ((4, 40000), (40000, 40000), (4, 40000))
    assert "test_transform" not in found[0].path
    assert "programs.py" in found[0].source


def test_a_number_that_an_object_holds_is_a_setting():
    """As Equinox's modules hold rates and limits: the code may ask what they are."""

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "times"], meta_fields=[])
    @dataclasses.dataclass
    class Layer:
        w: jax.Array
        times: int

    def run(layer, factor, x):
        assert isinstance(factor, jax.core.Tracer)
        for _ in range(layer.times):
            x = x @ layer.w
        return factor * x

    got = simulate(run, Policy([Rule()]))(Layer(jnp.eye(2) * 2, 3), 10, jnp.ones((1, 2)))
    assert got.tolist() == [[80.0, 80.0]]
