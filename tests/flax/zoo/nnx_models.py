"""Standard architectures out of flax.nnx layers, as users write them."""

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH = 8
HEADS = 2
VOCABULARY = 11
LENGTH = 6


class Mlp(nnx.Module):
    """Three layers; `tests.flax.models.MLP` is the same in Linen."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(n, WIDTH, rngs=rngs) for n in (4, WIDTH)])
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.head(x)


class Cnn(nnx.Module):
    """Batch statistics, dropout, pooling."""

    def __init__(self, rngs):
        self.stem = nnx.Conv(1, 4, (3, 3), use_bias=False, rngs=rngs)
        self.norm_1 = nnx.BatchNorm(4, rngs=rngs)
        self.body = nnx.Conv(4, WIDTH, (3, 3), use_bias=False, rngs=rngs)
        self.norm_2 = nnx.BatchNorm(WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(WIDTH * 16, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.norm_1(self.stem(x))), (2, 2), strides=(2, 2))
        x = nnx.relu(self.norm_2(self.body(x)))
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


class Lstm(nnx.Module):
    """Reads a sequence, answers with one row."""

    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(4, WIDTH, rngs=rngs), rngs=rngs)
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.rnn(x)[:, -1])


class Layer(nnx.Module):
    """A pre-norm transformer layer."""

    def __init__(self, rngs, dropout=0.0):
        self.norm_1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.norm_2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x, mask=None, decode=False):
        x = x + self.dropout(self.attn(self.norm_1(x), mask=mask, decode=decode))
        return x + self.down(nnx.gelu(self.up(self.norm_2(x))))


class Encoder(nnx.Module):
    """Tokens to a class: embedding, positions, layers, mean, head."""

    def __init__(self, rngs, layers=2, dropout=0.0):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.positions = nnx.Param(0.1 * jax.random.normal(rngs.params(), (LENGTH, WIDTH)))
        self.layers = nnx.List([Layer(rngs, dropout) for _ in range(layers)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class Decoder(nnx.Module):
    """Tokens to the next ones; `next` takes one at a time, with keys and values in a cache."""

    def __init__(self, rngs, layers=2):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.positions = nnx.Param(0.1 * jax.random.normal(rngs.params(), (LENGTH, WIDTH)))
        self.layers = nnx.List([Layer(rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)
        self.step = nnx.Cache(jnp.zeros((), jnp.int32))

    def __call__(self, tokens):
        x = self.embed(tokens) + self.positions
        mask = nnx.make_causal_mask(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))

    def start(self, batch):
        for layer in self.layers:
            layer.attn.init_cache((batch, LENGTH, WIDTH))
        self.step[...] = jnp.zeros((), jnp.int32)

    def next(self, tokens):
        x = self.embed(tokens) + self.positions[self.step[...]]
        for layer in self.layers:
            x = layer(x, decode=True)
        self.step[...] += 1
        return self.head(self.norm(x))


class ViT(nnx.Module):
    """Patches by a convolution, a class token, layers one by one or as a scan of remat."""

    def __init__(self, rngs, layers=2, scanned=False, dropout=0.0):
        self.patches = nnx.Conv(1, WIDTH, (4, 4), strides=4, padding="VALID", rngs=rngs)
        self.token = nnx.Param(0.1 * jax.random.normal(rngs.params(), (1, 1, WIDTH)))
        self.positions = nnx.Param(0.1 * jax.random.normal(rngs.params(), (5, WIDTH)))
        self.scanned = scanned
        if scanned:

            @nnx.split_rngs(splits=layers)
            @nnx.vmap(in_axes=(0,), out_axes=0)
            def stack(rngs):
                return Layer(rngs, dropout)

            self.layers = stack(rngs)
        else:
            self.layers = nnx.List([Layer(rngs, dropout) for _ in range(layers)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, images):
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, WIDTH)
        x = jnp.concatenate([jnp.tile(self.token[...], (x.shape[0], 1, 1)), x], axis=1)
        x = x + self.positions
        if self.scanned:

            @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
            @nnx.remat
            def through(layer, x):
                return layer(x)

            x = through(self.layers, x)
        else:
            for layer in self.layers:
                x = layer(x)
        return self.head(self.norm(x)[:, 0])


class MoE(nnx.Module):
    """Each row goes to the expert that the router likes best; one grouped product for all."""

    experts = 3

    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.router = nnx.Linear(WIDTH, self.experts, use_bias=False, rngs=rngs)
        init = nnx.initializers.lecun_normal(batch_axis=0)
        self.up = nnx.Param(init(rngs.params(), (self.experts, WIDTH, 2 * WIDTH)))
        self.down = nnx.Param(init(rngs.params(), (self.experts, 2 * WIDTH, WIDTH)))

    def __call__(self, x):
        h = self.norm(x)
        scores = jax.nn.softmax(self.router(h))
        best = jnp.argmax(scores, axis=-1)
        order = jnp.argsort(best)
        groups = jnp.bincount(best, length=self.experts)
        h = nnx.gelu(jax.lax.ragged_dot(h[order], self.up[...], groups))
        h = jax.lax.ragged_dot(h, self.down[...], groups)
        h = jnp.zeros_like(x).at[order].set(h)
        return x + h * jnp.take_along_axis(scores, best[:, None], axis=-1)


class Routed(nnx.Module):
    """Residual MoE layers and a head."""

    def __init__(self, rngs, layers=2):
        self.layers = nnx.List([MoE(rngs) for _ in range(layers)])
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ResBlock(nnx.Module):
    def __init__(self, features_in, features, rngs):
        self.norm_1 = nnx.GroupNorm(features_in, num_groups=2, rngs=rngs)
        self.conv_1 = nnx.Conv(features_in, features, (3, 3), rngs=rngs)
        self.time = nnx.Linear(WIDTH, features, rngs=rngs)
        self.norm_2 = nnx.GroupNorm(features, num_groups=2, rngs=rngs)
        self.conv_2 = nnx.Conv(features, features, (3, 3), rngs=rngs)
        self.shortcut = nnx.data(None)
        if features_in != features:
            self.shortcut = nnx.Conv(features_in, features, (1, 1), rngs=rngs)

    def __call__(self, x, time):
        h = self.conv_1(nnx.silu(self.norm_1(x)))
        h = h + self.time(nnx.silu(time))[:, None, None]
        h = self.conv_2(nnx.silu(self.norm_2(h)))
        return h + (x if self.shortcut is None else self.shortcut(x))


class UNet(nnx.Module):
    """Predicts the noise in an image at a time: one level down, one up, a skip between."""

    def __init__(self, rngs):
        self.time_1 = nnx.Linear(6, WIDTH, rngs=rngs)
        self.time_2 = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.stem = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.first = ResBlock(4, 4, rngs)
        self.halve = nnx.Conv(4, 8, (3, 3), strides=2, rngs=rngs)
        self.middle = ResBlock(8, 8, rngs)
        self.double = nnx.ConvTranspose(8, 4, (2, 2), strides=(2, 2), rngs=rngs)
        self.last = ResBlock(8, 4, rngs)
        self.norm = nnx.GroupNorm(4, num_groups=2, rngs=rngs)
        self.out = nnx.Conv(4, 1, (3, 3), rngs=rngs)

    def __call__(self, images, time):
        angles = time[:, None] * jnp.array([1.0, 10.0, 100.0])
        time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        time = self.time_2(nnx.silu(self.time_1(time)))
        x = skip = self.first(self.stem(images), time)
        x = self.middle(self.halve(x), time)
        x = jnp.concatenate([self.double(x), skip], axis=-1)
        return self.out(nnx.silu(self.norm(self.last(x, time))))
