"""The zoo's models written out once more, with a cast at each product: no transform involved."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

import npusim as npu
from tests.flax.zoo.models import HEADS, WIDTH

HIGHEST = lax.Precision.HIGHEST


def cast(x):
    return npu.fake_cast(x, "fp8_e4m3", "RINT", "ON")


def cast_back(cotangent):
    return npu.fake_cast(cotangent, "fp8_e5m2", "RINT", "ON")


def product(multiply):
    """A bilinear function on rounded operands; its gradients are products of rounded ones, too.

    That is what ``policies/fp8_unscaled.yaml`` asks for.
    """

    @jax.custom_vjp
    def call(x, y):
        return multiply(cast(x), cast(y))

    def forward(x, y):
        return call(x, y), (x, y)

    def backward(saved, cotangent):
        _, pull = jax.vjp(multiply, *map(cast, saved))
        return pull(cast_back(cotangent))

    call.defvjp(forward, backward)
    return call


dot = product(lambda x, w: jnp.dot(x, w, precision=HIGHEST))


def einsum(subscripts):
    return product(lambda x, y: jnp.einsum(subscripts, x, y, precision=HIGHEST))


def dense(params, x):
    return dot(x, params["kernel"]) + params["bias"]


def norm(params, x):
    return nn.LayerNorm().apply({"params": params}, x)


def lstm(params, x):
    """`models.Lstm` in one direction."""
    cell = params["cell"]

    def gates(which, name):
        return jnp.concatenate([cell[f"{which}{gate}"][name] for gate in "ifgo"], axis=-1)

    def step(carry, row):
        c, h = carry
        of_state = jnp.split(dot(h, gates("h", "kernel")) + gates("h", "bias"), 4, axis=-1)
        of_input = jnp.split(dot(row, gates("i", "kernel")), 4, axis=-1)
        i, f, g, o = (a + b for a, b in zip(of_input, of_state, strict=True))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (c, jax.nn.sigmoid(o) * jnp.tanh(c)), None

    start = jnp.zeros((x.shape[0], WIDTH))
    (_, h), _ = lax.scan(step, (start, start), jnp.moveaxis(x, 1, 0))
    return dense(params["head"], h)


def attention(params, x):
    def project(name):
        p = params[name]
        return einsum("btd,dhk->bthk")(x, p["kernel"]) + p["bias"]

    query = project("query") / jnp.sqrt(WIDTH // HEADS).astype(jnp.float32)
    scores = einsum("bqhd,bkhd->bhqk")(query, project("key"))
    mixed = einsum("bhqk,bkhd->bqhd")(jax.nn.softmax(scores), project("value"))
    p = params["out"]
    return einsum("bthk,hkd->btd")(mixed, p["kernel"]) + p["bias"]


def layer(params, x):
    x = x + attention(params["attn"], norm(params["norm_1"], x))
    h = dense(params["mlp"]["up"], norm(params["norm_2"], x))
    return x + dense(params["mlp"]["down"], nn.gelu(h))


def vit(params, images, layers):
    """`models.ViT`, layers one by one."""

    def convolve(x, kernel):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, kernel, (4, 4), "VALID", dimension_numbers=dims, precision=HIGHEST
        )

    p = params["patches"]
    x = product(convolve)(images, p["kernel"]) + p["bias"]
    x = x.reshape(x.shape[0], -1, WIDTH)
    token = jnp.tile(params["cls"], (x.shape[0], 1, 1))
    x = jnp.concatenate([token, x], axis=1) + params["positions"]
    for i in range(layers):
        x = layer(params[f"layer_{i}"], x)
    return dense(params["head"], norm(params["norm"], x)[:, 0])


def moe(params, x):
    """`models.Routed` of one layer: every expert on every row, then the row's own kept."""
    p = params["moe_0"]
    h = norm(params["norm_0"], x)
    scores = jax.nn.softmax(dot(h, p["router"]["kernel"]))
    best = jnp.argmax(scores, axis=-1)
    chosen = jax.nn.one_hot(best, scores.shape[-1])

    def experts(h, kernels):
        return jnp.einsum("erd,edf->erf", h, kernels, precision=HIGHEST)

    each = jnp.broadcast_to(h, (scores.shape[-1], *h.shape))
    each = product(experts)(nn.gelu(product(experts)(each, p["up"])), p["down"])
    own = jnp.einsum("erd,re->rd", each, chosen, precision=HIGHEST)
    return dense(params["head"], x + own * jnp.max(scores, axis=-1, keepdims=True))


def lru(params, x):
    """`more_models.Lru` with its recurrence as a scan; complex arithmetic is not rounded."""
    x = dense(params["embed"], x)
    for i in range(2):
        p = params[f"ssm_{i}"]
        u = norm(params[f"norm_{i}"], x)
        turn = jnp.exp(-jnp.exp(p["decay"]) + 1j * p["angle"])
        driven = u.astype(jnp.complex64) @ (p["b_re"] + 1j * p["b_im"])

        def step(state, drive, turn=turn):
            state = turn * state + drive
            return state, state

        start = jnp.zeros_like(driven[:, 0])
        states = jnp.moveaxis(lax.scan(step, start, jnp.moveaxis(driven, 1, 0))[1], 0, 1)
        h = (states @ (p["c_re"] + 1j * p["c_im"])).real + p["skip"] * u
        x = x + dense(params[f"mix_{i}"], nn.gelu(h))
    return dense(params["head"], x.mean(1))


def group_norm(params, x):
    return nn.GroupNorm(2).apply({"params": params}, x)


def convolution(params, x, size):
    """A layer of stride 1 that keeps the size."""
    reach = ((size - 1) // 2, size // 2)

    def convolve(x, kernel):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, kernel, (1, 1), (reach, reach), dimension_numbers=dims, precision=HIGHEST
        )

    return product(convolve)(x, params["kernel"]) + params["bias"]


def res_block(params, x, time):
    """`more_models.ResBlock` with a shortcut, without dropout."""
    h = nn.silu(group_norm(params["norm_1"], x))
    h = convolution(params["conv_1"], h, 3)
    h = h + dense(params["time"], nn.silu(time))[:, None, None]
    h = nn.silu(group_norm(params["norm_2"], h))
    return convolution(params["shortcut"], x, 1) + convolution(params["conv_2"], h, 3)


def doubled(params, x):
    """A transposed convolution of stride 2."""

    def convolve(x, kernel):
        return lax.conv_transpose(x, kernel, (2, 2), "SAME", precision=HIGHEST)

    return product(convolve)(x, params["kernel"]) + params["bias"]
