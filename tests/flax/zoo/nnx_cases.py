"""The NNX models of the zoo with inputs, losses and the products that their architecture has."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from npusim.flax.nnx import annotate, simulate
from tests.flax.zoo import nnx_models as models
from tests.flax.zoo.checks import FIRST, Product, unet_products

_draw = np.random.default_rng(1).standard_normal
ROWS = jnp.asarray(_draw((6, 4)), jnp.float32)
SERIES = jnp.asarray(_draw((2, 5, 4)), jnp.float32)
TOKENS = jnp.array([[1, 7, 3, 0, 9, 5], [2, 10, 4, 8, 6, 1]])
IMAGES = jnp.asarray(_draw((3, 8, 8, 1)), jnp.float32)
WIDE = jnp.asarray(_draw((10, models.WIDTH)), jnp.float32)
LAYER_PATHS = ("attn/query", "attn/key", "attn/value", "attn", "attn", "attn/out", "up", "down")
KEY_BIAS = ("attn/key/bias/value",)  # adds the same to all scores of a query: softmax drops it


@dataclasses.dataclass(frozen=True)
class NnxCase:
    """As `checks.Case`, with a model in the place of parameters and ``loss(model, *inputs)``."""

    make: Callable[[nnx.Rngs], nnx.Module]
    loss: Callable[..., jax.Array]
    inputs: tuple[Any, ...]
    products: tuple[Product, ...]
    zero: tuple[str, ...] = ()

    @property
    def step(self):
        return nnx.value_and_grad(self.loss)

    @functools.cached_property
    def original(self):
        return annotate(self.make(nnx.Rngs(0)))

    def model(self):
        """The same model each time, with its paths, as a call may change it."""
        return nnx.clone(self.original)

    @property
    def args(self):
        return self.model(), *self.inputs

    def run(self, fn):
        """What ``fn`` returns, compiled, and the state it leaves."""
        model = self.model()
        out = nnx.jit(fn)(model, *self.inputs)
        return out, state_of(model)

    @functools.cached_property
    def plain_run(self):
        return self.run(self.step)

    @property
    def plain(self):
        return self.plain_run[0]

    def under(self, policy):
        """Loss and gradients with every operation rounded as itself."""
        return self.run(simulate(self.step, policy))[0]

    def straight_through(self, policy):
        """Loss and gradients of the simulated loss."""
        return self.run(nnx.value_and_grad(simulate(self.loss, policy)))[0]


def state_of(model):
    """Everything a model holds, random keys as their words."""

    def words(leaf):
        key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if key else leaf

    return jax.tree.map(words, nnx.to_pure_dict(nnx.state(model)))


def cross_entropy(model, inputs, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(inputs), labels).mean()


def classifier(make, inputs, products, zero=()):
    labels = jnp.arange(inputs.shape[0]) % 3
    return NnxCase(make, cross_entropy, (inputs, labels), tuple(products), zero)


def layer(path, trips=1):
    """Query, key, value, the two products of attention, output, two of the MLP."""
    for name in LAYER_PATHS:
        roles = ("input", "input" if name == "attn" else "weight")
        yield Product(f"{path}/{name}", roles=roles, trips=trips)


def layers(model, count):
    return [product for i in range(count) for product in layer(f"{model}/layers/{i}")]


def mlp():
    first = Product("Mlp/layers/0", differentiated=FIRST)
    return classifier(models.Mlp, ROWS, [first, Product("Mlp/layers/1"), Product("Mlp/head")])


def cnn():
    stem = Product("Cnn/stem", "conv", differentiated=FIRST)
    products = [stem, Product("Cnn/body", "conv"), Product("Cnn/head")]
    return classifier(models.Cnn, IMAGES, products)


def lstm():
    products = [
        Product("Lstm/rnn/cell/dense_i", differentiated=FIRST, trips=5),
        Product("Lstm/rnn/cell/dense_h", trips=5),
        Product("Lstm/head"),
    ]
    return classifier(models.Lstm, SERIES, products)


def encoder():
    return classifier(
        models.Encoder, TOKENS, [*layers("Encoder", 2), Product("Encoder/head")], KEY_BIAS
    )


def encoder_of_one():
    return classifier(
        functools.partial(models.Encoder, layers=1),
        TOKENS,
        [*layers("Encoder", 1), Product("Encoder/head")],
        KEY_BIAS,
    )


def decoder():
    products = [*layers("Decoder", 2), Product("Decoder/head")]
    labels = jnp.roll(TOKENS, -1, axis=1)
    return NnxCase(models.Decoder, cross_entropy, (TOKENS, labels), tuple(products), KEY_BIAS)


def vit():
    patches = Product("ViT/patches", "conv", differentiated=FIRST)
    products = [patches, *layers("ViT", 2), Product("ViT/head")]
    return classifier(models.ViT, IMAGES, products, KEY_BIAS)


def vit_scanned():
    """With dropout in the layers, whose masks have to be the same when they are computed again."""
    make = functools.partial(models.ViT, layers=3, scanned=True, dropout=0.2)
    patches = Product("ViT/patches", "conv", differentiated=FIRST)
    products = [patches, *layer("ViT/layers", trips=3), Product("ViT/head")]
    return classifier(make, IMAGES, products, KEY_BIAS)


def moe():
    products = [Product("Routed/head")]
    for i in range(2):
        path = f"Routed/layers/{i}"
        products += [Product(f"{path}/router"), Product(path), Product(path)]
    return classifier(models.Routed, WIDE, products)


def unet():
    noise = jax.random.normal(jax.random.key(5), IMAGES.shape)

    def loss(model, images, time):
        noisy = images + time[:, None, None, None] * noise
        return jnp.mean((model(noisy, time) - noise) ** 2)

    return NnxCase(
        models.UNet,
        loss,
        (IMAGES, jnp.array([0.1, 0.5, 0.8])),
        unet_products("first", "middle", "last"),
    )


_MAKERS = (mlp, cnn, lstm, encoder, encoder_of_one, decoder, vit, vit_scanned, moe, unet)
MAKE = {f"nnx_{make.__name__}": functools.cache(make) for make in _MAKERS}
