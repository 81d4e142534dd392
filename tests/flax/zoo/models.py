"""Standard architectures out of flax.linen layers, as users write them."""

import flax.linen as nn
import jax
import jax.numpy as jnp

WIDTH = 8
HEADS = 2


class Lstm(nn.Module):
    """Reads a sequence, answers with one row: in one direction or both."""

    bidirectional: bool = False

    @nn.compact
    def __call__(self, x):
        rnn = nn.RNN(nn.OptimizedLSTMCell(WIDTH, name="cell"), name="rnn")
        if self.bidirectional:
            back = nn.RNN(nn.OptimizedLSTMCell(WIDTH, name="back_cell"), name="back")
            rnn = nn.Bidirectional(rnn, back, name="both")
        x = rnn(x)
        # The way back ends at the first row: the last one has seen a single step of it.
        return nn.Dense(3, name="head")(x.mean(1) if self.bidirectional else x[:, -1])


class Mlp(nn.Module):
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x, training=False):
        h = nn.gelu(nn.Dense(2 * WIDTH, name="up")(x))
        h = nn.Dropout(self.dropout, deterministic=not training)(h)
        return nn.Dense(WIDTH, name="down")(h)


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    dropout: float = 0.0
    decode: bool = False

    @nn.compact
    def __call__(self, x, mask=None, training=False):
        attend = nn.MultiHeadDotProductAttention(HEADS, decode=self.decode, name="attn")
        h = attend(nn.LayerNorm(name="norm_1")(x), mask=mask)
        x = x + nn.Dropout(self.dropout, deterministic=not training)(h)
        return x + Mlp(self.dropout, name="mlp")(nn.LayerNorm(name="norm_2")(x), training)


class Encoder(nn.Module):
    """Tokens to a class: embedding, positions, layers, mean, head."""

    layers: int = 2
    dropout: float = 0.0
    vocabulary: int = 11

    @nn.compact
    def __call__(self, tokens, training=False):
        x = nn.Embed(self.vocabulary, WIDTH, name="embed")(tokens)
        x = x + self.param("positions", nn.initializers.normal(0.1), (tokens.shape[1], WIDTH))
        for i in range(self.layers):
            x = Layer(self.dropout, name=f"layer_{i}")(x, training=training)
        return nn.Dense(3, name="head")(nn.LayerNorm(name="norm")(x).mean(1))


class Decoder(nn.Module):
    """Tokens to the next ones; with ``decode`` one at a time, keys and values in a cache."""

    layers: int = 2
    decode: bool = False
    vocabulary: int = 11
    length: int = 6

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocabulary, WIDTH, name="embed")
        positions = self.param("positions", nn.initializers.normal(0.1), (self.length, WIDTH))
        mask = None
        if self.decode:
            started = self.has_variable("cache", "step")
            step = self.variable("cache", "step", lambda: jnp.zeros((), jnp.int32))
            positions = jax.lax.dynamic_slice_in_dim(positions, step.value, tokens.shape[1])
            if started:
                step.value += 1
        else:
            mask = nn.make_causal_mask(tokens)
        x = embed(tokens) + positions[: tokens.shape[1]]
        for i in range(self.layers):
            x = Layer(decode=self.decode, name=f"layer_{i}")(x, mask)
        return nn.Dense(self.vocabulary, name="head")(nn.LayerNorm(name="norm")(x))


class ViT(nn.Module):
    """Patches by a convolution, a class token, layers one by one or as a scan of remat."""

    layers: int = 3
    scanned: bool = False
    saves: str | None = None  # name of a rematerialisation policy

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(WIDTH, (4, 4), strides=4, padding="VALID", name="patches")(images)
        x = x.reshape(x.shape[0], -1, WIDTH)
        token = self.param("cls", nn.initializers.normal(0.1), (1, 1, WIDTH))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.1), x.shape[1:])
        if self.scanned:
            saves = self.saves and getattr(jax.checkpoint_policies, self.saves)
            body = nn.remat(lambda layer, x, _: (layer(x), None), prevent_cse=False, policy=saves)
            scan = nn.scan(
                body,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = scan(Layer(name="layers"), x, None)
        else:
            for i in range(self.layers):
                x = Layer(name=f"layer_{i}")(x)
        return nn.Dense(3, name="head")(nn.LayerNorm(name="norm")(x)[:, 0])


class MoE(nn.Module):
    """Each row goes to the expert that the router likes best; one grouped product for all."""

    experts: int = 3

    @nn.compact
    def __call__(self, x):
        scores = jax.nn.softmax(nn.Dense(self.experts, use_bias=False, name="router")(x))
        best = jnp.argmax(scores, axis=-1)
        order = jnp.argsort(best)
        groups = jnp.bincount(best, length=self.experts)
        init = nn.initializers.lecun_normal(batch_axis=0)
        up = self.param("up", init, (self.experts, x.shape[-1], 2 * WIDTH))
        down = self.param("down", init, (self.experts, 2 * WIDTH, x.shape[-1]))
        h = nn.gelu(jax.lax.ragged_dot(x[order], up, groups))
        h = jax.lax.ragged_dot(h, down, groups)
        h = jnp.zeros_like(x).at[order].set(h)
        return h * jnp.take_along_axis(scores, best[:, None], axis=-1)


class Routed(nn.Module):
    """Residual MoE layers and a head."""

    layers: int = 1

    @nn.compact
    def __call__(self, x):
        for i in range(self.layers):
            x = x + MoE(name=f"moe_{i}")(nn.LayerNorm(name=f"norm_{i}")(x))
        return nn.Dense(3, name="head")(x)
