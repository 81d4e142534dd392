"""Rules keyed on the functions whose calls made an operation, and calls as composite operators."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from npusim._errors import PolicyError
from npusim.inject import CastSpec, Policy, Rule, apply_cast, simulate, sites
from tests.helpers import same_arrays

FP16 = CastSpec("fp16")
BF16 = CastSpec("bf16")
X = jnp.arange(12.0).reshape(3, 4) / 7
C = jnp.linspace(-1.3, 1.1, 12).reshape(3, 4)


def gate(x):
    return x * jnp.where(x > 0, jnp.tanh(x), 0.0)


def matched(fn, rule, *args):
    return [s.op for s in sites(fn, Policy([rule]), *args) if s.rule == 0]


def test_any_function_of_the_caller_or_of_jax():
    def f(x):
        return gate(x) + jax.nn.silu(x) + jax.nn.log_softmax(x) + jnp.tanh(x)

    assert matched(f, Rule(ops="all", function="gate"), X) == ["tanh", "mul"]
    assert matched(f, Rule(ops="all", function="silu"), X) == ["logistic", "mul"]
    assert matched(f, Rule(ops="exp", function="silu|log_softmax"), X) == ["exp"]
    # The whole name counts, and all keys of a rule together.
    assert matched(f, Rule(ops="all", function="gat"), X) == []
    assert matched(f, Rule("net", "all", function="gate"), X) == []
    back = [s for s in sites(jax.grad(lambda x: jnp.sum(f(x))), Policy([], None), X)]
    assert back == []
    found = sites(jax.grad(lambda x: jnp.sum(f(x))), Policy([Rule(ops="mul", function="gate")]), X)
    assert {s.direction for s in found} == {"forward", "backward"}


def test_what_jax_traced_before_does_not_count():
    @jax.jit
    def shared(x):
        return jnp.exp(x) + 1

    def first(x):
        return shared(x)

    def second(x):
        return shared(x)

    # Traced for `first`, taken from the cache for `second`.
    rule = Rule(ops="exp", function="first")
    assert matched(lambda x: first(x), rule, X) == ["exp"]
    assert matched(lambda x: second(x), rule, X) == []
    assert matched(lambda x: second(first(x)), rule, X) == ["exp"]
    assert matched(lambda x: second(x), Rule(ops="exp", function="shared"), X) == ["exp"]


def test_classes_stand_for_their_calls():
    class Scaled(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(4, name="up")(nn.LayerNorm(name="first")(x)) * 2

    net = Scaled()
    variables = net.init(jax.random.key(0), X)
    apply = lambda v, x: net.apply(v, x)  # noqa: E731
    assert matched(apply, Rule(ops="rsqrt", function="LayerNorm"), variables, X) == ["rsqrt"]
    assert matched(apply, Rule(ops="all", function="Dense"), variables, X) == ["dot_general", "add"]
    assert matched(apply, Rule(ops="mul", function="Scaled"), variables, X) == ["mul"] * 3
    norm = nnx.LayerNorm(4, rngs=nnx.Rngs(0))
    graph, state = nnx.split(norm)
    run = lambda state, x: nnx.merge(graph, state)(x)  # noqa: E731
    assert matched(run, Rule(ops="rsqrt", function="LayerNorm"), state, X) == ["rsqrt"]


def spread(x):
    return x - jnp.mean(x, -1, keepdims=True) ** 2


def forms(fn):
    return {
        "plain": lambda x: jnp.sum(fn(x) * C),
        "jit": lambda x: jnp.sum(jax.jit(lambda x: fn(x) * 1)(x) * C),
        "remat": lambda x: jnp.sum(jax.checkpoint(lambda x: fn(jnp.sin(x)) * 1)(x) * C),
        "scan": lambda x: jnp.sum(
            lax.scan(lambda h, _: (fn(h * 0.5) * C, None), x, None, length=2)[0]
        ),
        "vmap": lambda x: jnp.sum(jax.vmap(lambda x: fn(x) * 1)(x) * C),
    }


FUNCTIONS = {
    "spread": spread,
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
}


SOME = [("spread", "plain"), ("log_softmax", "jit"), ("softplus", "scan"), ("relu", "remat")]
REST = [(name, form) for name in FUNCTIONS for form in forms(spread) if (name, form) not in SOME]


@pytest.mark.parametrize(
    ("name", "form"), [*SOME, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)]
)
def test_a_call_is_one_operator_forward_and_backward(name, form):
    loss = forms(FUNCTIONS[name])[form]
    rule = Rule(".*", "boundary", function=name, input=FP16, output=FP16, grad=BF16)
    found = [s for s in sites(jax.grad(loss), Policy([rule]), X) if s.op == "boundary"]
    assert {s.path for s in found} == {name}
    forward = [s for s in found if s.direction == "forward" and not s.recomputed]
    # One value enters and one leaves: what the derivative saves inside stays inside.
    assert sorted(len(s.roles) for s in forward) == [0, 1]
    got = jax.grad(simulate(loss, Policy([rule])))(X)
    both = simulate(jax.value_and_grad(loss), Policy([rule]))(X)
    plain = jax.grad(loss)(X)
    np.testing.assert_allclose(got, plain, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(both[1], plain, rtol=0.02, atol=0.02)


def test_values_by_hand_and_two_calls_apart():
    def f(x):
        return jax.nn.softmax(jax.nn.softmax(x)) + jax.nn.softmax(2 * x)

    rule = Rule(".*", "boundary", function="softmax", input=FP16, weight=FP16, output=FP16)
    found = sites(f, Policy([rule]), X)
    assert sum(1 for s in found if s.op == "boundary") == 6

    def soft(x):
        return apply_cast(FP16, jax.nn.softmax(apply_cast(FP16, x)))

    same_arrays(simulate(f, Policy([rule]))(X), soft(soft(X)) + soft(2 * X), "softmax")
    # In a loop the same call is made again and again: one operator each time.
    loop = lambda x: [x := jax.nn.softmax(x) * 3 for _ in range(3)][-1]  # noqa: E731
    got = simulate(loop, Policy([rule]))(X)
    want = X
    for _ in range(3):
        want = soft(want) * 3
    same_arrays(got, want, "loop")


def test_plain_form_and_refusals():
    rule = Rule("net", "boundary", function="softmax|gelu", output="fp16", optional=True)
    plain = {
        "path": "net",
        "ops": "boundary",
        "output": {"dtype": "fp16"},
        "function": "softmax|gelu",
        "optional": True,
    }
    assert rule.to_dict() == plain
    assert Policy.from_dict({"rules": [plain]}).rules[0].to_dict() == plain
    assert "function='softmax|gelu', optional=True" in repr(rule)
    with pytest.raises(PolicyError, match=r"function '\(', which is no regular expression"):
        Rule(function="(")
    with pytest.raises(PolicyError, match="which matches everything"):
        Rule(".*", "boundary")
    # An optional rule that matches nothing is no mistake; pytest makes warnings errors.
    same_arrays(simulate(lambda x: x + 1, Policy([rule]))(X), X + 1, "optional")
