"""The same bits under every transform, derivatives, and a user's script."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
import npusim.numpy as nnp
from tests.helpers import same_arrays

RNG = np.random.default_rng(11)
X, Y = (jnp.asarray(RNG.uniform(0.3, 2.0, (3, 8)), jnp.float32) for _ in range(2))

SMOOTH = {
    "add": (nnp.add, jnp.add),
    "subtract": (nnp.subtract, jnp.subtract),
    "multiply": (nnp.multiply, jnp.multiply),
    "divide": (nnp.divide, jnp.divide),
    "power": (nnp.power, jnp.power),
    "maximum": (nnp.maximum, jnp.maximum),
    "exp": (lambda x, y: nnp.exp(x), lambda x, y: jnp.exp(x)),
    "log": (lambda x, y: nnp.log(x), lambda x, y: jnp.log(x)),
    "sqrt": (lambda x, y: nnp.sqrt(x), lambda x, y: jnp.sqrt(x)),
    "rsqrt": (lambda x, y: nnp.rsqrt(x), lambda x, y: jax.lax.rsqrt(x)),
    "tanh": (lambda x, y: nnp.tanh(x), lambda x, y: jnp.tanh(x)),
    "erf": (lambda x, y: nnp.erf(x), lambda x, y: jax.lax.erf(x)),
    "sigmoid": (lambda x, y: nnp.sigmoid(x), lambda x, y: jax.nn.sigmoid(x)),
    "silu": (lambda x, y: nnp.silu(x), lambda x, y: jax.nn.silu(x)),
    "gelu": (lambda x, y: nnp.gelu(x), lambda x, y: jax.nn.gelu(x)),
    "softmax": (lambda x, y: nnp.softmax(x), lambda x, y: jax.nn.softmax(x)),
    "log_softmax": (lambda x, y: nnp.log_softmax(x), lambda x, y: jax.nn.log_softmax(x)),
    "mean": (lambda x, y: nnp.mean(x, -1), lambda x, y: jnp.mean(x, -1)),
    "sum": (lambda x, y: nnp.sum(x, -1), lambda x, y: jnp.sum(x, -1)),
    "var": (lambda x, y: nnp.var(x, -1), lambda x, y: jnp.var(x, -1)),
    "cumsum": (lambda x, y: nnp.cumsum(x, -1), lambda x, y: jnp.cumsum(x, -1)),
    "where": (lambda x, y: nnp.where(x > 1, x, y), lambda x, y: jnp.where(x > 1, x, y)),
    "clip": (lambda x, y: nnp.clip(x, 0.5, 1.5), lambda x, y: jnp.clip(x, 0.5, 1.5)),
    "matmul": (lambda x, y: nnp.matmul(x, y.T), lambda x, y: x @ y.T),
    "layer_norm": (
        lambda x, y: nnp.layer_norm(x, y[0]),
        lambda x, y: jax.nn.standardize(x, epsilon=1e-5) * y[0],
    ),
}


def test_derivatives_are_those_of_jnp():
    def gradients(which):
        def of(function):
            def loss(x, y):
                out = function(x, y)
                weight = np.cos(np.arange(out.size, dtype=np.float32)).reshape(out.shape)
                return jnp.sum(out * weight)

            return jax.grad(loss, (0, 1))

        return jax.jit(lambda x, y: {n: of(pair[which])(x, y) for n, pair in SMOOTH.items()})(X, Y)

    ours, theirs = gradients(0), gradients(1)
    for name in SMOOTH:
        for got, want in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=name)


WIDE = ("add", "divide", "tanh", "sigmoid")


@pytest.mark.parametrize("kind", ["fp16", "fp32"])
def test_the_same_bits_under_jit_and_vmap(kind):
    # Chains in float32 may be contracted differently from compilation to compilation.
    names = WIDE if kind == "fp32" else [n for n in SMOOTH if n not in ("matmul", "layer_norm")]
    x, y = (npu.cast(v, kind) for v in (X, Y))

    def every(x, y):
        return {n: SMOOTH[n][0](x, y) for n in names}

    eager = every(x, y)
    same_arrays(jax.jit(every)(x, y), eager, "jit")
    same_arrays(jax.jit(jax.vmap(every))(x, y), eager, "vmap")


def test_a_broadcast_divisor_is_no_reciprocal():
    x = jnp.asarray(RNG.standard_normal((64, 64)), jnp.float32)
    rows = jnp.asarray(RNG.uniform(1, 2, (64, 1)), jnp.float32)
    want = np.asarray(x) / np.float32(3)
    same_arrays(nnp.divide(x, 3.0), jnp.asarray(want), "eager")
    same_arrays(jax.jit(lambda v: nnp.divide(v, 3.0))(x), jnp.asarray(want), "literal")
    mapped = jax.jit(jax.vmap(nnp.divide, (0, None)))(x, jnp.float32(3))
    same_arrays(mapped, jnp.asarray(want), "vmap")
    got = jax.jit(nnp.divide)(x, rows)
    same_arrays(got, jnp.asarray(np.asarray(x) / np.asarray(rows)), "rows")


def test_cotangents_pass_the_rounding():
    x = jnp.array([1.1, 2.2], jnp.float16)
    got = jax.grad(lambda v: nnp.sum(nnp.multiply(v, 3.0)))(x)
    assert got.dtype == jnp.float16
    assert got.tolist() == [3.0, 3.0]
    primal, tangent = jax.jvp(lambda v: nnp.add(v, 1), (x,), (jnp.ones_like(x),))
    assert primal.dtype == tangent.dtype == jnp.float16
    assert tangent.tolist() == [1.0, 1.0]
    assert jax.grad(lambda v: nnp.power(v, 3))(2.0) == 12
    assert jax.hessian(nnp.tanh)(0.5) == pytest.approx(-0.7268, abs=1e-3)


def test_traced_scalars_are_scalars():
    x = jnp.ones(3, jnp.float16)
    assert jax.jit(lambda s: nnp.multiply(x, s))(2.5).dtype == jnp.float16
    assert jax.jit(nnp.add)(jnp.ones(3, jnp.int8), 300).tolist() == [45, 45, 45]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,kj", [(3, 4), (5, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (2, 6, 4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(7,), (7,)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("ij->j", [(3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ijk,k->ji", [(2, 3, 4), (4,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ij,ik->k", [(3, 4), (3, 5)]),
        ("bi,bi->b", [(3, 4), (3, 4)]),
    ],
)
def test_einsum(text, shapes):
    operands = [RNG.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    got = nnp.einsum(text, *operands)
    np.testing.assert_array_equal(np.asarray(got), np.einsum(text, *operands))


def test_dot():
    a, b, c = (RNG.integers(-4, 5, s).astype(np.float32) for s in ((3, 4), (2, 4, 5), (4,)))
    for x, y in ((a, b), (a, c), (c, c), (b, np.float32(2.0))):
        np.testing.assert_array_equal(np.asarray(nnp.dot(x, y)), np.dot(x, y))


def _script(xp):
    """One training step of a small network, as a user writes it for jax.numpy."""

    def loss(params, x, labels):
        hidden = xp.maximum(xp.matmul(x, params["w1"]), 0)
        logits = xp.matmul(hidden, params["w2"])
        top = xp.max(logits, axis=-1, keepdims=True)
        shifted = xp.subtract(logits, top)
        log_sum = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
        picked = xp.where(xp.equal(xp.reshape(labels, (-1, 1)), xp.arange(3)), shifted - log_sum, 0)
        return xp.negative(xp.mean(xp.sum(picked, axis=-1)))

    @jax.jit
    def step(params, x, labels):
        value, grads = jax.value_and_grad(loss)(params, x, labels)
        return value, jax.tree.map(lambda p, g: xp.subtract(p, xp.multiply(g, 0.5)), params, grads)

    return step


@pytest.mark.parametrize("kind", [jnp.float16, jnp.float32])
def test_a_users_script(kind):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((32, 6)), jnp.float32).astype(kind)
    labels = jnp.asarray(rng.integers(0, 3, 32))
    start = {
        "w1": jnp.asarray(rng.standard_normal((6, 16)) / 3, jnp.float32).astype(kind),
        "w2": jnp.asarray(rng.standard_normal((16, 3)) / 4, jnp.float32).astype(kind),
    }
    curves = []
    for xp in (jnp, nnp, nnp.bind("A2A3")):
        params, values = start, []
        step = _script(xp)
        for _ in range(6):
            value, params = step(params, x, labels)
            values.append(float(value))
        assert params["w1"].dtype == kind
        curves.append(values)
    assert curves[1][-1] < curves[1][0]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=0.06 if kind != jnp.float32 else 1e-4)
