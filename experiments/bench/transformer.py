"""The model that the step and forward benchmarks run: a byte-level decoder with tied embeddings."""

from typing import Any

import flax.linen as nn
import jax
import optax

VOCABULARY = 256


class Block(nn.Module):
    """A pre-norm decoder block."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Attention and a feed-forward layer, each with a residual."""
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(8, name="attn")(nn.LayerNorm()(x), mask=mask)
        h = nn.gelu(nn.Dense(4 * self.width, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(self.width, name="down")(h)


class LM(nn.Module):
    """A byte-level language model."""

    width: int
    layers: int
    scanned: bool = False

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits of the next byte."""
        embed = nn.Embed(VOCABULARY, self.width, name="embed")
        x = embed(tokens)
        if self.scanned:
            body = nn.remat(lambda block, x, _: (block(x), None), prevent_cse=False)
            over = nn.scan(
                body,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = over(Block(self.width, name="blocks"), x, None)
        else:
            for i in range(self.layers):
                x = Block(self.width, name=f"block_{i}")(x)
        return embed.attend(nn.LayerNorm()(x))


def setting(
    width: int, layers: int, length: int, batch: int, *, scanned: bool = False
) -> tuple[LM, Any, jax.Array]:
    """Return the model, its parameters and a batch of ``length + 1`` tokens."""
    model = LM(width, layers, scanned)
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, VOCABULARY)
    return model, model.init(jax.random.key(0), tokens[:, :-1])["params"], tokens


def loss_of(model: LM) -> Any:
    """Return the mean cross entropy as a function of parameters and tokens."""

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, tokens[:, :-1])
        assert isinstance(logits, jax.Array)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss
