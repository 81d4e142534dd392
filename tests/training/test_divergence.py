"""The overflow flag, the first divergence and the overflow modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import npusim as npu
from npusim._errors import InputError, PolicyError, UnknownNameError
from npusim.training import compare_overflow_modes, first_divergence, flagged, with_overflow
from npusim.training.watch import Nest

LAYERS = 4


class Net(nn.Module):
    """Three named layers."""

    @nn.compact
    def __call__(self, x):
        for name in ("first", "second", "third"):
            x = nn.tanh(nn.Dense(4, name=name)(x))
        return x


X = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
PARAMS = Net().init(jax.random.key(0), X)


def loss(params, x):
    return jnp.sum(Net().apply(params, x) ** 2)


def cut(path, **casts):
    return npu.Policy([npu.Rule(path=path, **casts)])


@pytest.mark.parametrize("path", ["first", "second", "third"])
def test_the_first_site_by_path(path):
    found = first_divergence(loss, None, cut(path, weight="fp8_e4m3"), PARAMS, X)
    assert (found.path, found.op, found.direction) == (f"Net/{path}", "dot_general", "forward")
    assert (found.casts_a, found.casts_b) == ("nothing", "weight 1: fp8_e4m3")
    assert found.a == found.output_a[found.index]
    assert found.b == found.output_b[found.index]
    x, y = found.output_a.astype(float), found.output_b.astype(float)
    assert found.difference == np.abs(x - y).max() / np.abs(x).max()
    assert found.differing == (x != y).sum()
    assert path in str(found)


def test_values_are_those_of_the_plain_and_the_simulated_layer():
    found = first_divergence(loss, None, cut("first", input="fp8_e4m3"), PARAMS, X)
    kernel = PARAMS["params"]["first"]["kernel"]
    np.testing.assert_array_equal(found.output_a, X @ kernel)
    np.testing.assert_array_equal(found.output_b, npu.fake_cast(X, "fp8_e4m3") @ kernel)


def test_backward_sites_are_seen_through_the_gradient():
    policy = npu.Policy([npu.Rule(path="second", grad="fp8_e5m2", direction="backward")])
    found = first_divergence(jax.grad(loss), None, policy, PARAMS, X)
    assert (found.path, found.direction) == ("Net/second", "backward")


def test_agreement_and_thresholds():
    fine = cut("first", input="bf16")
    assert first_divergence(loss, fine, fine, PARAMS, X) is None
    assert first_divergence(loss, None, None, PARAMS, X) is None
    assert first_divergence(loss, None, fine, PARAMS, X) is not None
    assert first_divergence(loss, None, fine, PARAMS, X, threshold=0.1) is None
    later = npu.Policy([npu.Rule("first", input="bf16"), npu.Rule("third", input="fp4_e2m1")])
    found = first_divergence(loss, None, later, PARAMS, X, threshold=0.05)
    assert found.path == "Net/third"


def test_more_operations_can_be_watched():
    policy = npu.Policy([npu.Rule(ops="tanh", output="fp8_e4m3")])
    found = first_divergence(loss, None, policy, PARAMS, X)
    assert (found.path, found.op, found.casts_b) == ("Net", "tanh", "output: fp8_e4m3")

    def grown(w, x):
        return jnp.exp(20 * (x @ w))

    arguments = jnp.eye(4), jnp.abs(X)
    fine = cut(".*", input="bf16")
    assert first_divergence(grown, None, fine, *arguments, threshold=0.01) is None
    found = first_divergence(grown, None, fine, *arguments, threshold=0.01, ops="exp")
    assert (found.op, found.casts_b) == ("exp", "nothing")
    with pytest.raises(PolicyError, match="Given: ops 'tanhh'"):
        first_divergence(loss, None, None, PARAMS, X, ops="tanhh")


def test_catch_all_rules_leave_nothing_to_add():
    whole = npu.Policy([npu.Rule(ops=["matmul", "conv"], input="bf16")])
    found = first_divergence(loss, npu.Policy([]), whole, PARAMS, X)
    assert found.path == "Net/first"


def scanned(params, x):
    """Layer i adds params[i]; each layer has two products."""

    def layer(x, w):
        y = x @ w
        return jnp.tanh(y @ w), None

    return jnp.sum(jax.lax.scan(layer, x, params)[0])


def test_the_iteration_comes_before_the_position_in_the_body():
    """Only layer 2 has a weight that the format changes: its first product is the first site."""
    weights = np.stack([np.eye(4, dtype=np.float32)] * LAYERS)
    weights[2, 0, 1] = 0.3
    for fn in (scanned, jax.jit(scanned), jax.checkpoint(scanned)):
        found = first_divergence(fn, None, cut(".*", weight="fp4_e2m1"), jnp.asarray(weights), X)
        assert found.execution == 2
        # The identity of the first two layers leaves tanh(tanh(x)) to the third.
        want = jnp.tanh(jnp.tanh(X)) @ weights[2]
        np.testing.assert_allclose(found.output_a, want, rtol=1e-6)
    short = first_divergence(
        scanned, None, cut(".*", weight="fp4_e2m1"), jnp.asarray(weights), X, executions=2
    )
    assert short is None, "only the first executions are compared"


def test_while_and_cond():
    def fn(w, x, n):
        def body(state):
            i, x = state
            return i + 1, jax.lax.cond(i == 1, lambda: x @ w, lambda: x * 0.5)

        return jax.lax.while_loop(lambda s: s[0] < n, body, (0, x))[1]

    w = jnp.eye(4) * 0.3
    found = first_divergence(fn, None, cut(".*", weight="fp4_e2m1"), w, X, 3)
    assert (found.op, found.execution) == ("dot_general", 0)
    np.testing.assert_array_equal(found.output_a, (X * 0.5) @ w)
    assert first_divergence(fn, None, cut(".*", weight="fp4_e2m1"), w, X, 1) is None


def test_moments_order_executions():
    body = Nest((1, (3,), 0, 5)), Nest((1, (3,), 0, 9))
    keys = sorted((nest.moment(k), n, k) for n, nest in enumerate(body) for k in range(3))
    assert [(n, k) for _, n, k in keys] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert Nest((2, (None,), 1, 4)).moment(70) == (2, 70, 1, 4)


@pytest.mark.parametrize("form", ["plain", "jit", "scan", "remat"])
def test_the_flag_comes_out_of_every_form(form):
    spec = npu.CastSpec("fp16", satmode="ON")
    policy = npu.Policy([npu.Rule(output=spec)])

    def product(w, x):
        return jnp.sum(x @ w)

    forms = {
        "plain": product,
        "jit": jax.jit(product),
        "scan": lambda w, x: jnp.sum(jax.lax.map(lambda row: row[None] @ w, x)),
        "remat": jax.checkpoint(product),
    }
    step = jax.jit(flagged(forms[form], policy, since="start"))
    w = jnp.eye(4)
    assert not bool(step(w, X)[1])
    assert bool(step(w, X.at[1, 2].set(7e4))[1])


def test_the_flag_is_cleared_after_the_loss():
    """A forward overflow does not count, as in torch_npu and MindSpore, unless asked for."""
    policy = npu.Policy([npu.Rule(output=npu.CastSpec("fp16"), direction="forward")])
    step = jax.value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
    big = X.at[0, 0].set(1e5)
    assert not bool(flagged(step, policy)(jnp.eye(4), big)[1])
    assert bool(flagged(step, policy, since="start")(jnp.eye(4), big)[1])
    # Rematerialisation runs the forward product again within the backward pass: that counts.
    again = jax.value_and_grad(jax.checkpoint(lambda w, x: jnp.sum(jnp.tanh(x @ w))))
    assert bool(flagged(again, policy)(jnp.eye(4), big)[1])


@pytest.mark.parametrize(
    ("spec", "value", "want"),
    [
        (npu.CastSpec("fp16", "RINT"), 65519.0, False),
        (npu.CastSpec("fp16", "RINT"), 65520.0, True),
        (npu.CastSpec("fp16", "TRUNC", "OFF"), 65535.0, False),
        (npu.CastSpec("fp16", "TRUNC", "OFF"), 65536.0, True),
        (npu.CastSpec("fp8_e4m3", "RINT", scale="amax"), 1e30, False),
        (npu.CastSpec("fp8_e4m3", "RINT", scale="amax"), np.inf, True),
        (npu.CastSpec("fp8_e4m3", "RINT", scale=2.0), 900.0, False),
        (npu.CastSpec("fp8_e4m3", "RINT", scale=2.0), 1000.0, True),
        (npu.CastSpec("fp16"), np.nan, True),
        (npu.CastSpec("int8"), 1000.0, False),
        (npu.CastSpec(npu.FormatParams.of("fp16")), 1e6, True),
        (npu.CastSpec("hif8", "ROUND"), 40960.0, True),
        (npu.CastSpec("hif8", "ROUND"), 40959.0, False),
    ],
    ids=str,
)
def test_what_raises_the_flag(spec, value, want):
    step = flagged(lambda w, x: x @ w, npu.Policy([npu.Rule(input=spec)]), since="start")
    assert bool(step(jnp.eye(1), jnp.full((1, 1), value, jnp.float32))[1]) is want


def test_overflow_modes():
    policy = npu.Policy([npu.Rule("second", output="fp16"), npu.Rule("third", input="int8")])
    big = jax.tree.map(lambda p: p * 1e6, PARAMS)
    found = compare_overflow_modes(jax.value_and_grad(loss), policy, big, X)
    assert found.overflow
    assert found.first.path == "Net/second"
    assert np.isinf(found.first.a)
    assert abs(found.first.b) == 65504
    assert found.first.casts_a == "output: fp16 sat=OFF"
    assert np.isfinite(found.saturate[0])
    quiet = compare_overflow_modes(loss, policy, PARAMS, X)
    assert quiet.first is None
    assert not quiet.overflow


def test_modes_go_where_the_entry_point_reads_them():
    target = npu.Target("950PR", "aclnn")
    policy = npu.Policy([npu.Rule(output="fp16")], target)
    changed = with_overflow(policy, "saturate")
    assert changed.target.overflow is npu.OverflowMode.SATURATE
    assert changed.rules[0] is policy.rules[0]
    laboratory = npu.Policy([npu.Rule(output="fp16", input=npu.CastSpec("int8", satmode="OFF"))])
    rule = with_overflow(laboratory, npu.OverflowMode.SATURATE).rules[0]
    assert str(rule.output) == "fp16 sat=ON"
    assert str(rule.input) == "int8 sat=OFF", "integers have a switch of their own"


def test_messages():
    with pytest.raises(UnknownNameError, match=r"Given: overflow mode 'SATURATED'. .*'SATURATE'"):
        with_overflow(npu.Policy([]), "SATURATED")
    traced = npu.Policy([npu.Rule(input=npu.CastSpec(npu.FormatParams.of("fp16")))])
    with pytest.raises(PolicyError, match="Given: rule 1, input: traced FormatParams with an over"):
        with_overflow(traced, "SATURATE")
    with pytest.raises(UnknownNameError, match=r"Given: since='stat'. Allowed: backward, start"):
        flagged(loss, npu.Policy([]), since="stat")
    with pytest.raises(InputError, match=r"Given: threshold=-1. Allowed: a number of at least 0"):
        first_divergence(loss, None, None, PARAMS, X, threshold=-1)
    with pytest.raises(InputError, match=r"Given: executions=0. Allowed: a whole number of at"):
        first_divergence(loss, None, None, PARAMS, X, executions=0)
    with pytest.raises(PolicyError, match="Given: policy 'bf16'"):
        first_divergence(loss, None, "bf16", PARAMS, X)
    with pytest.raises(PolicyError, match="Given: policy 'bf16'"):
        flagged(loss, "bf16")
