"""An Equinox and a Haiku model, as users of these libraries write them."""

import functools

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from npusim.flax.nnx import annotate
from tests.flax.zoo.checks import FIRST, Case, Product

_draw = np.random.default_rng(1).standard_normal
IMAGES = jnp.asarray(_draw((3, 1, 8, 8)), jnp.float32)
SERIES = jnp.asarray(_draw((2, 5, 4)), jnp.float32)
KEY = jax.random.key(3)


class Net(eqx.Module):
    """A small convolutional net, for one image."""

    conv: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    dropout: eqx.nn.Dropout
    head: eqx.nn.MLP

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(1, 4, 3, key=one)
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.dropout = eqx.nn.Dropout(0.2)
        self.head = eqx.nn.MLP(36, 3, width_size=8, depth=1, key=two)

    def __call__(self, image, key):
        x = self.pool(jax.nn.relu(self.conv(image)))
        return self.head(self.dropout(x.reshape(-1), key=key))


def equinox_loss(model, images, labels, key):
    logits = jax.vmap(model)(images, jax.random.split(key, images.shape[0]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@functools.cache
def equinox_model():
    return annotate(Net(jax.random.key(0)))


@functools.cache
def equinox():
    params, static = eqx.partition(equinox_model(), eqx.is_array)

    def loss(params, *inputs):
        return equinox_loss(eqx.combine(params, static), *inputs)

    products = (
        Product("Net/conv/eqx.nn.Conv", "conv", differentiated=FIRST),
        Product("Net/head/eqx.nn.MLP/layers/0/eqx.nn.Linear"),
        Product("Net/head/eqx.nn.MLP/layers/1/eqx.nn.Linear"),
    )
    return Case(loss, params, (IMAGES, jnp.arange(3), KEY), products)


class Block(hk.Module):
    """A pre-norm transformer layer."""

    def __call__(self, x, training):
        attend = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(), name="attn")
        h = hk.LayerNorm(-1, True, True, name="norm_1")(x)
        x = x + attend(h, h, h)
        h = hk.nets.MLP([16, 8], name="mlp")(hk.LayerNorm(-1, True, True, name="norm_2")(x))
        if training:
            h = hk.dropout(hk.next_rng_key(), 0.2, h)
        return x + h


@hk.transform_with_state
def haiku_net(x, training):
    x = hk.Linear(8, name="embed")(x)
    x = Block(name="block")(x, training)
    x = hk.BatchNorm(True, True, 0.9, name="norm")(x, training)
    return hk.Linear(3, name="head")(x.mean(1))


@functools.cache
def haiku_variables():
    return haiku_net.init(jax.random.key(0), SERIES, True)


@functools.cache
def haiku():
    params, state = haiku_variables()

    def loss(params, state, series, key):
        logits, _ = haiku_net.apply(params, state, key, series, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.array([2, 0])).mean()

    names = ("query", "key", "value", "linear")
    products = (
        Product("embed", differentiated=FIRST),
        *(Product(f"block/attn/{name}") for name in names),
        *[Product("block/attn", roles=("input", "input"))] * 2,
        *(Product(f"block/mlp/linear_{i}") for i in range(2)),
        Product("head"),
    )
    return Case(loss, params, (state, SERIES, KEY), products, zero=("attn/key/b",))
