"""The models of the zoo with inputs, losses and the products that their architecture has."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.flax.zoo import models, more_models
from tests.flax.zoo.checks import FIRST, Case, Product, unet_products


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


SERIES = normal(1, (2, 5, 4))
TOKENS = np.array([[1, 7, 3, 0, 9, 5], [2, 10, 4, 8, 6, 1]])
IMAGES = normal(2, (2, 8, 8, 1))
ROWS = normal(3, (10, models.WIDTH))
CLASSES = np.array([2, 0])
KEY_BIAS = ("key/bias",)  # it adds the same to all scores of a query, which softmax takes out


def parameters(model, *inputs, seed=0):
    """Parameters in the shapes that the model has, biases included: initialising takes longer."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]
    draw = np.random.default_rng(seed).normal

    def filled(path, leaf):
        about = 1.0 if path[-1].key == "scale" else 0.0
        return (about + 0.3 * draw(size=leaf.shape)).astype(np.float32)

    return jax.tree.map_with_path(filled, shapes)


def classifier(model, inputs, labels, products, zero=()):
    params = parameters(model, inputs)

    def loss(params, inputs):
        logits = model.apply({"params": params}, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return Case(loss, params, (inputs,), tuple(products), zero)


def layer(path, trips=1):
    """Query, key, value, the two products of attention, output, two of the MLP."""
    names = ("attn/query", "attn/key", "attn/value", "attn/out", "mlp/up", "mlp/down")
    yield from (Product(f"{path}/{name}", trips=trips) for name in names)
    for _ in ("scores", "mixture"):
        yield Product(f"{path}/attn", roles=("input", "input"), trips=trips)


def cell(path, steps):
    """The gates' kernels side by side: one product with the input, one with the state."""
    yield Product(path, differentiated=FIRST, trips=steps)
    yield Product(path, trips=steps)


def lstm():
    products = [*cell("Lstm/rnn/cell", 5), Product("Lstm/head")]
    return classifier(models.Lstm(), SERIES, CLASSES, products)


def lstm_both_ways():
    products = [
        *cell("Lstm/both/rnn/cell", 5),
        *cell("Lstm/both/back/back_cell", 5),
        Product("Lstm/head"),
    ]
    return classifier(models.Lstm(bidirectional=True), SERIES, CLASSES, products)


def encoder():
    layers = [p for i in range(2) for p in layer(f"Encoder/layer_{i}")]
    products = [*layers, Product("Encoder/head")]
    return classifier(models.Encoder(), TOKENS, CLASSES, products, KEY_BIAS)


def decoder(layers=1):
    products = [p for i in range(layers) for p in layer(f"Decoder/layer_{i}")]
    products += [Product("Decoder/head")]
    labels = np.roll(TOKENS, -1, axis=1)
    return classifier(models.Decoder(layers), TOKENS, labels, products, KEY_BIAS)


def decoder_of_two():
    return decoder(layers=2)


def vit():
    layers = [p for i in range(3) for p in layer(f"ViT/layer_{i}")]
    products = [Product("ViT/patches", "conv", differentiated=FIRST), *layers, Product("ViT/head")]
    return classifier(models.ViT(), IMAGES, CLASSES, products, KEY_BIAS)


def vit_scanned():
    products = [
        Product("ViT/patches", "conv", differentiated=FIRST),
        *layer("ViT/layers", trips=3),
        Product("ViT/head"),
    ]
    return classifier(models.ViT(scanned=True), IMAGES, CLASSES, products, KEY_BIAS)


def moe(layers=1):
    products = [Product("Routed/head")]
    for i in range(layers):
        products += [Product(f"Routed/moe_{i}/router")]
        products += [Product(f"Routed/moe_{i}")] * 2
    return classifier(models.Routed(layers), ROWS, np.arange(10) % 3, products)


def moe_of_two():
    return moe(layers=2)


def state_space(parallel=True):
    products = [Product("Lru/embed", differentiated=FIRST), Product("Lru/head")]
    for i in range(2):
        # The complex matrices are computed from pairs, so they are no parameters themselves.
        products += [Product(f"Lru/ssm_{i}", roles=("input", "input"))] * 2
        products += [Product(f"Lru/mix_{i}")]
    return classifier(more_models.Lru(parallel), SERIES, CLASSES, products)


def state_space_scanned():
    return state_space(parallel=False)


def unet():
    model = more_models.UNet()
    noise, time = normal(4, IMAGES.shape), np.array([0.1, 0.8], np.float32)
    params = parameters(model, IMAGES, time)

    def loss(params, images, time, key):
        noisy = images + time[:, None, None, None] * noise
        rngs = {"dropout": key}
        out = model.apply({"params": params}, noisy, time, training=True, rngs=rngs)
        return jnp.mean((out - noise) ** 2)

    return Case(
        loss, params, (IMAGES, time, jax.random.key(5)), unet_products("down", "middle", "up")
    )


MAKE = {
    make.__name__: functools.cache(make)
    for make in (
        lstm,
        lstm_both_ways,
        encoder,
        decoder,
        decoder_of_two,
        vit,
        vit_scanned,
        moe,
        moe_of_two,
        state_space,
        state_space_scanned,
        unet,
    )
}
