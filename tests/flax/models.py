"""Models as users write them, in Linen and NNX."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8)(x))
        x = nn.Dense(8)(x)
        return nn.Dense(3, name="head")(nn.relu(x))


class CNN(nn.Module):
    """With batch statistics and dropout."""

    @nn.compact
    def __call__(self, x, training):
        x = nn.Conv(4, (3, 3), name="stem")(x)
        x = nn.BatchNorm(use_running_average=not training)(x)
        x = nn.avg_pool(nn.relu(x), (2, 2), (2, 2))
        x = nn.relu(nn.Conv(8, (3, 3), name="body")(x))
        x = nn.Dropout(0.3, deterministic=not training)(x.reshape(x.shape[0], -1))
        return nn.Dense(3, name="head")(x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(2, name="attn")(h)
        h = nn.Dense(16, name="up")(nn.LayerNorm()(x))
        return x + nn.Dense(8, name="down")(nn.gelu(h))


class Decoder(nn.Module):
    """Tied embeddings."""

    layers: int = 2

    def setup(self):
        self.embed = nn.Embed(11, 8)
        self.blocks = [Block(name=f"block_{i}") for i in range(self.layers)]

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(x)


class ScannedDecoder(nn.Module):
    """The blocks as a scan of rematerialised ones."""

    layers: int = 3

    @nn.compact
    def __call__(self, x):
        body = nn.remat(lambda block, x, _: (block(x), None), prevent_cse=False)
        scan = nn.scan(
            body,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.layers,
        )
        x, _ = scan(Block(name="layers"), x, None)
        return nn.Dense(3, name="head")(x)


class NnxMLP(nnx.Module):
    """A list of layers, batch statistics and dropout."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)])
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.head(self.dropout(self.norm(x)))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.attn = nnx.MultiHeadAttention(2, 8, rngs=rngs, decode=False)
        self.mlp = nnx.Sequential(
            nnx.Linear(8, 16, rngs=rngs), nnx.gelu, nnx.Linear(16, 8, rngs=rngs)
        )

    def __call__(self, x):
        return self.residual(x + self.attn(x))

    def residual(self, x):
        return x + self.mlp(x)


class NnxLM(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.block = NnxBlock(rngs)

    def __call__(self, tokens):
        return self.embed.attend(self.block(self.embed(tokens)))


IMAGES = jax.random.normal(jax.random.key(1), (4, 8, 8, 1))
TOKENS = jnp.arange(10).reshape(2, 5)
ROWS = jax.random.normal(jax.random.key(2), (6, 4))
SEQUENCE = jax.random.normal(jax.random.key(3), (2, 5, 8))
