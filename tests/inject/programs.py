"""Functions with every form of control flow, as (loss, parameters, input)."""

import jax
import jax.numpy as jnp
from jax import lax

W = jnp.stack([jnp.eye(4) * 0.7 + 0.1, jnp.eye(4) - 0.2, jnp.ones((4, 4)) * 0.3])
X = jnp.linspace(-1.3, 1.7, 16).reshape(4, 4)


def plain(w, x):
    with jax.named_scope("net"):
        for i in range(2):
            with jax.named_scope(f"layer_{i}"):
                x = jnp.tanh(x @ w[i])
    return jnp.sum(x**2)


def _layer(x, w):
    with jax.named_scope("layer"):
        return jnp.tanh(x @ w), jnp.sum(x)


def scanned(w, x):
    with jax.named_scope("net"):
        x, ys = lax.scan(_layer, x, w)
    return jnp.sum(x**2) + jnp.sum(ys)


def remat(w, x):
    with jax.named_scope("net"):
        x = jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))(x)
    return jnp.sum(x**2)


def scan_of_remat(w, x):
    body = jax.checkpoint(_layer, policy=jax.checkpoint_policies.nothing_saveable)
    with jax.named_scope("net"):
        x, ys = lax.scan(body, x, w)
    return jnp.sum(x**2) + jnp.sum(ys)


def nested_scans(w, x):
    def outer(x, _):
        return lax.scan(_layer, x, w)

    with jax.named_scope("net"):
        x, ys = lax.scan(jax.checkpoint(outer), x, None, length=2)
    return jnp.sum(x**2) + jnp.sum(ys)


def fori(w, x):
    with jax.named_scope("net"):
        x = lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ w[i]), x)
    return jnp.sum(x**2)


def conditional(w, x):
    with jax.named_scope("net"):
        x = lax.cond(jnp.sum(x) > 0, lambda x: jnp.tanh(x @ w[1]), lambda x: x * 2, x)
        x = lax.switch(1, [lambda x: x + 1, lambda x: x @ w[0], lambda x: x @ w[2]], x)
    return jnp.sum(x**2)


def jitted(w, x):
    inner = jax.jit(lambda x, w: jnp.tanh(x @ w))
    with jax.named_scope("net"):
        x = jax.jit(lambda x: inner(inner(x, w[0]), w[1]))(x)
    return jnp.sum(x**2)


def mapped(w, x):
    with jax.named_scope("net"):
        x = jax.vmap(lambda row: jnp.tanh(row @ w[0]) @ w[1])(x)
    return jnp.sum(x**2)


def attention(w, x):
    with jax.named_scope("net"):
        with jax.named_scope("query"):
            q = x @ w[0]
        with jax.named_scope("key"):
            k = x @ w[1]
        scores = jnp.einsum("qd,kd->qk", q, k)
        scores = jnp.where(jnp.tril(jnp.ones((4, 4), bool)), scores, -1e30)
        x = jnp.einsum("qk,kd->qd", jax.nn.softmax(scores), x @ w[2])
    return jnp.sum(x**2)


def activations(w, x):
    with jax.named_scope("net"):
        x = jax.nn.relu(jax.nn.gelu(jax.nn.silu(x @ w[0])) @ w[1])
    return jnp.sum(jax.nn.logsumexp(x, axis=-1))


@jax.custom_vjp
def marked(x, w):
    return jnp.sin(x) @ w


def _marked_fwd(x, w):
    return marked(x, w), (x, w)


def _marked_bwd(saved, g):
    x, w = saved
    # Seven times the derivative: a rule that was dropped would show.
    return 7 * (g @ w.T) * jnp.cos(x), 7 * jnp.sin(x).T @ g


marked.defvjp(_marked_fwd, _marked_bwd)


def custom_vjp(w, x):
    with jax.named_scope("net"), jax.named_scope("marked"):
        x = marked(x, w[0])
    with jax.named_scope("net"), jax.named_scope("last"):
        return jnp.sum((x @ w[1]) ** 2)


@jax.custom_jvp
def bent(x, w):
    return jnp.sin(x) @ w


@bent.defjvp
def _bent_jvp(primals, tangents):
    x, w = primals
    out = bent(x, w)
    return out, 5 * (tangents[0] @ w) + 5 * (x @ tangents[1])


def custom_jvp(w, x):
    with jax.named_scope("net"), jax.named_scope("bent"):
        return jnp.sum(bent(x, w[0]) ** 2)


PROGRAMS = {
    f.__name__: f
    for f in (
        plain,
        scanned,
        remat,
        scan_of_remat,
        nested_scans,
        fori,
        conditional,
        jitted,
        mapped,
        attention,
        activations,
        custom_vjp,
        custom_jvp,
    )
}


def while_loop(w, x):
    """Not differentiable in reverse mode."""

    def go_on(state):
        i, x = state
        with jax.named_scope("test"):
            return (i < 5) & (jnp.sum(x @ w[0]) < 1e3)

    def body(state):
        i, x = state
        with jax.named_scope("body"):
            return i + 1, x @ w[1] * 1.5

    with jax.named_scope("net"):
        return lax.while_loop(go_on, body, (0, x))
